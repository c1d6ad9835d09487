//! What the tests of kernels share: operands with all kinds of strides, and contexts of all kinds.

use crate::operand::Stored;
use crate::{Context, Level, Operand, Output, Par};
use half::{bf16, f16};
use meshwork_graph::{Dims, Layout, Shape, philox};
use std::sync::Arc;

/// A stored type with test values.
pub trait Sample: Stored {
    /// A value drawn by a number: mostly tame, sometimes an edge case.
    fn sample(random: u64) -> Self;
    /// The bits; all NaN are one.
    fn bits(self) -> u64;
}

fn sample_float(random: u64) -> f64 {
    let tame = (random >> 8) as i32 as f64 / f64::from(1 << 29);
    match random & 0xff {
        0 => 0.0,
        1 => -0.0,
        2 => tame * 1e-40,
        3 => tame.trunc(),
        4 => tame * 300.0,
        _ => tame,
    }
}

macro_rules! sample {
    ($($type:ty: $random:ident => $value:expr, $x:ident => $bits:expr;)*) => {
        $(
            impl Sample for $type {
                fn sample($random: u64) -> Self {
                    $value
                }
                fn bits(self) -> u64 {
                    let $x = self;
                    $bits
                }
            }
        )*
    };
}

sample! {
    f64: r => sample_float(r), x => if x.is_nan() { u64::MAX } else { x.to_bits() };
    f32: r => sample_float(r) as f32, x => if x.is_nan() { u64::MAX } else { x.to_bits().into() };
    f16: r => f16::from_f64(sample_float(r)), x => if x.is_nan() { u64::MAX } else { x.to_bits().into() };
    bf16: r => bf16::from_f64(sample_float(r)), x => if x.is_nan() { u64::MAX } else { x.to_bits().into() };
    i64: r => if r & 15 == 0 { r as i64 } else { (r >> 16) as i64 % 50 - 25 }, x => x as u64;
    i32: r => if r & 15 == 0 { (r >> 8) as i32 } else { (r >> 16) as i32 % 50 }, x => x as u32 as u64;
    u8: r => (r >> 8) as u8, x => x.into();
    bool: r => r & 256 == 0, x => x.into();
}

/// The bits of many elements.
pub fn bits<T: Sample>(elements: &[T]) -> Vec<u64> {
    elements.iter().map(|x| x.bits()).collect()
}

/// `count` test values.
pub fn samples<T: Sample>(seed: u64, count: usize) -> Vec<T> {
    (0..count as u64).map(|i| T::sample(philox::bits(seed, i))).collect()
}

/// An operand and its memory.
pub struct Case<T> {
    pub data: Vec<T>,
    pub layout: Layout,
}

impl<T: Sample> Case<T> {
    /// Test values under a layout of `data` elements.
    pub fn new(seed: u64, data: usize, layout: Layout) -> Self {
        Case { data: samples(seed, data), layout }
    }

    /// Test values, dense.
    pub fn dense(seed: u64, shape: &[usize]) -> Self {
        let shape = Shape::new(shape);
        Case::new(seed, shape.numel(), Layout::contiguous(&shape))
    }

    /// Operands of one shape whose elements lie in many ways: dense, in other orders, with gaps, flipped, repeated.
    pub fn strided(shape: &[usize]) -> Vec<Self> {
        let rank = shape.len();
        let mut cases = vec![Case::dense(1, shape)];
        let mut orders: Vec<Vec<usize>> = vec![(0..rank).rev().collect()];
        for d in 1..rank {
            orders.push((0..rank).map(|i| (i + d) % rank).collect());
        }
        for order in orders {
            let base: Shape = order.iter().map(|&d| shape[d]).collect();
            let mut back = vec![0; rank];
            for (i, &d) in order.iter().enumerate() {
                back[d] = i;
            }
            cases.push(Case::new(2, base.numel(), Layout::contiguous(&base).permute(&back)));
        }
        for d in 0..rank {
            // Every second element of one dimension, from the second on.
            let mut wide = Dims::from_slice(shape);
            wide[d] = shape[d] * 2 + 1;
            let base = Layout::contiguous(&Shape(wide.clone()));
            let (mut starts, mut steps) = (vec![0; rank], vec![1; rank]);
            (starts[d], steps[d]) = (1, 2);
            cases.push(Case::new(3, base.shape.numel(), base.slice(&starts, shape, &steps)));
            if shape[d] > 0 {
                (starts[d], steps[d]) = (shape[d] - 1, -1);
                let base = Layout::contiguous(&Shape::new(shape));
                cases.push(Case::new(4, base.shape.numel(), base.slice(&starts, shape, &steps)));
                let mut narrow = Dims::from_slice(shape);
                narrow[d] = 1;
                let base = Layout::contiguous(&Shape(narrow));
                cases.push(Case::new(5, base.shape.numel(), base.expand(&Shape::new(shape))));
            }
        }
        let one = Layout::contiguous(&Shape(Dims::from_elem(1, rank)));
        cases.push(Case::new(6, 1, one.expand(&Shape::new(shape))));
        cases
    }

    /// The operand.
    pub fn operand(&self) -> Operand<'_> {
        // SAFETY: the constructors make layouts that lie in `data`.
        unsafe { Operand::new(self.data.as_ptr().cast(), T::DTYPE, &self.layout) }
    }

    /// The element at a multi-index.
    pub fn at(&self, index: &[usize]) -> T {
        self.data[self.layout.position(index)]
    }

    /// All elements in row-major order.
    pub fn elements(&self) -> Vec<T> {
        indices(&self.layout.shape).map(|index| self.at(&index)).collect()
    }
}

/// All multi-indices of a shape in row-major order.
pub fn indices(shape: &Shape) -> impl Iterator<Item = Vec<usize>> + use<> {
    let sizes = shape.to_vec();
    (0..shape.numel()).map(move |mut i| {
        let mut index = vec![0; sizes.len()];
        for d in (0..sizes.len()).rev() {
            index[d] = i % sizes[d];
            i /= sizes[d];
        }
        index
    })
}

/// The result that a kernel writes; it finds other bytes there.
pub fn output<T: Sample>(shape: &Shape, kernel: impl FnOnce(Output)) -> Vec<T> {
    let mut data = samples::<T>(99, shape.numel());
    kernel(Output::of(&mut data, shape));
    data
}

/// Calls `test` with every level that the processor has, on 1, 2 and 5 threads, and on 2 with work and room for a guest.
pub fn each_context(mut test: impl FnMut(Context)) {
    let commons = Arc::default();
    for (threads, guests) in [(1, 0), (2, 0), (2, 1), (5, 0)] {
        let mut par = Par::new(threads);
        let _member = (guests > 0).then(|| par.share(&commons, guests, || {}));
        for level in Level::available() {
            // The portable level computes fused multiply-adds in software; once is enough.
            if threads == 1 || level != Level::Portable {
                test(Context { par: &par, level });
            }
        }
    }
}
