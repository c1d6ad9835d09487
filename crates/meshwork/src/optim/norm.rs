//! Norms of whole tensors, and the ratio of norms by which layer-wise optimizers scale a step.

use crate::DType;
use crate::tensor::{Tensor, where_};

/// The sum of all squares, a scalar of at least f32. It is one canonical sum: no layout changes a bit of it.
pub(super) fn sum_of_squares(tensor: &Tensor) -> Tensor {
    tensor.to_dtype(tensor.dtype().promote(DType::F32)).square().sum(..)
}

/// The Euclidean norm of all elements, a scalar of at least f32.
pub(super) fn norm(tensor: &Tensor) -> Tensor {
    sum_of_squares(tensor).sqrt()
}

/// `ratio` where the norms of weight and update are both above 0, else `one`: a weight that is zero must be able to
/// leave zero, and an update that is zero has no direction to scale.
pub(super) fn trust_ratio(weight: &Tensor, update: &Tensor, ratio: &Tensor, one: &Tensor) -> Tensor {
    where_(&weight.minimum(update).gt(0.0), ratio, one)
}
