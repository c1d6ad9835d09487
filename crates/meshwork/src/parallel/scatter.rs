//! Splitting a batch over devices.

use crate::Device;
use crate::tensor::{Part, Tensor};
use meshwork_graph::batch;
use std::ops::Range;

/// A part of a tensor on one of several devices.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The position of the device in the list.
    pub device: usize,
    /// The samples: positions in dimension 0 of the whole.
    pub samples: Range<usize>,
    /// Their values, on the device.
    pub value: Tensor,
}

/// Samples and their labels on one of several devices.
#[derive(Clone, Debug)]
pub struct Shard {
    /// The position of the device in the list.
    pub device: usize,
    /// The samples.
    pub x: Tensor,
    /// Their labels.
    pub y: Tensor,
}

/// Splits dimension 0 of a batch evenly over devices, in order. Cuts lie between the blocks in which sums over the batch
/// are added; a device gets one piece, or several where its share is no sub-tree of these sums (for instance a third of
/// the batch), or none where there are more devices than blocks.
///
/// # Panics
/// When there is no device, or the tensor has no dimension.
#[track_caller]
pub fn scatter(batch: &Tensor, devices: &[Device]) -> Vec<Piece> {
    scatter_weighted(batch, devices, &vec![1.0; devices.len()])
}

/// As [`scatter`], with shares in the ratio of `weights`: for instance the speeds that were measured for the devices.
///
/// # Panics
/// As [`scatter`], and when there is not one weight for each device, one is negative or not finite, or all are 0.
#[track_caller]
pub fn scatter_weighted(batch: &Tensor, devices: &[Device], weights: &[f64]) -> Vec<Piece> {
    assert!(!devices.is_empty(), "a batch is scattered over at least one device");
    assert!(batch.rank() > 0, "a batch has its samples in dimension 0; this tensor has no dimension");
    assert_eq!(weights.len(), devices.len(), "one weight for each of the devices {devices:?}, not {weights:?}");
    let size = batch.size(0);
    let shares = batch::parts(size, weights).unwrap_or_else(|e| panic!("{e}"));
    let mut pieces = Vec::new();
    for (device, ranges) in shares.into_iter().enumerate() {
        for samples in ranges {
            let part = batch.narrow(0, samples.start, samples.len());
            let part = part.with_part(Some(Part { batch: size, samples: samples.clone() }));
            pieces.push(Piece { device, samples, value: part.to(&devices[device]) });
        }
    }
    pieces
}

/// Splits samples and their labels evenly over devices: [`scatter`] for both.
///
/// # Panics
/// As [`scatter`], and when there are not as many labels as samples.
#[track_caller]
pub fn split_batch(x: &Tensor, y: &Tensor, devices: &[Device]) -> Vec<Shard> {
    split_batch_weighted(x, y, devices, &vec![1.0; devices.len()])
}

/// As [`split_batch`], with shares in the ratio of `weights`.
///
/// # Panics
/// As [`scatter_weighted`], and when there are not as many labels as samples.
#[track_caller]
pub fn split_batch_weighted(x: &Tensor, y: &Tensor, devices: &[Device], weights: &[f64]) -> Vec<Shard> {
    let (x, y) = (scatter_weighted(x, devices, weights), scatter_weighted(y, devices, weights));
    let count = |pieces: &[Piece]| pieces.last().map_or(0, |piece| piece.samples.end);
    assert_eq!(count(&x), count(&y), "as many labels as samples");
    x.into_iter().zip(y).map(|(x, y)| Shard { device: x.device, x: x.value, y: y.value }).collect()
}
