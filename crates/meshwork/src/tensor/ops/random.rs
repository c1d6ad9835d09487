//! Random tensors.
//!
//! Every value is addressed by (seed, name, step) and its index, so it does not depend on threads or devices.
//! Functions without a key of their own number their calls on this thread.

use crate::tensor::Tensor;
use meshwork_graph::DType;
use meshwork_graph::ops::{BinaryOp, Distribution, Random};
use meshwork_graph::philox::site_key;
use std::cell::Cell;

thread_local! {
    static SEED: Cell<u64> = const { Cell::new(0) };
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static SITES: Cell<u64> = const { Cell::new(0) };
    static STEP: Cell<u64> = const { Cell::new(0) };
}

/// Sets the seed of this thread's random tensors and dropout, and starts their numbering anew.
pub fn manual_seed(seed: u64) {
    SEED.set(seed);
    CALLS.set(0);
    SITES.set(0);
    STEP.set(0);
}

/// The seed in force on this thread.
pub(crate) fn seed() -> u64 {
    SEED.get()
}

/// The number of the next parameter or random site that this thread creates.
pub(crate) fn next_site() -> u64 {
    SITES.replace(SITES.get() + 1)
}

/// The training step that dropout masks belong to.
pub(crate) fn random_step() -> u64 {
    STEP.get()
}

pub(crate) fn set_random_step(step: u64) {
    STEP.set(step);
}

/// Random values of a key, computed wherever they are needed.
pub(crate) fn keyed(distribution: Distribution, shape: &[usize], dtype: DType, key: u64) -> Tensor {
    let random = Random::new(distribution, shape, dtype);
    Tensor::record(random, &[&Tensor::key(key)]).detach()
}

fn next_key() -> u64 {
    let call = CALLS.get();
    CALLS.set(call + 1);
    site_key(SEED.get(), "random tensor", call)
}

/// Uniform values in [0, 1), f32.
pub fn rand(shape: &[usize]) -> Tensor {
    keyed(Distribution::Uniform, shape, DType::F32, next_key()).committed()
}

/// Normal values of mean 0 and variance 1, f32.
pub fn randn(shape: &[usize]) -> Tensor {
    keyed(Distribution::Normal, shape, DType::F32, next_key()).committed()
}

/// Uniform values in [low, high), f32.
pub fn uniform(shape: &[usize], low: f64, high: f64) -> Tensor {
    rand(shape) * (high - low) + low
}

/// Normal values, f32.
pub fn normal(shape: &[usize], mean: f64, std: f64) -> Tensor {
    randn(shape) * std + mean
}

/// True with the probability that `p` gives for each element (bool).
#[track_caller]
pub fn bernoulli(p: &Tensor) -> Tensor {
    let chance = keyed(Distribution::Uniform, p.shape(), p.dtype(), next_key());
    chance.binary(BinaryOp::Lt, p)
}

/// A random order of 0..n (i64).
pub fn permutation(n: usize) -> Tensor {
    keyed(Distribution::Permutation, &[n], DType::I64, next_key()).committed()
}
