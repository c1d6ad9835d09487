"""Reductions over some or all dimensions, and cumulative sums."""

import torch
from group import Group
from sample import away, distinct, normal, whole

SHAPE = (3, 5, 7)
# `None` means all dimensions.
DIMS = {"all": None, "first": [0], "middle": [1], "last": [-1], "outer": [0, 2], "inner": [1, 2]}


def make():
    group = Group("reduce")
    sums(group)
    products(group)
    extremes(group)
    variances(group)
    positions(group)
    cumulative_sums(group)
    return group


def all_or(dims, x):
    return list(range(x.dim())) if dims is None else dims


def keepdims(variant):
    return ((variant, False), (f"{variant}_keepdim", True))


def sums(group):
    operations = {
        "sum": lambda x, dims, keepdim: x.sum(all_or(dims, x), keepdim),
        "mean": lambda x, dims, keepdim: x.mean(all_or(dims, x), keepdim),
    }
    for op, function in operations.items():
        for dims_name, dims in DIMS.items():
            for variant, keepdim in keepdims(dims_name):
                group.case(op, variant, function, {"x": normal(*SHAPE)}, {"dims": dims, "keepdim": keepdim})
        long_cases = {"long_last": ((3, 517), [1]), "long_first": ((517, 3), [0]), "long_all": ((1031,), None)}
        for variant, (shape, dims) in long_cases.items():
            group.case(op, variant, function, {"x": normal(*shape)}, {"dims": dims, "keepdim": False})
        group.case(op, "zero_dim", function, {"x": normal()}, {"dims": None, "keepdim": False})
    # The sum of nothing is 0.
    group.case("sum", "empty", operations["sum"], {"x": normal(3, 0)}, {"dims": [1], "keepdim": False})
    group.case("sum", "empty_kept", operations["sum"], {"x": normal(3, 0)}, {"dims": [0], "keepdim": False})


def products(group):
    def prod(x, dims, keepdim):
        for dim in sorted((dim % x.dim() for dim in all_or(dims, x)), reverse=True):
            x = x.prod(dim, keepdim)
        return x

    for dims_name, dims in DIMS.items():
        for variant, keepdim in keepdims(dims_name):
            inputs = {"x": away(*SHAPE, gap=0.4, low=-1.5, high=1.5)}
            group.case("prod", variant, prod, inputs, {"dims": dims, "keepdim": keepdim})
    # A zero must not turn the gradients of the others into NaN.
    zeros = torch.tensor([[2.0, 0.0, 3.0], [0.0, 0.0, 4.0], [1.5, 2.0, -1.0]])
    group.case("prod", "zeros", prod, {"x": zeros}, {"dims": [1], "keepdim": False})


def extremes(group):
    operations = {
        "amax": lambda x, dims, keepdim: x.amax(all_or(dims, x), keepdim),
        "amin": lambda x, dims, keepdim: x.amin(all_or(dims, x), keepdim),
    }
    for op, function in operations.items():
        for dims_name, dims in DIMS.items():
            for variant, keepdim in keepdims(dims_name):
                group.case(op, variant, function, {"x": distinct(*SHAPE)}, {"dims": dims, "keepdim": keepdim})
        group.case(op, "long_last", function, {"x": distinct(3, 131)}, {"dims": [1], "keepdim": False})
        # Equal extremes share the gradient evenly.
        group.case(op, "ties", function, {"x": whole(0, 3, 5, 7)}, {"dims": [1], "keepdim": False})
        nan = torch.tensor([[1.0, float("nan"), 2.0], [float("-inf"), 0.0, float("inf")]])
        group.case(op, "special", function, {"x": nan}, {"dims": [1], "keepdim": False}, grad=[])


def variances(group):
    def var(x, dims, keepdim, unbiased):
        return x.var(all_or(dims, x), unbiased, keepdim)

    for unbiased in (True, False):
        suffix = "unbiased" if unbiased else "biased"
        for dims_name, dims in DIMS.items():
            args = {"dims": dims, "keepdim": dims_name in ("last", "outer"), "unbiased": unbiased}
            group.case("var", f"{dims_name}_{suffix}", var, {"x": normal(*SHAPE)}, args)
    # A large mean: the difference of mean squares would lose all digits.
    shifted = lambda generator: 1000.0 + torch.randn(3, 67, generator=generator, dtype=torch.float64)
    args = {"dims": [1], "keepdim": False, "unbiased": True}
    group.case("var", "shifted", var, {"x": shifted}, args)


def positions(group):
    operations = {
        "argmax": lambda x, dim, keepdim: x.argmax(dim, keepdim),
        "argmin": lambda x, dim, keepdim: x.argmin(dim, keepdim),
    }
    for op, function in operations.items():
        for dim in (0, 1, -1):
            for variant, keepdim in keepdims({0: "first", 1: "middle", -1: "last"}[dim]):
                group.case(op, variant, function, {"x": distinct(*SHAPE)}, {"dim": dim, "keepdim": keepdim}, grad=[])
        group.case(op, "all", function, {"x": distinct(*SHAPE)}, {"dim": None, "keepdim": False}, grad=[])
        group.case(op, "long", function, {"x": distinct(3, 131)}, {"dim": 1, "keepdim": False}, grad=[])
        # Of equal extremes the first counts.
        group.case(op, "ties", function, {"x": whole(0, 3, 7, 13)}, {"dim": 1, "keepdim": False}, grad=[])


def cumulative_sums(group):
    def cumsum(x, dim):
        return x.cumsum(dim)

    for dim, variant in ((0, "first"), (1, "middle"), (2, "last"), (-2, "negative")):
        group.case("cumsum", variant, cumsum, {"x": normal(*SHAPE)}, {"dim": dim})
    group.case("cumsum", "long", cumsum, {"x": normal(2, 259)}, {"dim": 1})
