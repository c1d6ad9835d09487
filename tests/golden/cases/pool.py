"""Max, average and adaptive pooling."""

import torch.nn.functional as F
from group import Group
from sample import distinct, normal, whole

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE_AVERAGE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def make():
    group = Group("pool")
    max_pools(group)
    average_pools(group)
    adaptive_pools(group)
    return group


def call(function):
    return lambda x, **args: function(x, **args)


def max_pools(group):
    def add(variant, x, kernel, gradgrad=False, **args):
        rank = len(kernel)
        recipe = x if callable(x) else distinct(*x)
        defaults = {"stride": kernel, "padding": [0] * rank, "dilation": [1] * rank, "ceil_mode": False}
        args = {"kernel_size": kernel, **defaults, **args}
        group.case(f"max_pool{rank}d", variant, call(MAX[rank]), {"x": recipe}, args, gradgrad=gradgrad)

    add("plain", (2, 3, 10), [2])
    add("overlap_pad", (2, 3, 11), [3], stride=[2], padding=[1])
    add("dilation2", (1, 2, 13), [3], stride=[1], dilation=[2])
    add("plain", (2, 3, 6, 8), [2, 2], gradgrad=True)
    add("leftover", (2, 3, 7, 9), [2, 2])
    add("overlap_pad", (2, 3, 7, 9), [3, 3], stride=[2, 2], padding=[1, 1])
    add("asymmetric", (2, 3, 7, 9), [3, 2], stride=[1, 3], padding=[1, 0])
    add("dilation", (1, 2, 9, 11), [3, 2], stride=[2, 1], padding=[1, 1], dilation=[2, 3])
    add("whole_input", (3, 2, 5, 7), [5, 7])
    # Of equal maxima the first in the window gets the gradient.
    add("ties", whole(0, 2, 2, 2, 6, 7), [3, 3], stride=[2, 2])
    # Padding is minus infinity, not 0.
    add("negative", lambda generator: distinct(1, 2, 4, 5)(generator) - 10.0, [3, 3], stride=[2, 2], padding=[1, 1])
    add("plain", (1, 2, 4, 5, 6), [2, 2, 2])
    add("overlap_pad_dilation", (1, 2, 5, 6, 7), [2, 3, 2], stride=[2, 1, 2], padding=[1, 1, 0], dilation=[1, 2, 3])


def average_pools(group):
    def add(variant, x, kernel, gradgrad=False, **args):
        rank = len(kernel)
        defaults = {"stride": kernel, "padding": [0] * rank, "ceil_mode": False, "count_include_pad": True}
        args = {"kernel_size": kernel, **defaults, **args}
        group.case(f"avg_pool{rank}d", variant, call(AVERAGE[rank]), {"x": normal(*x)}, args, gradgrad=gradgrad)

    add("plain", (2, 3, 10), [2])
    add("overlap", (2, 3, 11), [3], stride=[2])
    add("plain", (2, 3, 6, 8), [2, 2], gradgrad=True)
    add("leftover", (2, 3, 7, 9), [2, 2])
    add("asymmetric", (2, 3, 7, 9), [3, 2], stride=[1, 3])
    add("whole_input", (3, 2, 5, 7), [5, 7])
    add("plain", (1, 2, 4, 5, 6), [2, 2, 2])
    for include in (True, False):
        suffix = "included" if include else "excluded"
        add(f"pad_{suffix}", (2, 3, 11), [3], stride=[2], padding=[1], count_include_pad=include)
        add(f"pad_{suffix}", (2, 3, 7, 9), [3, 4], stride=[2, 3], padding=[1, 2], count_include_pad=include)
        add(f"pad_{suffix}", (1, 2, 4, 5, 3), [2, 3, 2], stride=[2, 1, 2], padding=[1, 1, 0], count_include_pad=include)


def adaptive_pools(group):
    sizes = {
        "divides": ((2, 3, 12), [4]),
        "uneven": ((2, 3, 11), [4]),
        "upsample": ((1, 2, 3), [7]),
        "one": ((2, 3, 5, 7), [1, 1]),
        "uneven_2d": ((2, 3, 7, 11), [3, 5]),
        "mixed_2d": ((1, 2, 4, 9), [7, 3]),
        "uneven_3d": ((1, 2, 5, 4, 7), [2, 3, 4]),
    }
    for variant, (shape, output_size) in sizes.items():
        rank = len(output_size)
        variant = variant.removesuffix(f"_{rank}d")
        args = {"output_size": output_size}
        op = f"adaptive_avg_pool{rank}d"
        group.case(op, variant, call(ADAPTIVE_AVERAGE[rank]), {"x": normal(*shape)}, args)
        if rank == 2:
            op = "adaptive_max_pool2d"
            group.case(op, variant, call(F.adaptive_max_pool2d), {"x": distinct(*shape)}, args)
