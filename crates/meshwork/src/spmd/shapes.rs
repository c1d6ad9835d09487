//! How a dimension is divided among ranks, and how tensors lie in buffers.

use crate::tensor::{Element, Tensor, concat};
use std::ops::Range;

/// The part of a dimension that a rank has: as even as it goes, the first ranks having one more.
pub fn part(size: usize, ranks: usize, rank: usize) -> Range<usize> {
    let (each, more) = (size / ranks, size % ranks);
    let start = |rank: usize| rank * each + rank.min(more);
    start(rank)..start(rank + 1)
}

/// The sizes of the parts of all ranks.
pub fn parts(size: usize, ranks: usize) -> Vec<usize> {
    (0..ranks).map(|rank| part(size, ranks, rank).len()).collect()
}

/// A shape with another size of one dimension.
pub fn with_size(shape: &[usize], dim: usize, size: usize) -> Vec<usize> {
    let mut shape = shape.to_vec();
    shape[dim] = size;
    shape
}

/// Elements of a tensor for each index of a dimension.
pub fn stride(shape: &[usize], dim: usize) -> usize {
    with_size(shape, dim, 1).iter().product()
}

/// The elements of a tensor part by part, each part row-major.
pub fn elements_of_parts<T: Element>(tensor: &Tensor, dim: usize, sizes: &[usize]) -> Vec<T> {
    if dim == 0 {
        return tensor.to_vec();
    }
    let parts: Vec<Tensor> = tensor.split(sizes, dim as isize).iter().map(|part| part.flatten(0)).collect();
    concat(&parts.iter().collect::<Vec<_>>(), 0).to_vec()
}

/// The tensor of these parts along a dimension, each of them row-major.
pub fn of_parts<T: Element>(values: &[T], shape: &[usize], dim: usize, sizes: &[usize]) -> Tensor {
    if dim == 0 {
        return Tensor::from_slice(values, &with_size(shape, dim, sizes.iter().sum()));
    }
    let mut rest = values;
    let parts: Vec<Tensor> = sizes
        .iter()
        .map(|&size| {
            let (part, others) = rest.split_at(size * stride(shape, dim));
            rest = others;
            Tensor::from_slice(part, &with_size(shape, dim, size))
        })
        .collect();
    concat(&parts.iter().collect::<Vec<_>>(), dim as isize)
}

/// `by_dtype!(dtype, T => expression)`: the expression with `T` as the type of the elements that are moved; bool is not
/// among them.
macro_rules! by_dtype {
    ($dtype:expr, $name:ident => $body:expr) => {
        by_dtype!(@ $dtype, $name, $body, F64 f64, F32 f32, F16 half::f16, BF16 half::bf16, I64 i64, I32 i32, U8 u8)
    };
    (@ $dtype:expr, $name:ident, $body:expr, $($variant:ident $type:ty),*) => {
        match $dtype {
            $($crate::DType::$variant => {
                type $name = $type;
                $body
            })*
            $crate::DType::Bool => unreachable!("bool is moved as u8"),
        }
    };
}

pub(super) use by_dtype;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_a_dimension_and_differ_by_one_at_most() {
        for size in 0..20 {
            for ranks in 1..7 {
                let covered: Vec<usize> = (0..ranks).flat_map(|rank| part(size, ranks, rank)).collect();
                assert_eq!(covered, (0..size).collect::<Vec<_>>());
                let sizes = parts(size, ranks);
                assert!(sizes[0] - sizes[ranks - 1] <= 1);
            }
        }
    }

    #[test]
    fn parts_come_back_together() {
        let x = Tensor::from_slice(&(0..30).collect::<Vec<i32>>(), &[2, 5, 3]);
        for (dim, sizes) in [(0, vec![1, 1]), (1, vec![2, 0, 3]), (2, vec![1, 2])] {
            let values = elements_of_parts::<i32>(&x, dim, &sizes);
            assert_eq!(of_parts(&values, x.shape(), dim, &sizes).to_vec::<i32>(), x.to_vec::<i32>());
        }
    }
}
