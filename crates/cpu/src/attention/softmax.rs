//! What happens to the scores between the products. A tile of scores has keys as rows and queries as columns, so that each
//! query is a lane of its own and its sums are chains in the order of the keys, at every level.

use crate::gemm::{Element, Real};
use crate::{Level, math};
use half::{bf16, f16};
use meshwork_simd::multiversion;
use std::ops::{Mul, Sub};

/// Most columns of a tile: the queries of a unit.
pub const UNIT: usize = 32;

/// A number for each query of a unit.
pub type Each<T> = [T; UNIT];

/// Numbers with the functions of a softmax.
pub trait Number: Real + Mul<Output = Self> + Sub<Output = Self> {
    /// 1.
    const ONE: Self;

    /// e^x for x ≤ 0; far below it is +0.
    fn exp(self) -> Self;

    /// The natural logarithm.
    fn log(self) -> Self;

    /// The number nearest to x.
    fn from_f64(x: f64) -> Self;
}

impl Number for f32 {
    const ONE: f32 = 1.0;

    #[inline(always)]
    fn exp(self) -> f32 {
        math::exp_not_above_zero(self)
    }

    #[inline(always)]
    fn log(self) -> f32 {
        math::log(self)
    }

    fn from_f64(x: f64) -> f32 {
        x as f32
    }
}

impl Number for f64 {
    const ONE: f64 = 1.0;

    #[inline(always)]
    fn exp(self) -> f64 {
        libm::exp(self)
    }

    #[inline(always)]
    fn log(self) -> f64 {
        libm::log(self)
    }

    fn from_f64(x: f64) -> f64 {
        x
    }
}

/// Elements of operands.
pub trait Input: Element<Real: Number> {
    /// A weight or a slope as it is multiplied: numbers of bf16 by numbers of bf16, for which processors have instructions.
    fn factor(x: Self::Real) -> Self::Real;
}

macro_rules! input {
    ($($type:ty: $factor:expr;)*) => {
        $(impl Input for $type {
            #[inline(always)]
            fn factor(x: Self::Real) -> Self::Real {
                $factor(x)
            }
        })*
    };
}

input! {
    f32: |x| x;
    f64: |x| x;
    f16: |x| x;
    bf16: |x| bf16::narrow(x).widen();
}

/// The softmax of each query over the keys so far.
pub struct Online<R> {
    /// The highest score.
    pub highest: Each<R>,
    /// The sum of the exponentials of the scores less the highest one.
    pub sum: Each<R>,
    /// What the sums before the last block were multiplied by.
    pub factor: Each<R>,
}

impl<R: Number> Online<R> {
    /// No keys.
    pub fn new() -> Self {
        Online { highest: [R::LEAST; UNIT], sum: [R::ZERO; UNIT], factor: [R::ZERO; UNIT] }
    }
}

/// What is subtracted from scores: 0 instead of −∞, so that scores of −∞ stay that.
#[inline(always)]
fn finite<R: Number>(x: R) -> R {
    if x == R::LEAST { R::ZERO } else { x }
}

/// Replaces what does not count in a tile: `seen` says of how many of the rows each column counts.
#[inline(always)]
fn hide<R: Number, const W: usize>(tile: &mut [R], seen: &Each<i32>, value: R) {
    let first = seen[..W].iter().copied().min().unwrap_or(0);
    for (i, row) in (0..).zip(tile.as_chunks_mut::<W>().0).skip(first as usize) {
        // Into a copy, for what is stored in any case is chosen without branches.
        let mut new = [value; W];
        for c in 0..W {
            new[c] = if i < seen[c] { row[c] } else { value };
        }
        *row = new;
    }
}

/// Replaces scores by their exponentials less the highest score, and counts them in.
#[inline(always)]
fn soften<S: Input, const W: usize>(
    scores: &mut [S::Real],
    seen: Option<&Each<i32>>,
    scale: S::Real,
    online: &mut Online<S::Real>,
) {
    let mut highest: [S::Real; W] = online.highest[..W].try_into().expect("W columns");
    let seen: [i32; W] = seen.map_or([i32::MAX; W], |seen| seen[..W].try_into().expect("W columns"));
    for (i, row) in (0..).zip(scores.as_chunks_mut::<W>().0) {
        // Into a copy, for what is stored in any case is chosen without branches.
        let mut new = [S::Real::LEAST; W];
        for c in 0..W {
            let x = row[c] * scale;
            new[c] = if i < seen[c] { x } else { S::Real::LEAST };
            highest[c] = if new[c] > highest[c] { new[c] } else { highest[c] };
        }
        *row = new;
    }
    let (mut taken, mut sum) = ([S::Real::ZERO; W], [S::Real::ZERO; W]);
    for c in 0..W {
        taken[c] = finite(highest[c]);
        online.factor[c] = (online.highest[c] - taken[c]).exp();
    }
    for row in scores.as_chunks_mut::<W>().0 {
        for c in 0..W {
            let x = (row[c] - taken[c]).exp();
            row[c] = S::factor(x);
            sum[c] = sum[c] + x;
        }
    }
    for c in 0..W {
        online.sum[c] = online.sum[c].fma(online.factor[c], sum[c]);
        online.highest[c] = highest[c];
    }
}

/// What is subtracted from the scores of each query, given the normalizers.
#[inline(always)]
fn taken<R: Number, const W: usize>(normalizer: &Each<R>) -> [R; W] {
    std::array::from_fn(|c| finite(normalizer[c]))
}

/// Replaces scores by weights, given the normalizers.
#[inline(always)]
fn weigh<S: Input, const W: usize>(
    scores: &mut [S::Real],
    seen: Option<&Each<i32>>,
    scale: S::Real,
    normalizer: &Each<S::Real>,
) {
    let taken = taken::<S::Real, W>(normalizer);
    for row in scores.as_chunks_mut::<W>().0 {
        for c in 0..W {
            row[c] = S::factor((row[c] * scale - taken[c]).exp());
        }
    }
    if let Some(seen) = seen {
        hide::<S::Real, W>(scores, seen, S::Real::ZERO);
    }
}

/// Replaces scores by weights, given the normalizers, and `products` by the gradients by the scores, given what the
/// normalization takes from them.
#[inline(always)]
fn slope<S: Input, const W: usize>(
    scores: &mut [S::Real],
    products: &mut [S::Real],
    seen: Option<&Each<i32>>,
    scale: S::Real,
    [normalizer, delta]: [&Each<S::Real>; 2],
) {
    let taken = taken::<S::Real, W>(normalizer);
    for (row, products) in scores.as_chunks_mut::<W>().0.iter_mut().zip(products.as_chunks_mut::<W>().0) {
        for c in 0..W {
            let x = (row[c] * scale - taken[c]).exp();
            row[c] = S::factor(x);
            products[c] = S::factor(x * (products[c] - delta[c]));
        }
    }
    if let Some(seen) = seen {
        hide::<S::Real, W>(scores, seen, S::Real::ZERO);
        hide::<S::Real, W>(products, seen, S::Real::ZERO);
    }
}

multiversion! {
    /// The normalizers of queries whose keys are all counted in, and what their sums of values are multiplied by.
    pub fn finish<R: Number>(online: &Online<R>) -> [Each<R>; 2] = finish_of;
}

#[inline(always)]
fn finish_of<R: Number>(online: &Online<R>) -> [Each<R>; 2] {
    let (mut normalizer, mut share) = ([R::LEAST; UNIT], [R::ZERO; UNIT]);
    for c in 0..UNIT {
        let (highest, sum) = (online.highest[c], online.sum[c]);
        let (logarithm, inverse) = (highest + sum.log(), R::ONE / sum);
        normalizer[c] = if sum == R::ZERO { R::LEAST } else { logarithm };
        share[c] = if sum == R::ZERO { R::ZERO } else { inverse };
    }
    [normalizer, share]
}

macro_rules! widths {
    ($($width:literal: $soften:ident $slope:ident $weigh:ident;)*) => {
        $(
            multiversion! {
                fn $soften<S: Input>(scores: &mut [S::Real], seen: Option<&Each<i32>>, scale: S::Real, online: &mut Online<S::Real>) = soften::<S, $width>;
            }
            multiversion! {
                fn $slope<S: Input>(scores: &mut [S::Real], products: &mut [S::Real], seen: Option<&Each<i32>>, scale: S::Real, rows: [&Each<S::Real>; 2]) = slope::<S, $width>;
            }
            multiversion! {
                fn $weigh<S: Input>(scores: &mut [S::Real], seen: Option<&Each<i32>>, scale: S::Real, normalizer: &Each<S::Real>) = weigh::<S, $width>;
            }
        )*

        impl<S: Input> Softmax<S> {
            /// Replaces the scores of a block of keys by exponentials and counts them in.
            pub fn soften(&self, scores: &mut [S::Real], seen: Option<&Each<i32>>, online: &mut Online<S::Real>) {
                match self.width {
                    $($width => $soften::<S>(self.level, scores, seen, self.scale, online),)*
                    width => unreachable!("tiles are not {width} wide"),
                }
            }

            /// Replaces scores by weights, and products by slopes.
            pub fn slope(&self, scores: &mut [S::Real], products: &mut [S::Real], seen: Option<&Each<i32>>, rows: [&Each<S::Real>; 2]) {
                match self.width {
                    $($width => $slope::<S>(self.level, scores, products, seen, self.scale, rows),)*
                    width => unreachable!("tiles are not {width} wide"),
                }
            }

            /// Replaces scores by weights.
            pub fn weigh(&self, scores: &mut [S::Real], seen: Option<&Each<i32>>, normalizer: &Each<S::Real>) {
                match self.width {
                    $($width => $weigh::<S>(self.level, scores, seen, self.scale, normalizer),)*
                    width => unreachable!("tiles are not {width} wide"),
                }
            }
        }
    };
}

/// What is done to tiles whose rows have `width` columns.
pub struct Softmax<S: Input> {
    pub level: Level,
    pub width: usize,
    /// Factor of the scores.
    pub scale: S::Real,
}

widths! {
    8: soften_8 slope_8 weigh_8;
    16: soften_16 slope_16 weigh_16;
    32: soften_32 slope_32 weigh_32;
}

multiversion! {
    /// Multiplies each row by its factor.
    pub fn scale_rows<R: Number>(numbers: &mut [R], width: usize, factors: &[R]) = scale_rows_of;
}

#[inline(always)]
fn scale_rows_of<R: Number>(numbers: &mut [R], width: usize, factors: &[R]) {
    for (row, &factor) in numbers.chunks_exact_mut(width).zip(factors) {
        row.iter_mut().for_each(|x| *x = *x * factor);
    }
}
