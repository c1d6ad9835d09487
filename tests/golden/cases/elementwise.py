"""Operations that look at one element at a time: arithmetic, comparisons, logic, functions of one value."""

import math

import torch
import torch.nn.functional as F
from group import Group
from sample import away, booleans, distinct, normal, uniform, whole

# Operand shapes of two-operand cases: how broadcasting pairs them.
SHAPES = {
    "same": ((3, 5), (3, 5)),
    "tail": ((131,), (131,)),
    "row": ((7, 13), (13,)),
    "column": ((7, 13), (7, 1)),
    "both": ((3, 1, 5), (7, 1)),
    "scalar": ((3, 5), ()),
    "two_scalars": ((), ()),
    "empty": ((0, 3), (3,)),
}

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 100.0, -100.0, 1e-20, -1e-20])


def make():
    group = Group("elementwise")
    arithmetic(group)
    with_scalar(group)
    extremes(group)
    comparisons(group)
    logic(group)
    where(group)
    powers(group)
    functions_of_one_value(group)
    return group


def arithmetic(group):
    operations = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "div": lambda x, y: x / y,
    }
    for op, function in operations.items():
        for variant, (left, right) in SHAPES.items():
            inputs = {"x": normal(*left), "y": away(*right, gap=0.5)}
            group.case(op, variant, function, inputs, gradgrad=(op == "div" and variant == "column"))


def with_scalar(group):
    operations = {
        "add_scalar": lambda x, value: x + value,
        "sub_scalar": lambda x, value: x - value,
        "mul_scalar": lambda x, value: x * value,
        "div_scalar": lambda x, value: x / value,
    }
    for op, function in operations.items():
        group.case(op, "plain", function, {"x": normal(3, 7)}, {"value": 2.5})


def extremes(group):
    for op, function in {"minimum": torch.minimum, "maximum": torch.maximum}.items():
        call = lambda x, y, function=function: function(x, y)
        for variant in ("same", "tail", "both"):
            left, right = SHAPES[variant]
            inputs = {"x": distinct(*left), "y": distinct(*right, offset=0.05)}
            group.case(op, variant, call, inputs)
        # A tie gives half of the gradient to each side.
        group.case(op, "ties", call, {"x": whole(0, 2, 3, 5), "y": whole(0, 2, 3, 5)})
        # NaN wins on either side.
        group.case(op, "special", call, {"x": SPECIAL, "y": SPECIAL.flip(0)}, grad=[])

    def clamp(x, min, max):
        return x.clamp(min, max)

    bounds = {"both": (-0.5, 1.25), "only_min": (-0.5, None), "only_max": (None, 1.25)}
    for variant, (low, high) in bounds.items():
        inputs = {"x": away(5, 13, points=(-0.5, 1.25))}
        group.case("clamp", variant, clamp, inputs, {"min": low, "max": high})
    # The gradient passes at the bounds themselves (in PyTorch 1.13; it is 0 there in 2.15).
    group.case("clamp", "at_bounds", clamp, {"x": whole(-2, 3, 3, 7)}, {"min": -1.0, "max": 1.0})
    group.case("clamp", "special", clamp, {"x": SPECIAL}, {"min": -1.0, "max": 1.0}, grad=[])


def comparisons(group):
    operations = {"eq": torch.eq, "ne": torch.ne, "lt": torch.lt, "le": torch.le, "gt": torch.gt, "ge": torch.ge}
    for op, function in operations.items():
        call = lambda x, y, function=function: function(x, y)
        for variant in ("same", "both", "scalar"):
            left, right = SHAPES[variant]
            group.case(op, variant, call, {"x": whole(0, 3, *left), "y": whole(0, 3, *right)})
        group.case(op, "special", call, {"x": SPECIAL, "y": torch.cat([SPECIAL[1:], SPECIAL[:1]])})


def logic(group):
    operations = {
        "logical_and": torch.logical_and,
        "logical_or": torch.logical_or,
        "logical_xor": torch.logical_xor,
    }
    for op, function in operations.items():
        call = lambda x, y, function=function: function(x, y)
        for variant in ("same", "both"):
            left, right = SHAPES[variant]
            group.case(op, variant, call, {"x": booleans(*left), "y": booleans(*right)})
    group.case("logical_not", "plain", lambda x: torch.logical_not(x), {"x": booleans(3, 5)})


def where(group):
    shapes = {
        "same": ((3, 5), (3, 5), (3, 5)),
        "broadcast": ((7, 1), (3, 1, 5), (5,)),
        "scalars": ((3, 5), (), ()),
    }
    for variant, (condition, x, y) in shapes.items():
        inputs = {"condition": booleans(*condition), "x": normal(*x), "y": normal(*y)}
        group.case("where", variant, lambda condition, x, y: torch.where(condition, x, y), inputs)


def powers(group):
    def pow(x, y):
        return x**y

    for variant in ("same", "row", "both", "two_scalars"):
        left, right = SHAPES[variant]
        inputs = {"x": uniform(0.3, 3.0, *left), "y": normal(*right, scale=1.5)}
        group.case("pow", variant, pow, inputs, gradgrad=variant == "same")
    # The gradient of the exponent is 0 where the base is 0.
    inputs = {"x": torch.tensor([0.0, 0.0, 0.0, 2.0]), "y": torch.tensor([1.0, 2.0, 3.0, 0.0])}
    group.case("pow", "zero_base", pow, inputs)
    inputs = {"x": torch.tensor([-2.0, -1.5, -0.5, -3.0]), "y": torch.tensor([2.0, 3.0, -1.0, 0.0])}
    group.case("pow", "negative_base", pow, inputs, grad=["x"])

    def pow_scalar(x, exponent):
        return x**exponent

    for exponent, text in ((2.0, "2"), (3.0, "3"), (-1.0, "minus_1"), (-2.0, "minus_2"), (0.0, "0"), (1.0, "1")):
        inputs = {"x": away(5, 7, gap=0.3)}
        group.case("pow_scalar", text, pow_scalar, inputs, {"exponent": exponent}, gradgrad=exponent == 3.0)
    for exponent, text in ((0.5, "half"), (-0.5, "minus_half"), (1.7, "1_7")):
        group.case("pow_scalar", text, pow_scalar, {"x": uniform(0.2, 4.0, 5, 7)}, {"exponent": exponent})


def functions_of_one_value(group):
    anywhere = {"plain": normal(3, 5, scale=2.0), "tail": normal(131, scale=2.0), "zero_dim": normal()}
    nonzero = {"plain": away(3, 5), "tail": away(131)}
    positive = {"plain": uniform(0.1, 4.0, 3, 5), "tail": uniform(0.1, 4.0, 131), "wide": uniform(10.0, 1e6, 7, 13)}
    special = {"special": SPECIAL}
    functions = {
        "neg": (torch.neg, {**anywhere, **special}),
        "exp": (torch.exp, {**anywhere, **special, "wide": uniform(-80.0, 80.0, 7, 13)}),
        "log": (torch.log, {**positive, **special}),
        "sqrt": (torch.sqrt, {**positive, **special}),
        "rsqrt": (torch.rsqrt, {**positive, **special}),
        "reciprocal": (torch.reciprocal, {**nonzero, **special}),
        "sin": (torch.sin, {**anywhere, "wide": uniform(-100.0, 100.0, 7, 13)}),
        "cos": (torch.cos, {**anywhere, "wide": uniform(-100.0, 100.0, 7, 13)}),
        "tanh": (torch.tanh, {**anywhere, **special, "wide": uniform(-20.0, 20.0, 7, 13)}),
        "sigmoid": (torch.sigmoid, {**anywhere, **special, "wide": uniform(-40.0, 40.0, 7, 13)}),
        "log_sigmoid": (F.logsigmoid, {**anywhere, **special, "wide": uniform(-40.0, 40.0, 7, 13)}),
        "erf": (torch.erf, {**anywhere, **special, "wide": uniform(-6.0, 6.0, 7, 13)}),
        "log1p": (torch.log1p, {**positive, **special, "small": uniform(-1e-3, 1e-3, 3, 5)}),
        "expm1": (torch.expm1, {**anywhere, **special, "small": uniform(-1e-3, 1e-3, 3, 5)}),
        "abs": (torch.abs, {**nonzero, **special, "zero": torch.tensor([0.0, -0.0, 1.0])}),
        "relu": (torch.relu, {**nonzero, **special, "zero": torch.tensor([0.0, -0.0, 1.0])}),
        "silu": (F.silu, {**anywhere, "wide": uniform(-40.0, 40.0, 7, 13)}),
    }
    for op, (function, variants) in functions.items():
        for variant, recipe in variants.items():
            group.case(
                op,
                variant,
                lambda x, function=function: function(x),
                {"x": recipe},
                grad=[] if variant == "special" else None,
                gradgrad=(op == "tanh" and variant == "plain"),
            )

    for approximate in ("none", "tanh"):
        for variant, recipe in {"plain": normal(3, 5), "wide": uniform(-9.0, 9.0, 7, 13)}.items():
            group.case(
                "gelu",
                f"{variant}_{approximate}",
                lambda x, approximate: F.gelu(x, approximate=approximate),
                {"x": recipe},
                {"approximate": approximate},
                gradgrad=variant == "plain",
            )

    def softplus(x, beta, threshold):
        return F.softplus(x, beta, threshold)

    group.case("softplus", "plain", softplus, {"x": normal(3, 5, scale=2.0)}, {"beta": 1.0, "threshold": 20.0})
    group.case("softplus", "beta", softplus, {"x": normal(3, 5, scale=2.0)}, {"beta": 2.5, "threshold": 20.0})
    group.case("softplus", "wide", softplus, {"x": uniform(-40.0, 40.0, 7, 13)}, {"beta": 1.0, "threshold": 20.0})

    # Steps: no gradient but 0, so none is stored. Halves round to even.
    halves = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, 0.49999997, 8388609.0])
    for op, function in {"floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "sign": torch.sign}.items():
        variants = {"plain": uniform(-4.0, 4.0, 5, 13), "halves": halves, "special": SPECIAL}
        for variant, recipe in variants.items():
            group.case(op, variant, lambda x, function=function: function(x), {"x": recipe}, grad=[])
