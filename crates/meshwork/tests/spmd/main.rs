//! Parallel programs by hand: collectives on tensors, and values whose distribution is their type.

mod collectives;
mod errors;
mod typed;

use meshwork::Tensor;
use meshwork::spmd::{CommError, Group, spawn};

/// What each rank has after a body, without failures.
fn on<R: Send>(ranks: usize, body: impl Fn(Group) -> Result<R, CommError> + Sync) -> Vec<R> {
    let results = spawn(ranks, body).expect("nobody panics");
    results.into_iter().map(|result| result.expect("the calls fit")).collect()
}

/// Small integers, whose sums are exact in any order.
fn integers(shape: &[usize], seed: usize) -> Tensor {
    let numel: usize = shape.iter().product();
    let values = (0..numel).map(|i| ((i * 7 + seed * 13 + i * i % 11) % 9) as f32 - 4.0);
    Tensor::from_slice(&values.collect::<Vec<_>>(), shape)
}
