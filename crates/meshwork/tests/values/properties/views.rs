//! Random views: the same elements in other places.

use super::array::Array;
use meshwork::Tensor;
use proptest::prelude::*;

/// A view of a tensor of any shape; what does not fit is folded into what does.
#[derive(Clone, Debug)]
pub enum View {
    Rotate(usize),
    Swap(usize, usize),
    Flip(usize),
    Slice { dim: usize, start: usize, stop: usize, step: usize },
    Expand(usize, usize),
}

pub fn view() -> impl Strategy<Value = View> {
    prop_oneof![
        (0usize..4).prop_map(View::Rotate),
        (0usize..4, 0usize..4).prop_map(|(a, b)| View::Swap(a, b)),
        (0usize..4).prop_map(View::Flip),
        (0usize..4, 0usize..4, 0usize..6, 1usize..4).prop_map(|(dim, start, stop, step)| View::Slice {
            dim,
            start,
            stop,
            step
        }),
        (0usize..5, 0usize..4).prop_map(|(dim, size)| View::Expand(dim, size)),
    ]
}

/// Sizes from 0 to 5, up to four of them.
pub fn shape() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(prop_oneof![1 => Just(0usize), 3 => Just(1usize), 8 => 2usize..6], 0..4)
}

impl View {
    /// The view of both.
    pub fn apply(&self, tensor: Tensor, array: Array) -> (Tensor, Array) {
        let rank = array.shape.len();
        match *self {
            View::Expand(dim, size) => {
                let dim = dim % (rank + 1);
                let raised = tensor.unsqueeze(dim as isize);
                let mut shape = array.shape.clone();
                shape.insert(dim, size);
                let wide = raised.broadcast_to(&shape);
                let without = |index: &[usize]| [&index[..dim], &index[dim + 1..]].concat();
                (wide, Array::of(&shape, |index| array.at(&without(index))))
            }
            _ if rank == 0 => (tensor, array),
            View::Rotate(by) => {
                let order: Vec<usize> = (0..rank).map(|d| (d + by) % rank).collect();
                permuted(tensor, array, &order)
            }
            View::Swap(a, b) => {
                let mut order: Vec<usize> = (0..rank).collect();
                order.swap(a % rank, b % rank);
                permuted(tensor, array, &order)
            }
            View::Flip(dim) => {
                let dim = dim % rank;
                let flipped = Array::of(&array.shape, |index| {
                    let mut from = index.to_vec();
                    from[dim] = array.shape[dim] - 1 - from[dim];
                    array.at(&from)
                });
                (tensor.flip(&[dim as isize]), flipped)
            }
            View::Slice { dim, start, stop, step } => {
                let dim = dim % rank;
                let picked: Vec<usize> = (start..stop.min(array.shape[dim])).step_by(step).collect();
                let mut shape = array.shape.clone();
                shape[dim] = picked.len();
                let sliced = Array::of(&shape, |index| {
                    let mut from = index.to_vec();
                    from[dim] = picked[from[dim]];
                    array.at(&from)
                });
                (tensor.slice(dim as isize, Some(start as isize), Some(stop as isize), step), sliced)
            }
        }
    }
}

fn permuted(tensor: Tensor, array: Array, order: &[usize]) -> (Tensor, Array) {
    let dims: Vec<isize> = order.iter().map(|&d| d as isize).collect();
    let shape: Vec<usize> = order.iter().map(|&d| array.shape[d]).collect();
    let turned = Array::of(&shape, |index| {
        let mut from = vec![0; order.len()];
        for (to, &d) in order.iter().enumerate() {
            from[d] = index[to];
        }
        array.at(&from)
    });
    (tensor.permute(&dims), turned)
}

/// A tensor under up to three views, and what its elements must be.
pub fn viewed() -> impl Strategy<Value = (Tensor, Array)> {
    (shape(), prop::collection::vec(view(), 0..4), any::<u64>()).prop_map(|(shape, views, seed)| {
        let array = Array::numbered(&shape, seed);
        views.iter().fold((array.tensor(), array), |(tensor, array), view| view.apply(tensor, array))
    })
}
