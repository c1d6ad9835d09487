//! The numbers that sums are accumulated in, and the stored elements that are widened to them.

use crate::Level;
use crate::narrow;
use crate::operand::Stored;
use half::{bf16, f16};
use meshwork_simd::microkernel::{self, Kernels, Table};
use std::any::TypeId;
use std::ops::{Add, Div};

/// A number that products are accumulated in: f32 or f64.
pub trait Real: Stored + Add<Output = Self> + Div<Output = Self> + PartialOrd {
    /// Positive zero, where every chain begins.
    const ZERO: Self;

    /// Less than every number.
    const LEAST: Self;

    /// The nearest number to a count.
    fn count(n: usize) -> Self;

    /// `self · b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;

    /// The microkernels of a level.
    fn kernels(level: Level) -> Kernels<Self>;

    /// Its microkernels for pairs of narrow elements, if it has some, as high and wide as the others: the fast ones, and
    /// those for any elements.
    fn pairs(level: Level) -> Option<[Table<Self>; 2]>;
}

impl Real for f32 {
    const ZERO: Self = 0.0;
    const LEAST: Self = f32::NEG_INFINITY;

    #[inline(always)]
    fn count(n: usize) -> Self {
        n as f32
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }

    fn kernels(level: Level) -> Kernels<Self> {
        microkernel::of_f32(level)
    }

    fn pairs(level: Level) -> Option<[Table<Self>; 2]> {
        microkernel::of_pairs(level)
    }
}

impl Real for f64 {
    const ZERO: Self = 0.0;
    const LEAST: Self = f64::NEG_INFINITY;

    #[inline(always)]
    fn count(n: usize) -> Self {
        n as f64
    }

    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self.mul_add(b, c)
    }

    fn kernels(level: Level) -> Kernels<Self> {
        microkernel::of_f64(level)
    }

    fn pairs(_: Level) -> Option<[Table<Self>; 2]> {
        None
    }
}

/// A stored floating-point element and the number it is computed with.
pub trait Element: Stored {
    /// The number.
    type Real: Real + Element<Real = Self::Real>;

    /// The exact value as a number.
    fn widen(self) -> Self::Real;

    /// A number, rounded to the stored type.
    fn narrow(value: Self::Real) -> Self;
}

macro_rules! element {
    ($($type:ty => $real:ty, $widen:expr, $narrow:expr;)*) => {
        $(
            impl Element for $type {
                type Real = $real;

                #[inline(always)]
                fn widen(self) -> $real {
                    $widen(self)
                }

                #[inline(always)]
                fn narrow(value: $real) -> Self {
                    $narrow(value)
                }
            }
        )*
    };
}

element! {
    f32 => f32, |x| x, |x| x;
    f64 => f64, |x| x, |x| x;
    f16 => f32, narrow::f16_to_f32, narrow::f16_from_f32;
    bf16 => f32, narrow::bf16_to_f32, narrow::bf16_from_f32;
}

/// Whether two types are the same one.
#[inline(always)]
pub fn same<A: 'static, B: 'static>() -> bool {
    TypeId::of::<A>() == TypeId::of::<B>()
}
