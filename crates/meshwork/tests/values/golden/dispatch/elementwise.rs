//! Arithmetic, comparisons, functions of one element, casts.

use crate::golden::case::Case;
use meshwork::tensor::where_;
use meshwork::{DType, Tensor};

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    let result = match case.inputs.len() {
        1 => one(case),
        2 => two(case),
        _ => (case.op == "where").then(|| where_(case.input("condition"), case.input("x"), case.input("y"))),
    };
    result.map(|tensor| vec![tensor])
}

fn one(case: &Case) -> Option<Tensor> {
    let x = case.maybe_input("x")?;
    Some(match case.op.as_str() {
        "add_scalar" => x + case.float("value"),
        "sub_scalar" => x - case.float("value"),
        "mul_scalar" => x * case.float("value"),
        "div_scalar" => x / case.float("value"),
        "pow_scalar" => x.powf(case.float("exponent")),
        "clamp" => x.clamp(case.maybe_float("min"), case.maybe_float("max")),
        "cast" => x.to_dtype(dtype(case.text("to"))),
        "neg" => -x,
        "exp" => x.exp(),
        "log" => x.log(),
        "sqrt" => x.sqrt(),
        "rsqrt" => x.rsqrt(),
        "reciprocal" => x.reciprocal(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tanh" => x.tanh(),
        "sigmoid" => x.sigmoid(),
        "log_sigmoid" => x.log_sigmoid(),
        "erf" => x.erf(),
        "log1p" => x.log1p(),
        "expm1" => x.expm1(),
        "abs" => x.abs(),
        "relu" => x.relu(),
        "silu" => x.silu(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "round" => x.round(),
        "sign" => x.sign(),
        "logical_not" => x.logical_not(),
        "gelu" => match case.text("approximate") {
            "tanh" => x.gelu_tanh(),
            _ => x.gelu(),
        },
        "softplus" => softplus(x, case.float("beta"), case.float("threshold")),
        _ => return None,
    })
}

/// PyTorch's softplus: sharpened by `beta`, and the identity beyond `threshold`.
fn softplus(x: &Tensor, beta: f64, threshold: f64) -> Tensor {
    let sharp = x * beta;
    where_(&sharp.gt(threshold), x, &(sharp.softplus() / beta))
}

fn two(case: &Case) -> Option<Tensor> {
    let (x, y) = (case.maybe_input("x")?, case.maybe_input("y")?);
    Some(match case.op.as_str() {
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "div" => x / y,
        "pow" => x.pow(y),
        "minimum" => x.minimum(y),
        "maximum" => x.maximum(y),
        "eq" => x.eq(y),
        "ne" => x.ne(y),
        "lt" => x.lt(y),
        "le" => x.le(y),
        "gt" => x.gt(y),
        "ge" => x.ge(y),
        "logical_and" => x.logical_and(y),
        "logical_or" => x.logical_or(y),
        "logical_xor" => x.logical_xor(y),
        _ => return None,
    })
}

fn dtype(name: &str) -> DType {
    DType::ALL.into_iter().find(|d| d.name() == name).unwrap_or_else(|| panic!("dtype {name}"))
}
