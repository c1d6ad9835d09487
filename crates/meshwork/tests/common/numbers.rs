//! Numbers that do not come from the library under test.

use meshwork::{DType, Tensor};

/// SplitMix64 (Steele, Lea and Flood, 2014).
pub struct Numbers(u64);

impl Numbers {
    pub fn new(seed: u64) -> Numbers {
        Numbers(seed.wrapping_mul(0x2545_F491_4F6C_DD1D) ^ 0x1234_5678_9ABC_DEF0)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `low..high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    /// A tensor of f64 in `low..high`.
    pub fn f64s(&mut self, low: f64, high: f64, shape: &[usize]) -> Tensor {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| self.uniform(low, high)).collect();
        Tensor::from_slice(&values, shape)
    }

    /// A tensor of f32 in `low..high`.
    pub fn f32s(&mut self, low: f64, high: f64, shape: &[usize]) -> Tensor {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| self.uniform(low, high) as f32).collect();
        Tensor::from_slice(&values, shape)
    }

    /// A tensor of f64, all different by at least 0.1, in random order.
    pub fn distinct(&mut self, shape: &[usize]) -> Tensor {
        let count: usize = shape.iter().product();
        let mut values: Vec<f64> = (0..count).map(|i| 0.1 * (i as f64 - count as f64 / 2.0) + 0.03).collect();
        for i in (1..count).rev() {
            values.swap(i, self.below(i + 1));
        }
        Tensor::from_slice(&values, shape)
    }

    /// A tensor of indices in `0..n`.
    pub fn indices(&mut self, n: usize, shape: &[usize]) -> Tensor {
        let values: Vec<i64> = (0..shape.iter().product()).map(|_| self.below(n) as i64).collect();
        Tensor::from_slice(&values, shape)
    }

    /// A tensor of bools.
    pub fn bools(&mut self, shape: &[usize]) -> Tensor {
        let values: Vec<bool> = (0..shape.iter().product()).map(|_| self.next() & 1 == 1).collect();
        Tensor::from_slice(&values, shape)
    }
}

/// The bits of a tensor of any dtype.
pub fn bits(tensor: &Tensor) -> Vec<u8> {
    assert!(DType::ALL.contains(&tensor.dtype()));
    tensor.to_bytes()
}
