//! Products of matrices, the work of several exercises.

use crate::bench::gemm::random;
use crate::failure::Failure;
use meshwork::{Device, Tensor, with_default_device};

/// Different products of matrices on one device.
pub struct Products {
    left: Vec<Tensor>,
    right: Vec<Tensor>,
    count: usize,
}

impl Products {
    /// `count` products `[m, k] · [k, m]` of few matrices: no two are the same, or one would be computed for both.
    pub fn new(device: &Device, m: usize, k: usize, count: usize) -> Result<Products, Failure> {
        with_default_device(device, || {
            let each = count.isqrt() + usize::from(count.isqrt().pow(2) < count);
            let matrices = |shape: [usize; 2]| (0..each).map(|_| random(&shape)).collect::<Result<Vec<_>, _>>();
            Ok(Products { left: matrices([m, k])?, right: matrices([k, m])?, count })
        })
    }

    /// Records them.
    pub fn record(&self) -> Vec<Tensor> {
        let n = self.left.len();
        (0..self.count).map(|i| self.left[i % n].matmul(&self.right[i / n])).collect()
    }
}
