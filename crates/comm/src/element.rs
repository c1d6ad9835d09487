//! Element types, and the arithmetic of reductions.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use std::fmt;

/// The type of a buffer's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 64-bit IEEE float.
    F64,
    /// 32-bit IEEE float.
    F32,
    /// 16-bit IEEE float, reduced in f32.
    F16,
    /// bfloat16, reduced in f32.
    BF16,
    /// Signed 64-bit integer.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned byte.
    U8,
}

impl DType {
    /// Whether the type is a floating-point one, and so has means.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::U8 => "u8",
        })
    }
}

/// A type of elements that collectives move and reduce.
pub trait Element: Copy + Default + PartialEq + fmt::Debug + Send + Sync + sealed::Reduced + 'static {
    /// Its name at run time.
    const DTYPE: DType;
}

pub(crate) mod sealed {
    /// What elements are reduced in. Nobody else's types can be elements: communicators know all there are.
    pub trait Reduced: Sized {
        /// Wide enough for intermediate results.
        type Wide: super::Arithmetic;

        /// Whether the elements are in the wide type already.
        const IS_WIDE: bool;

        /// The elements in the wide type; both slices have the same length.
        fn widen(from: &[Self], to: &mut [Self::Wide]);

        /// Results, rounded; both slices have the same length.
        fn narrow(from: &[Self::Wide], to: &mut [Self]);
    }
}

/// Arithmetic of reductions.
pub trait Arithmetic: Copy + Default + Send {
    /// a + b.
    fn add(self, other: Self) -> Self;
    /// a · b.
    fn multiply(self, other: Self) -> Self;
    /// The lesser.
    fn min(self, other: Self) -> Self;
    /// The greater.
    fn max(self, other: Self) -> Self;
    /// a / n, for floating-point numbers; integers have no mean.
    fn divide(self, count: usize) -> Self;
    /// 1 / n, for floating-point numbers.
    fn inverse(count: usize) -> Self;
}

macro_rules! float {
    ($($type:ty),*) => {
        $(
            impl Arithmetic for $type {
                #[inline(always)]
                fn add(self, other: Self) -> Self {
                    self + other
                }

                #[inline(always)]
                fn multiply(self, other: Self) -> Self {
                    self * other
                }

                #[inline(always)]
                fn min(self, other: Self) -> Self {
                    // Of equals only zeros can differ: the sign of either.
                    let equal = <$type>::from_bits(self.to_bits() | other.to_bits());
                    let unequal = if self < other { self } else { other };
                    let number = if self == other { equal } else { unequal };
                    if self.is_nan() | other.is_nan() { <$type>::NAN } else { number }
                }

                #[inline(always)]
                fn max(self, other: Self) -> Self {
                    let equal = <$type>::from_bits(self.to_bits() & other.to_bits());
                    let unequal = if self > other { self } else { other };
                    let number = if self == other { equal } else { unequal };
                    if self.is_nan() | other.is_nan() { <$type>::NAN } else { number }
                }

                #[inline(always)]
                fn divide(self, count: usize) -> Self {
                    self / count as $type
                }

                #[inline(always)]
                fn inverse(count: usize) -> Self {
                    1.0 / count as $type
                }
            }
        )*
    };
}

macro_rules! integer {
    ($($type:ty),*) => {
        $(
            impl Arithmetic for $type {
                #[inline(always)]
                fn add(self, other: Self) -> Self {
                    self.wrapping_add(other)
                }

                #[inline(always)]
                fn multiply(self, other: Self) -> Self {
                    self.wrapping_mul(other)
                }

                #[inline(always)]
                fn min(self, other: Self) -> Self {
                    Ord::min(self, other)
                }

                #[inline(always)]
                fn max(self, other: Self) -> Self {
                    Ord::max(self, other)
                }

                fn divide(self, _: usize) -> Self {
                    Self::inverse(0)
                }

                fn inverse(_: usize) -> Self {
                    unreachable!("means of integers are refused before they are computed")
                }
            }
        )*
    };
}

macro_rules! element {
    ($($type:ty: $dtype:ident, $wide:ty, $is_wide:literal, $widen:expr, $narrow:expr;)*) => {
        $(
            impl sealed::Reduced for $type {
                type Wide = $wide;

                const IS_WIDE: bool = $is_wide;

                #[inline(always)]
                fn widen(from: &[Self], to: &mut [$wide]) {
                    $widen(from, to)
                }

                #[inline(always)]
                fn narrow(from: &[$wide], to: &mut [Self]) {
                    $narrow(from, to)
                }
            }

            impl Element for $type {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

float!(f64, f32);
integer!(i64, i32, u8);

#[inline(always)]
fn copy<T: Copy>(from: &[T], to: &mut [T]) {
    to.copy_from_slice(from);
}

element! {
    f64: F64, f64, true, copy, copy;
    f32: F32, f32, true, copy, copy;
    f16: F16, f32, false, |from: &[f16], to: &mut [f32]| from.convert_to_f32_slice(to), |from: &[f32], to: &mut [f16]| to.convert_from_f32_slice(from);
    bf16: BF16, f32, false, |from: &[bf16], to: &mut [f32]| from.convert_to_f32_slice(to), |from: &[f32], to: &mut [bf16]| to.convert_from_f32_slice(from);
    i64: I64, i64, true, copy, copy;
    i32: I32, i32, true, copy, copy;
    u8: U8, u8, true, copy, copy;
}
