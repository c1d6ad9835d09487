"""Softmax and the losses."""

import torch
import torch.nn.functional as F
from group import Group
from sample import integers, normal, uniform

IGNORED = -100


def make():
    group = Group("loss")
    softmaxes(group)
    cross_entropies(group)
    negative_log_likelihoods(group)
    regressions(group)
    binary(group)
    return group


def softmaxes(group):
    functions = {
        "softmax": lambda x, dim: F.softmax(x, dim),
        "log_softmax": lambda x, dim: F.log_softmax(x, dim),
    }
    for op, function in functions.items():
        for dim, variant in ((0, "first"), (1, "middle"), (-1, "last")):
            gradgrad = variant == "last"
            group.case(op, variant, function, {"x": normal(3, 5, 7, scale=2.0)}, {"dim": dim}, gradgrad=gradgrad)
        group.case(op, "long", function, {"x": normal(2, 131)}, {"dim": 1})
        group.case(op, "one", function, {"x": normal(3, 1)}, {"dim": 1})
        # Large values overflow unless the maximum is subtracted first.
        group.case(op, "large", function, {"x": normal(3, 7, scale=200.0)}, {"dim": 1})
        infinite = torch.tensor([[0.0, float("-inf"), 1.0], [2.0, float("-inf"), float("-inf")]])
        group.case(op, "masked", function, {"x": infinite}, {"dim": 1}, grad=[])


def labels(num_classes, *shape, ignored=False):
    """Class indices; if `ignored`, the second and the last of them are IGNORED."""

    def draw(generator):
        target = torch.randint(0, num_classes, shape, generator=generator)
        if ignored:
            target.view(-1)[[1, -1]] = IGNORED
        return target

    return draw


def cross_entropies(group):
    def cross_entropy(x, target, weight=None, **args):
        return F.cross_entropy(x, target, weight, **args)

    def add(variant, reduction, x, target, weight=False, ignored=False, smoothing=0.0, gradgrad=False):
        num_classes = x[1]
        inputs = {"x": normal(*x, scale=2.0), "target": labels(num_classes, *target, ignored=ignored)}
        if weight:
            inputs["weight"] = uniform(0.2, 2.0, num_classes)
        args = {"ignore_index": IGNORED, "label_smoothing": smoothing, "reduction": reduction}
        name = f"{variant}_{reduction}"
        group.case("cross_entropy", name, cross_entropy, inputs, args, grad=["x"], gradgrad=gradgrad)

    options = {
        "plain": {},
        "weight": {"weight": True},
        "ignore_index": {"ignored": True},
        "label_smoothing": {"smoothing": 0.1},
        "all_three": {"weight": True, "ignored": True, "smoothing": 0.15},
    }
    for reduction in ("mean", "sum", "none"):
        for variant, option in options.items():
            gradgrad = (variant, reduction) == ("plain", "mean")
            add(variant, reduction, (7, 5), (7,), **option, gradgrad=gradgrad)
            add(f"{variant}_2d", reduction, (2, 5, 3, 2), (2, 3, 2), **option)
    add("many_classes", "mean", (5, 67), (5,))
    add("big_batch", "mean", (131, 3), (131,))

    # Targets as probabilities.
    def probabilities(generator):
        return F.softmax(torch.randn(7, 5, generator=generator, dtype=torch.float64), 1)

    args = {"ignore_index": IGNORED, "label_smoothing": 0.0, "reduction": "mean"}
    inputs = {"x": normal(7, 5), "target": probabilities}
    group.case("cross_entropy", "probabilities_mean", cross_entropy, inputs, args, grad=["x"])
    smoothed = {**args, "label_smoothing": 0.1}
    group.case("cross_entropy", "probabilities_smoothed_mean", cross_entropy, inputs, smoothed, grad=["x"])


def negative_log_likelihoods(group):
    def nll_loss(x, target, weight=None, **args):
        return F.nll_loss(x, target, weight, **args)

    def log_probabilities(*shape):
        return lambda generator: F.log_softmax(normal(*shape)(generator), 1)

    for reduction in ("mean", "sum", "none"):
        args = {"ignore_index": IGNORED, "reduction": reduction}
        inputs = {"x": log_probabilities(7, 5), "target": labels(5, 7)}
        group.case("nll_loss", f"plain_{reduction}", nll_loss, inputs, args)
        inputs = {
            "x": log_probabilities(2, 5, 3, 2),
            "target": labels(5, 2, 3, 2, ignored=True),
            "weight": uniform(0.2, 2.0, 5),
        }
        group.case("nll_loss", f"weight_ignore_index_2d_{reduction}", nll_loss, inputs, args, grad=["x"])


def regressions(group):
    def mse_loss(x, target, reduction):
        return F.mse_loss(x, target, reduction=reduction)

    for reduction in ("mean", "sum", "none"):
        inputs = {"x": normal(5, 7), "target": normal(5, 7)}
        group.case("mse_loss", reduction, mse_loss, inputs, {"reduction": reduction})


def binary(group):
    def bce_with_logits(x, target, weight=None, pos_weight=None, reduction="mean"):
        return F.binary_cross_entropy_with_logits(x, target, weight, pos_weight=pos_weight, reduction=reduction)

    options = {
        "plain": {},
        "weight": {"weight": uniform(0.2, 2.0, 5, 7)},
        "weight_row": {"weight": uniform(0.2, 2.0, 7)},
        "pos_weight": {"pos_weight": uniform(0.5, 3.0, 7)},
        "both": {"weight": uniform(0.2, 2.0, 5, 1), "pos_weight": uniform(0.5, 3.0, 7)},
    }
    for reduction in ("mean", "sum", "none"):
        for variant, extra in options.items():
            inputs = {"x": normal(5, 7, scale=2.0), "target": uniform(0.0, 1.0, 5, 7), **extra}
            args = {"reduction": reduction}
            group.case("bce_with_logits", f"{variant}_{reduction}", bce_with_logits, inputs, args, grad=["x"])
    inputs = {"x": uniform(-90.0, 90.0, 5, 7), "target": integers(0, 2, 5, 7, dtype=torch.float64)}
    group.case("bce_with_logits", "large_mean", bce_with_logits, inputs, {"reduction": "mean"}, grad=["x"])
