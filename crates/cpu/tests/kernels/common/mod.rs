//! What the tests of kernels share: numbers, scratch memory, and sums in literal canonical order.

pub mod programs;

use meshwork_cpu::gemm::{Element, Real};
use meshwork_cpu::{Context, Level, Par};
use meshwork_graph::canonical::{Blocks, TreeSum};

/// A small generator of test data.
pub struct Numbers(pub u64);

impl Numbers {
    /// The next 32 bits.
    pub fn bits(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as u32
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.bits() as usize % n
    }

    /// A number of mixed magnitude, so that every order of addition gives other bits.
    pub fn number(&mut self) -> f64 {
        (self.bits() as f64 / (1u64 << 30) as f64 - 1.0) * [1.0, 30.0, 0.01][self.below(3)]
    }

    /// Many of them.
    pub fn elements<T: Element>(&mut self, count: usize) -> Vec<T> {
        (0..count).map(|_| from_f64::<T>(self.number())).collect()
    }
}

/// A number as a stored element.
pub fn from_f64<T: Element>(x: f64) -> T {
    T::narrow(real::<T::Real>(x))
}

/// A number as a real.
pub fn real<R: Real>(x: f64) -> R {
    // SAFETY: each is read as the type that it is.
    unsafe { if size_of::<R>() == 4 { std::mem::transmute_copy(&(x as f32)) } else { std::mem::transmute_copy(&x) } }
}

/// The bits of an element.
pub fn bits<T: Element>(x: T) -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: at most eight bytes of a plain number.
    unsafe { std::ptr::copy_nonoverlapping((&raw const x).cast(), bytes.as_mut_ptr(), size_of::<T>()) };
    u64::from_le_bytes(bytes)
}

/// Panics at the first pair of different bits.
pub fn assert_bits<T: Element + std::fmt::Debug>(found: &[T], expected: &[T], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        assert!(bits(f) == bits(e), "{what}: element {i} of {} is {f:?}, not {e:?}", found.len());
    }
}

/// A contraction in canonical order: chains of fused multiply-adds over blocks, combined by the tree.
pub fn contraction<R: Real>(blocks: &Blocks, term: impl Fn(usize, usize) -> (R, R)) -> R {
    let mut tree = TreeSum::new();
    for block in 0..blocks.count() {
        let mut sum = R::ZERO;
        for outer in blocks.range(block) {
            for inner in 0..blocks.inner {
                let (a, b) = term(outer, inner);
                sum = a.fma(b, sum);
            }
        }
        tree.push(sum, |a, b| a + b);
    }
    tree.finish(|a, b| a + b).unwrap_or(R::ZERO)
}

/// A cache line of scratch memory.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct Line(pub [u8; 64]);

/// Calls `run` with scratch memory that is aligned as kernels expect it, and full of NaN.
pub fn with_scratch(bytes: usize, run: impl FnOnce(&mut [u8])) {
    let mut lines = vec![Line([0xFF; 64]); bytes.div_ceil(64)];
    // SAFETY: the lines are plain bytes, at least as many.
    run(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), bytes) });
}

/// Runs a kernel on every level and several numbers of threads.
pub fn everywhere(mut kernel: impl FnMut(Context, &str)) {
    for threads in [1, 2, 3, 5] {
        let par = Par::new(threads);
        for level in Level::available() {
            kernel(Context { par: &par, level }, &format!("{} with {threads} threads", level.name()));
        }
    }
}
