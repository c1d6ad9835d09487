"""Casts between all dtypes, and some operations in dtypes other than f32."""

import math

import torch
import torch.nn.functional as F
from group import Group
from sample import away, booleans, distinct, integers, normal, uniform, whole

DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "u8": torch.uint8,
    "bool": torch.bool,
}


def make():
    group = Group("dtype")
    casts(group)
    rounding(group)
    whole_numbers(group)
    floating_point(group)
    return group


def cast(x, to):
    return x.to(DTYPES[to])


def casts(group):
    """Values that both dtypes can hold, up to rounding: whole and fractional, negative where the target allows."""
    for source, source_dtype in DTYPES.items():
        for target in DTYPES:
            values = torch.tensor([0.0, 1.0, 2.0, 3.0, 7.0, 100.0, 127.0, 200.0, 255.0, 0.5, 0.99, 1.5, 2.75, 97.3])
            if "u8" not in (source, target):
                values = torch.cat([values, -values])
            inputs = {"x": values.to(source_dtype)}
            group.case("cast", f"{source}_to_{target}", cast, inputs, {"to": target}, dtype=None, grad=[])

    # The gradient of a cast is cast back.
    for source in ("f64", "f32", "f16", "bf16"):
        for target in ("f64", "f32", "f16", "bf16"):
            inputs = {"x": uniform_in(DTYPES[source])}
            group.case("cast", f"{source}_to_{target}_gradient", cast, inputs, {"to": target}, dtype=None)


def uniform_in(dtype):
    return lambda generator: uniform(-2.0, 2.0, 3, 5)(generator).to(dtype)


def rounding(group):
    """What does not fit: halfway cases, overflow, subnormal numbers, infinities, NaN, wrapped integers."""

    def add(source, target, variant, values):
        x = torch.tensor(values, dtype=DTYPES[source])
        group.case("cast", f"{source}_to_{target}_{variant}", cast, {"x": x}, {"to": target}, dtype=None, grad=[])

    specials = [0.0, -0.0, math.inf, -math.inf, math.nan]
    for source in ("f64", "f32", "f16", "bf16"):
        for target in ("f64", "f32", "f16", "bf16", "bool"):
            add(source, target, "special", specials)
    # f16 has 11 bits: halves to even, at 1 and at 2048; the largest number, and what rounds to infinity.
    ulp = 2.0**-10
    halves = [1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, 2049.0, 2051.0, -2049.0]
    for source in ("f32", "f64"):
        add(source, "f16", "halves", halves)
        add(source, "f16", "overflow", [65504.0, 65519.0, 65520.0, -65520.0, 1e6])
        add(source, "f16", "subnormal", [2.0**-14, 2.0**-15, 1.5 * 2.0**-24, 2.0**-24, 2.0**-25, 1e-5, -3e-7, 1e-9])
    # bf16 has 8 bits, and the exponents of f32.
    ulp = 2.0**-7
    halves = [1 + ulp / 2, 1 + 1.5 * ulp, 1 + 0.51 * ulp, 257.0, 259.0, -257.0]
    for source in ("f32", "f64"):
        add(source, "bf16", "halves", halves)
        add(source, "bf16", "overflow", [3.38e38, 3.4e38, -3.4e38])
        add(source, "bf16", "subnormal", [2.0**-126, 2.0**-127, 1e-39, -3e-40])
    add("f64", "f32", "rounding", [0.1, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 1e39, -1e39, 1e-40, 1e-46])
    add("f16", "f32", "subnormal", [2.0**-24, 3 * 2.0**-24, 2.0**-15, -(2.0**-24)])
    add("i64", "f32", "rounding", [2**24 + 1, 2**24 + 3, -(2**24) - 1, 2**53 + 1, 2**62, -(2**63)])
    add("i64", "f64", "rounding", [2**53 + 1, 2**53 + 3, 2**62, -(2**63)])
    add("i32", "f32", "rounding", [2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31)])
    add("i64", "i32", "wrap", [2**31, -(2**31) - 1, 2**32 + 5, 2**40 - 1])
    add("i32", "u8", "wrap", [-1, 256, 300, -300])
    add("i64", "bool", "nonzero", [0, 1, -1, 2**32])
    add("f32", "bool", "nonzero", [0.0, -0.0, 1e-30, -2.0, 0.5])


def whole_numbers(group):
    """Integer arithmetic is exact and wraps."""
    binary = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "minimum": torch.minimum,
        "maximum": torch.maximum,
        "eq": torch.eq,
        "lt": torch.lt,
    }
    for name in ("i64", "i32"):
        dtype = DTYPES[name]
        for op, function in binary.items():
            inputs = {"x": integers(-9, 10, 7, 3, dtype=dtype), "y": integers(-9, 10, 3, dtype=dtype)}
            group.case(op, name, lambda x, y, function=function: function(x, y), inputs)
        limits = torch.iinfo(dtype)
        inputs = {
            "x": torch.tensor([limits.max, limits.min, limits.max], dtype=dtype),
            "y": torch.tensor([1, -1, limits.max], dtype=dtype),
        }
        group.case("add", f"{name}_wrap", lambda x, y: x + y, inputs)
        group.case("mul", f"{name}_wrap", lambda x, y: x * y, inputs)
        group.case("neg", name, lambda x: -x, {"x": integers(-9, 10, 7, dtype=dtype)})
        group.case("abs", name, lambda x: x.abs(), {"x": integers(-9, 10, 7, dtype=dtype)})
        inputs = {
            "condition": booleans(7, 3),
            "x": integers(-9, 10, 7, 3, dtype=dtype),
            "y": integers(-9, 10, 3, dtype=dtype),
        }
        group.case("where", name, lambda condition, x, y: torch.where(condition, x, y), inputs)

    def sum_(x, dims, keepdim):
        return x.sum(dims, keepdim)

    args = {"dims": [1], "keepdim": False}
    group.case("sum", "i64", sum_, {"x": integers(-99, 100, 3, 67)}, args)
    group.case("amax", "i64", lambda x, dims, keepdim: x.amax(dims, keepdim), {"x": integers(-99, 100, 3, 67)}, args)
    group.case("cumsum", "i64", lambda x, dim: x.cumsum(dim), {"x": integers(-99, 100, 3, 7)}, {"dim": 1})
    args = {"dim": 1, "keepdim": False}
    group.case("argmax", "i64", lambda x, dim, keepdim: x.argmax(dim, keepdim), {"x": integers(-9, 10, 3, 67)}, args)


def floating_point(group):
    """Evaluated in f64 and rounded to the stored dtype: one rounding is the best that any implementation can do."""
    for name in ("f64", "f16", "bf16"):
        dtype = DTYPES[name]

        def add(op, function, inputs, args=None, grad=None):
            group.case(op, name, function, inputs, args, grad=grad, dtype=dtype)

        two = lambda: {"x": normal(7, 13), "y": away(13, gap=0.5)}
        add("add", lambda x, y: x + y, two())
        add("sub", lambda x, y: x - y, two())
        add("mul", lambda x, y: x * y, two())
        add("div", lambda x, y: x / y, two())
        add("maximum", lambda x, y: torch.maximum(x, y), {"x": distinct(3, 5), "y": distinct(5, offset=0.05)})
        add("lt", lambda x, y: x < y, {"x": whole(0, 3, 3, 5), "y": whole(0, 3, 5)}, grad=[])
        add("exp", lambda x: x.exp(), {"x": normal(5, 7)})
        add("log", lambda x: x.log(), {"x": uniform(0.1, 4.0, 5, 7)})
        add("sqrt", lambda x: x.sqrt(), {"x": uniform(0.1, 4.0, 5, 7)})
        add("tanh", lambda x: x.tanh(), {"x": normal(5, 7)})
        add("sigmoid", lambda x: x.sigmoid(), {"x": normal(5, 7)})
        add("erf", lambda x: x.erf(), {"x": normal(5, 7)})
        add("relu", lambda x: x.relu(), {"x": away(5, 7)})
        add("sum", lambda x, dims, keepdim: x.sum(dims, keepdim), {"x": normal(3, 67)}, {"dims": [1], "keepdim": False})
        plain = {"transpose_a": False, "transpose_b": False}
        add("matmul", lambda a, b, **_: a @ b, {"a": normal(5, 19), "b": normal(19, 7)}, plain)
        add("softmax", lambda x, dim: F.softmax(x, dim), {"x": normal(5, 7)}, {"dim": 1})

    def layer_norm(x, weight, bias, normalized_shape, eps):
        return F.layer_norm(x, normalized_shape, weight, bias, eps)

    def conv2d(x, weight, bias, **args):
        return F.conv2d(x, weight, bias, **args)

    def cross_entropy(x, target, **args):
        return F.cross_entropy(x, target, **args)

    f64 = torch.float64
    inputs = {"x": normal(3, 7), "weight": normal(7), "bias": normal(7)}
    group.case("layer_norm", "f64", layer_norm, inputs, {"normalized_shape": [7], "eps": 1e-5}, dtype=f64)
    inputs = {"x": normal(2, 3, 5, 4), "weight": normal(2, 3, 3, 3), "bias": normal(2)}
    args = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1}
    group.case("conv2d", "f64", conv2d, inputs, args, dtype=f64)
    inputs = {"x": normal(5, 3), "target": integers(0, 3, 5)}
    args = {"ignore_index": -100, "label_smoothing": 0.0, "reduction": "mean"}
    group.case("cross_entropy", "f64", cross_entropy, inputs, args, grad=["x"], dtype=f64)
