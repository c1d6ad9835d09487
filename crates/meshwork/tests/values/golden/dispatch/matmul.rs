//! Matrix products and the linear layer.

use crate::golden::case::Case;
use meshwork::Tensor;

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    let result = match case.op.as_str() {
        "matmul" => {
            let turned = |x: &Tensor, turn: bool| if turn { x.transpose(-2, -1) } else { x.clone() };
            let a = turned(case.input("a"), case.flag("transpose_a"));
            a.matmul(&turned(case.input("b"), case.flag("transpose_b")))
        }
        "linear" => case.input("x").linear(case.input("weight"), case.maybe_input("bias")),
        _ => return None,
    };
    Some(vec![result])
}
