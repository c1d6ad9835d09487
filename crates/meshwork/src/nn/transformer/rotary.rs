//! Rotary positions (Su et al., 2021), with the pairs of features that Llama's weights have: i and i + D/2.

use crate::DType;
use crate::tensor::{Tensor, concat, counted, policy};

/// Turns the features of queries or keys `[B, H, T, D]` by the angles of their positions (i64 `[T]`): pair i of D/2 by
/// position · theta^(−2i / D) radians. The angles are computed in f64.
#[track_caller]
pub fn rotary(x: &Tensor, positions: &Tensor, theta: f64) -> Tensor {
    let (half, dtype) = (x.size(-1) / 2, x.dtype());
    let [x] = policy!("rotary").cast([x]);
    let frequency = (counted(half, DType::F64) * (-theta.ln() / half as f64)).exp();
    let angle = positions.to_dtype(DType::F64).unsqueeze(-1) * &frequency;
    let [cos, sin] = [angle.cos(), angle.sin()].map(|turn| turn.to_dtype(x.dtype()));
    let (a, b) = (x.narrow(-1, 0, half), x.narrow(-1, half, half));
    let turned = [&a * &cos - &b * &sin, &b * &cos + &a * &sin].map(|half| half.to_dtype(dtype));
    concat(&[&turned[0], &turned[1]], -1)
}
