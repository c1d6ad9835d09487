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

/// Most products.
const MAX_COUNT: usize = 10_000;

impl Products {
    /// `count` products `[m, k] · [k, m]` of few matrices: no two are the same, or one would be computed for both.
    pub fn new(device: &Device, m: usize, k: usize, count: usize) -> Result<Products, Failure> {
        let bytes = [m, m, count].iter().try_fold(4usize, |bytes, n| bytes.checked_mul(*n));
        if bytes.is_none_or(|bytes| bytes > 1 << 34) || count > MAX_COUNT {
            return Err(Failure::mistake(format!(
                "--size and --count: {count} products of {m}x{m} are more than fit; there can be {MAX_COUNT}, of 16 GiB"
            )));
        }
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
