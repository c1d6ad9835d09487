"""Convolutions and transposed convolutions in one, two and three dimensions."""

import torch.nn.functional as F
from group import Group
from sample import normal


def conv(function):
    return lambda x, weight, bias=None, **args: function(x, weight, bias, **args)


CONV = {1: conv(F.conv1d), 2: conv(F.conv2d), 3: conv(F.conv3d)}
CONV_TRANSPOSE = {1: conv(F.conv_transpose1d), 2: conv(F.conv_transpose2d), 3: conv(F.conv_transpose3d)}


def make():
    group = Group("conv")
    conv1d(group)
    conv2d(group)
    conv3d(group)
    conv_transpose1d(group)
    conv_transpose2d(group)
    conv_transpose3d(group)
    return group


def add(group, variant, x, weight, bias=True, gradgrad=False, **args):
    """A convolution of shapes `x` [N, C, ...] and `weight` [O, C / groups, ...]."""
    rank = len(x) - 2
    inputs = {"x": normal(*x), "weight": normal(*weight, scale=0.5)}
    if bias:
        inputs["bias"] = normal(weight[0])
    defaults = {"stride": [1] * rank, "padding": [0] * rank, "dilation": [1] * rank, "groups": 1}
    group.case(f"conv{rank}d", variant, CONV[rank], inputs, {**defaults, **args}, gradgrad=gradgrad)


def add_transpose(group, variant, x, weight, bias=True, **args):
    """A transposed convolution of shapes `x` [N, C, ...] and `weight` [C, O / groups, ...]."""
    rank = len(x) - 2
    inputs = {"x": normal(*x), "weight": normal(*weight, scale=0.5)}
    if bias:
        inputs["bias"] = normal(weight[1] * args.get("groups", 1))
    defaults = {
        "stride": [1] * rank,
        "padding": [0] * rank,
        "output_padding": [0] * rank,
        "groups": 1,
        "dilation": [1] * rank,
    }
    group.case(f"conv_transpose{rank}d", variant, CONV_TRANSPOSE[rank], inputs, {**defaults, **args})


def conv1d(group):
    add(group, "plain", (2, 3, 11), (5, 3, 3))
    add(group, "no_bias", (2, 3, 11), (5, 3, 3), bias=False)
    add(group, "stride2_pad1", (3, 2, 13), (3, 2, 3), stride=[2], padding=[1])
    add(group, "dilation3", (2, 2, 17), (3, 2, 3), dilation=[3], padding=[2])
    add(group, "groups3", (2, 3, 11), (6, 1, 5), groups=3, padding=[2])
    add(group, "pointwise", (2, 5, 7), (3, 5, 1))
    add(group, "long", (1, 2, 67), (3, 2, 7), stride=[3], padding=[3])


def conv2d(group):
    add(group, "plain", (2, 3, 7, 9), (5, 3, 3, 3))
    add(group, "no_bias", (2, 3, 7, 5), (5, 3, 3, 3), bias=False)
    add(group, "gradgrad", (2, 2, 5, 5), (3, 2, 3, 3), padding=[1, 1], stride=[2, 1], gradgrad=True)
    add(group, "stride2_pad1_groups2", (2, 4, 7, 5), (6, 2, 3, 3), stride=[2, 2], padding=[1, 1], groups=2)
    add(group, "dilation2", (1, 3, 9, 11), (2, 3, 3, 3), dilation=[2, 2])
    add(group, "asymmetric", (2, 3, 7, 9), (5, 3, 3, 2), stride=[2, 1], padding=[0, 2], dilation=[1, 2])
    add(group, "depthwise", (2, 5, 7, 7), (5, 1, 3, 3), padding=[1, 1], groups=5)
    add(group, "depthwise_twice", (2, 3, 5, 7), (6, 1, 3, 3), stride=[2, 2], padding=[1, 1], groups=3)
    add(group, "pointwise", (3, 5, 3, 7), (7, 5, 1, 1))
    add(group, "pointwise_stride2", (2, 3, 5, 7), (2, 3, 1, 1), stride=[2, 2])
    add(group, "whole_input", (3, 2, 5, 7), (5, 2, 5, 7))
    add(group, "wide_padding", (1, 2, 3, 5), (3, 2, 5, 5), padding=[4, 3])
    add(group, "stride_over_kernel", (2, 2, 8, 9), (3, 2, 2, 2), stride=[3, 3])
    add(group, "leftover", (1, 2, 10, 8), (3, 2, 3, 3), stride=[4, 3])
    add(group, "one_channel", (2, 1, 8, 8), (5, 1, 3, 3))
    add(group, "many_channels", (1, 33, 3, 5), (7, 33, 3, 3), padding=[1, 1])
    add(group, "many_outputs", (2, 3, 5, 5), (37, 3, 3, 3))
    add(group, "big_batch", (19, 2, 5, 3), (3, 2, 3, 2))
    add(group, "empty_batch", (0, 2, 5, 5), (3, 2, 3, 3))


def conv3d(group):
    add(group, "plain", (2, 2, 4, 5, 3), (3, 2, 3, 2, 3))
    add(
        group,
        "stride_pad_dilation",
        (1, 2, 5, 6, 7),
        (3, 2, 2, 3, 2),
        stride=[2, 1, 2],
        padding=[1, 1, 0],
        dilation=[1, 2, 3],
    )
    add(group, "groups2", (1, 4, 3, 5, 4), (2, 2, 2, 3, 3), bias=False, padding=[1, 1, 1], stride=[2, 2, 2], groups=2)
    add(group, "depthwise", (2, 3, 3, 4, 5), (3, 1, 2, 2, 2), groups=3)


def conv_transpose1d(group):
    add_transpose(group, "plain", (2, 3, 7), (3, 5, 3))
    add_transpose(group, "no_bias", (2, 3, 7), (3, 2, 3), bias=False, stride=[2])
    add_transpose(
        group, "stride3_pad1_output_padding2", (2, 3, 5), (3, 2, 5), stride=[3], padding=[1], output_padding=[2]
    )
    add_transpose(group, "dilation2_groups3", (1, 3, 7), (3, 2, 3), dilation=[2], groups=3, padding=[2])


def conv_transpose2d(group):
    add_transpose(group, "plain", (2, 3, 5, 4), (3, 5, 3, 3))
    add_transpose(group, "no_bias", (2, 3, 5, 4), (3, 2, 2, 2), bias=False, stride=[2, 2])
    add_transpose(
        group,
        "stride2_pad1_output_padding1",
        (2, 2, 4, 5),
        (2, 3, 3, 3),
        stride=[2, 2],
        padding=[1, 1],
        output_padding=[1, 1],
    )
    add_transpose(
        group,
        "asymmetric",
        (1, 3, 3, 5),
        (3, 2, 3, 2),
        stride=[3, 1],
        padding=[1, 0],
        output_padding=[2, 0],
        dilation=[1, 2],
    )
    add_transpose(group, "groups2", (2, 4, 3, 5), (4, 3, 3, 3), stride=[2, 1], padding=[1, 1], groups=2)
    add_transpose(group, "depthwise", (1, 5, 3, 4), (5, 1, 3, 3), stride=[2, 2], groups=5)
    add_transpose(group, "dilation2", (1, 2, 4, 5), (2, 3, 3, 3), padding=[2, 1], dilation=[2, 2])


def conv_transpose3d(group):
    add_transpose(group, "plain", (1, 2, 3, 2, 4), (2, 3, 2, 3, 2))
    add_transpose(
        group,
        "stride_pad_groups2",
        (1, 4, 2, 3, 3),
        (4, 1, 3, 2, 3),
        stride=[2, 1, 2],
        padding=[1, 0, 1],
        output_padding=[1, 0, 0],
        groups=2,
    )
    add_transpose(
        group, "dilation", (1, 2, 3, 2, 3), (2, 2, 2, 2, 3), bias=False, dilation=[2, 1, 2], padding=[0, 1, 1]
    )
