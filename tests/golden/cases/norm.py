"""Normalisations: batch, layer, group, root mean square."""

import torch
import torch.nn.functional as F
from group import Group
from sample import normal, uniform


def make():
    group = Group("norm")
    batch_norms(group)
    layer_norms(group)
    group_norms(group)
    rms_norms(group)
    return group


def shifted(*shape):
    """Inputs whose mean is not 0 and whose deviation is not 1."""
    return lambda generator: 0.7 + 1.8 * torch.randn(shape, generator=generator, dtype=torch.float64)


def batch_norms(group):
    def batch_norm(x, running_mean, running_var, weight=None, bias=None, **args):
        new_mean, new_var = running_mean.clone(), running_var.clone()
        output = F.batch_norm(x, new_mean, new_var, weight, bias, **args)
        return {"output": output, "new_running_mean": new_mean, "new_running_var": new_var}

    def add(variant, x, affine=True, gradgrad=False, **args):
        channels = x[1]
        inputs = {"x": shifted(*x), "running_mean": normal(channels), "running_var": uniform(0.5, 2.0, channels)}
        grad = ["x"]
        if affine:
            inputs.update(weight=normal(channels), bias=normal(channels))
            grad += ["weight", "bias"]
        args = {"training": True, "momentum": 0.1, "eps": 1e-5, **args}
        group.case("batch_norm", variant, batch_norm, inputs, args, grad=grad, gradgrad=gradgrad)

    for training, mode in ((True, "train"), (False, "eval")):
        add(f"{mode}_0d", (7, 5), training=training)
        add(f"{mode}_1d", (3, 5, 7), training=training)
        add(f"{mode}_2d", (3, 2, 5, 3), training=training, gradgrad=training)
        add(f"{mode}_3d", (2, 3, 2, 3, 3), training=training)
        add(f"{mode}_not_affine", (3, 2, 3, 5), affine=False, training=training)
    add("train_momentum_eps", (5, 3, 3), momentum=0.3, eps=1e-2)
    add("train_one_sample", (1, 3, 5, 7))
    add("train_big_batch", (67, 3, 2, 1))


def layer_norms(group):
    def layer_norm(x, weight=None, bias=None, normalized_shape=None, eps=1e-5):
        return F.layer_norm(x, normalized_shape, weight, bias, eps)

    def add(variant, x, normalized_shape, affine=("weight", "bias"), eps=1e-5, gradgrad=False):
        inputs = {"x": shifted(*x), **{key: normal(*normalized_shape) for key in affine}}
        args = {"normalized_shape": normalized_shape, "eps": eps}
        group.case("layer_norm", variant, layer_norm, inputs, args, gradgrad=gradgrad)

    add("last", (3, 5, 7), [7], gradgrad=True)
    add("last_two", (3, 5, 7), [5, 7])
    add("whole", (5, 7), [5, 7])
    add("not_affine", (3, 5, 7), [7], affine=())
    add("only_weight", (5, 13), [13], affine=("weight",))
    add("eps", (5, 13), [13], eps=0.1)
    add("long", (3, 259), [259])


def group_norms(group):
    def group_norm(x, weight=None, bias=None, num_groups=1, eps=1e-5):
        return F.group_norm(x, num_groups, weight, bias, eps)

    def add(variant, x, num_groups, affine=("weight", "bias")):
        inputs = {"x": shifted(*x), **{key: normal(x[1]) for key in affine}}
        group.case("group_norm", variant, group_norm, inputs, {"num_groups": num_groups, "eps": 1e-5})

    add("plain", (2, 6, 3, 5), 3)
    add("one_group", (2, 3, 5), 1)
    add("each_channel", (2, 3, 5, 3), 3)
    add("flat", (3, 10), 2)
    add("not_affine", (2, 6, 3, 5), 2, affine=())


def rms_norms(group):
    # PyTorch has it from 2.4 on; this is its formula, after Zhang and Sennrich, 2019.
    def rms_norm(x, weight=None, normalized_shape=None, eps=1e-5):
        dims = list(range(-len(normalized_shape), 0))
        output = x * torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)
        return output if weight is None else output * weight

    def add(variant, x, normalized_shape, affine=True, eps=1e-5):
        inputs = {"x": shifted(*x)}
        if affine:
            inputs["weight"] = normal(*normalized_shape)
        group.case("rms_norm", variant, rms_norm, inputs, {"normalized_shape": normalized_shape, "eps": eps})

    add("last", (3, 5, 7), [7])
    add("last_two", (3, 5, 7), [5, 7])
    add("not_affine", (5, 13), [13], affine=False)
    add("eps", (5, 13), [13], eps=0.1)
    add("long", (2, 259), [259])
