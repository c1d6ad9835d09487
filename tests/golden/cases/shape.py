"""Operations that move elements without computing: joining, cutting, padding, reordering, masking by diagonals."""

import torch
import torch.nn.functional as F
from group import Group
from sample import normal


def make():
    group = Group("shape")
    joins(group)
    cuts(group)
    pads(group)
    reorderings(group)
    views(group)
    diagonals(group)
    return group


def joins(group):
    def concat(dim, **tensors):
        return torch.cat(list(tensors.values()), dim)

    def stack(dim, **tensors):
        return torch.stack(list(tensors.values()), dim)

    concats = {
        "first": (0, (3, 5), (2, 5), (1, 5)),
        "last": (-1, (3, 5), (3, 1), (3, 7)),
        "middle": (1, (2, 3, 5), (2, 1, 5)),
        "with_empty": (0, (3, 5), (0, 5), (2, 5)),
        "single": (0, (3, 5)),
    }
    for variant, (dim, *shapes) in concats.items():
        inputs = {f"x{i}": normal(*shape) for i, shape in enumerate(shapes)}
        group.case("concat", variant, concat, inputs, {"dim": dim})
    for variant, dim in (("first", 0), ("middle", 1), ("last", -1)):
        group.case("stack", variant, stack, {f"x{i}": normal(3, 5) for i in range(3)}, {"dim": dim})
    group.case("stack", "zero_dim", stack, {f"x{i}": normal() for i in range(2)}, {"dim": 0})


def cuts(group):
    def split(x, split_sizes, dim):
        return x.split(split_sizes, dim)

    for variant, sizes, dim in (("first", [2, 3], 0), ("last", [1, 4, 2], -1), ("with_empty", [0, 5], 0)):
        group.case("split", variant, split, {"x": normal(5, 7)}, {"split_sizes": sizes, "dim": dim})
    # One number: pieces of that size, the last one shorter.
    group.case("split", "equal", split, {"x": normal(7, 3)}, {"split_sizes": 3, "dim": 0})

    def slice_(x, dim, start, stop, step):
        dim = dim % x.dim()
        return x[(slice(None),) * dim + (slice(start, stop, step),)]

    slices = {
        "front": (0, 0, 3, 1),
        "back": (1, 4, 7, 1),
        "step2": (1, 0, 7, 2),
        "step3_offset": (1, 1, 7, 3),
        "last_dim": (-1, 1, 3, 1),
        "negative": (1, -4, -1, 1),
        "beyond_end": (0, 2, 100, 1),
        "empty": (0, 2, 2, 1),
    }
    for variant, (dim, start, stop, step) in slices.items():
        args = {"dim": dim, "start": start, "stop": stop, "step": step}
        group.case("slice", variant, slice_, {"x": normal(5, 7, 3)}, args)


def pads(group):
    def pad(x, pad, value):
        return F.pad(x, pad, value=value)

    pads = {
        "last": ((3, 5), [1, 2], 0.0),
        "last_two": ((3, 5), [1, 2, 3, 0], 0.0),
        "first_only": ((3, 5), [0, 0, 2, 1], -1.5),
        "four": ((2, 3, 2, 3), [1, 0, 0, 2, 1, 1, 0, 1], 0.25),
        "vector": ((7,), [3, 4], 7.0),
    }
    for variant, (shape, sizes, value) in pads.items():
        group.case("pad", variant, pad, {"x": normal(*shape)}, {"pad": sizes, "value": value})


def reorderings(group):
    def flip(x, dims):
        return x.flip(dims)

    for variant, dims in (("first", [0]), ("last", [-1]), ("outer", [0, 2]), ("all", [0, 1, 2])):
        group.case("flip", variant, flip, {"x": normal(3, 2, 5)}, {"dims": dims})

    def roll(x, shifts, dims):
        return x.roll(shifts, dims)

    rolls = {
        "first": ([1], [0]),
        "last_back": ([-2], [-1]),
        "two": ([2, -1], [0, 1]),
        "more_than_once": ([17], [2]),
    }
    for variant, (shifts, dims) in rolls.items():
        group.case("roll", variant, roll, {"x": normal(3, 2, 5)}, {"shifts": shifts, "dims": dims})

    def permute(x, dims):
        return x.permute(dims)

    permutations = {
        "transpose": ((3, 5), [1, 0]),
        "cycle": ((2, 3, 5), [2, 0, 1]),
        "four": ((2, 3, 1, 5), [0, 2, -1, 1]),
    }
    for variant, (shape, dims) in permutations.items():
        group.case("permute", variant, permute, {"x": normal(*shape)}, {"dims": dims})


def views(group):
    def reshape(x, shape):
        return x.reshape(shape)

    reshapes = {
        "flatten": ((2, 3, 5), [30]),
        "split": ((6, 5), [2, 3, 5]),
        "mixed": ((4, 3, 5), [2, 6, 5]),
        "inferred": ((3, 2, 5), [5, -1]),
        "to_zero_dim": ((1, 1), []),
        "from_zero_dim": ((), [1, 1]),
    }
    for variant, (shape, target) in reshapes.items():
        group.case("reshape", variant, reshape, {"x": normal(*shape)}, {"shape": target})

    def permute_reshape(x, dims, shape):
        return x.permute(dims).reshape(shape)

    args = {"dims": [2, 0, 1], "shape": [15, 2]}
    group.case("permute_reshape", "plain", permute_reshape, {"x": normal(2, 3, 5)}, args)

    def expand(x, shape):
        return x.expand(shape)

    expands = {
        "row": ((1, 5), [3, 5]),
        "new_dim": ((5,), [2, 3, 5]),
        "both": ((3, 1, 5, 1), [3, 2, 5, 7]),
        "zero_dim": ((), [3, 5]),
    }
    for variant, (shape, target) in expands.items():
        group.case("expand", variant, expand, {"x": normal(*shape)}, {"shape": target})


def diagonals(group):
    functions = {"tril": lambda x, diagonal: x.tril(diagonal), "triu": lambda x, diagonal: x.triu(diagonal)}
    for op, function in functions.items():
        for diagonal, variant in ((0, "main"), (2, "above"), (-1, "below"), (9, "beyond"), (-9, "beyond_below")):
            group.case(op, variant, function, {"x": normal(5, 7)}, {"diagonal": diagonal})
        group.case(op, "batch", function, {"x": normal(2, 5, 3)}, {"diagonal": 1})
