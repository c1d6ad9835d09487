//! Adding up what devices computed.

use crate::Device;
use crate::tensor::Tensor;
use meshwork_graph::batch;
use std::ops::Range;

/// Adds tensors of different devices, and puts the sum in the place of each, on its device.
///
/// The tensors are given in the order of the parts of the batch that they were computed from, as [`crate::parallel::scatter`]
/// gives them; their sum is then that of the whole batch, bit for bit. Tensors that are computed from no part of a batch
/// are added in pairs of neighbours, then pairs of pairs.
///
/// # Panics
/// When shapes or dtypes differ, some tensors are parts of a batch and others are not, or parts are missing or out of
/// order.
#[track_caller]
pub fn all_reduce(tensors: &mut [Tensor]) {
    let Some(first) = tensors.first() else { return };
    for (i, tensor) in tensors.iter().enumerate() {
        let same = tensor.shape() == first.shape() && tensor.dtype() == first.dtype();
        assert!(same, "all_reduce: tensor {i} is {tensor:?}, and tensor 0 {first:?}");
    }
    let total = total(tensors);
    let mut on: Vec<(Device, Tensor)> = Vec::new();
    for tensor in tensors {
        let device = tensor.device();
        let known = on.iter().find(|(other, _)| *other == device).map(|(_, total)| total.clone());
        *tensor = known.unwrap_or_else(|| {
            on.push((device.clone(), total.to(&device)));
            on.last().expect("just pushed").1.clone()
        });
    }
}

#[track_caller]
fn total(tensors: &[Tensor]) -> Tensor {
    let parts: Vec<(Range<usize>, usize)> = tensors.iter().filter_map(Tensor::part_of_batch).collect();
    let values = tensors.iter().map(|tensor| tensor.with_part(None));
    let add = |left: Tensor, right: Tensor| &left + &right.to(&left.device());
    let Some(&(_, size)) = parts.first() else {
        return batch::sum_of_neighbours(values, add).expect("at least one tensor");
    };
    let of_batch = |part: &Tensor| part.part_of_batch().is_some_and(|(_, batch)| batch == size);
    assert!(
        tensors.iter().all(of_batch),
        "all_reduce: some tensors are parts of a batch of {size}, and others are not"
    );
    let roots = parts.into_iter().map(|(samples, _)| samples).zip(values);
    batch::merge(size, roots, add).expect("a batch that is not empty")
}
