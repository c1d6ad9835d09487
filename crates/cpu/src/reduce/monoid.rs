//! What a reduction combines: accumulators, and how stored elements become them.

use super::columns::ABREAST;
#[cfg(target_arch = "x86_64")]
use super::extrema_x86;
use super::trees::{ResultsOf, Trees, results_of_f32, sums_of_f32, trees};
use crate::Level;
use crate::element::{extremum_f32, extremum_f64};
use crate::narrow;
use crate::stream::ahead;
use half::{bf16, f16};
use meshwork_graph::canonical::LANES;
use meshwork_simd::line::{LINE, prefetch};
use std::ops::RangeInclusive;

/// A type that reductions accumulate in.
pub trait Accumulate: Term<Sum = Self> {
    /// The start of sums.
    const ZERO: Self;
    /// What changes no sum, not even one of −0.
    const NOTHING: Self;
    /// The start of products.
    const ONE: Self;
    /// Smaller than everything.
    const LOWEST: Self;
    /// Larger than everything.
    const HIGHEST: Self;
    /// The sum; integers wrap.
    fn add(self, other: Self) -> Self;
    /// The product; integers wrap.
    fn multiply(self, other: Self) -> Self;
    /// The larger one, or NaN.
    fn larger(self, other: Self) -> Self;
    /// The smaller one, or NaN.
    fn smaller(self, other: Self) -> Self;
    /// What is ordered as numbers are, and one instruction compares.
    type Rank: Copy + Ord;
    /// The rank of a number. A NaN is above or below all numbers, by its sign.
    fn rank(self) -> Self::Rank;
    /// The number of a rank, or NaN.
    fn ranked(rank: Self::Rank) -> Self;
    /// The ranks that are those of numbers, if some are not.
    const NUMBERS: Option<RangeInclusive<Self::Rank>>;
    /// Trees of sums.
    fn sums(_: Level) -> Trees<Self> {
        trees::<Self, Sum>
    }
    /// Its bits.
    fn word(self) -> u64;
    /// The number of these bits.
    fn of_word(word: u64) -> Self;
}

macro_rules! accumulate_float {
    ($t:ident, $rank:ident, $rank_of:ident, $extremum:ident $(, $sums:ident)?) => {
        /// −0 is below +0. What has a sign counts backwards.
        #[inline(always)]
        const fn $rank_of(x: $t) -> $rank {
            let bits = x.to_bits() as $rank;
            bits ^ (bits >> ($rank::BITS - 1)) & $rank::MAX
        }
        impl Accumulate for $t {
            const ZERO: $t = 0.0;
            const NOTHING: $t = -0.0;
            const ONE: $t = 1.0;
            const LOWEST: $t = $t::NEG_INFINITY;
            const HIGHEST: $t = $t::INFINITY;
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self + other
            }
            #[inline(always)]
            fn multiply(self, other: $t) -> $t {
                self * other
            }
            #[inline(always)]
            fn larger(self, other: $t) -> $t {
                $extremum::<true>(self, other)
            }
            #[inline(always)]
            fn smaller(self, other: $t) -> $t {
                $extremum::<false>(self, other)
            }
            type Rank = $rank;
            #[inline(always)]
            fn rank(self) -> $rank {
                $rank_of(self)
            }
            #[inline(always)]
            fn ranked(rank: $rank) -> $t {
                let x = $t::from_bits((if rank < 0 { rank ^ $rank::MAX } else { rank }) as _);
                if x.is_nan() { $t::NAN } else { x }
            }
            const NUMBERS: Option<RangeInclusive<$rank>> = Some($rank_of($t::NEG_INFINITY)..=$rank_of($t::INFINITY));
            $(fn sums(level: Level) -> Trees<$t> {
                $sums(level)
            })?
            #[inline(always)]
            fn word(self) -> u64 {
                self.to_bits().into()
            }
            #[inline(always)]
            fn of_word(word: u64) -> $t {
                $t::from_bits(word as _)
            }
        }
    };
}

macro_rules! accumulate_int {
    ($t:ident) => {
        impl Accumulate for $t {
            const ZERO: $t = 0;
            const NOTHING: $t = 0;
            const ONE: $t = 1;
            const LOWEST: $t = $t::MIN;
            const HIGHEST: $t = $t::MAX;
            #[inline(always)]
            fn add(self, other: $t) -> $t {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn multiply(self, other: $t) -> $t {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn larger(self, other: $t) -> $t {
                self.max(other)
            }
            #[inline(always)]
            fn smaller(self, other: $t) -> $t {
                self.min(other)
            }
            type Rank = $t;
            #[inline(always)]
            fn rank(self) -> $t {
                self
            }
            #[inline(always)]
            fn ranked(rank: $t) -> $t {
                rank
            }
            const NUMBERS: Option<RangeInclusive<$t>> = None;
            #[inline(always)]
            fn word(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn of_word(word: u64) -> $t {
                word as $t
            }
        }
    };
}

accumulate_float!(f64, i64, rank_of_f64, extremum_f64);
accumulate_float!(f32, i32, rank_of_f32, extremum_f32, sums_of_f32);
accumulate_int!(i64);
accumulate_int!(i32);
accumulate_int!(u8);

/// A stored element type and what it accumulates in.
pub trait Term: Copy + Send + Sync + 'static {
    /// The type of the accumulators.
    type Sum: Accumulate;
    /// The value as an accumulator.
    fn widen(self) -> Self::Sum;
    /// Back, rounded once.
    fn narrow(sum: Self::Sum) -> Self;
    /// Finds the sums of blocks, where a level has a way of its own.
    fn results_of_sums(_: Level) -> Option<ResultsOf<Self>> {
        None
    }
    /// Takes rows into their largest or smallest numbers, where a level has a way of its own.
    fn extrema_of_rows<const LARGEST: bool>(_: Level) -> Option<TakeRows<Self>> {
        None
    }
}

/// Takes some rows, which have as many numbers as there are results, into what there is.
pub type TakeRows<T> = unsafe fn(&mut [<T as Term>::Sum], &[*const T; ABREAST]);

/// [`Term::extrema_of_rows`] of f32.
fn extrema_of_f32<const LARGEST: bool>(level: Level) -> Option<TakeRows<f32>> {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the level; the caller promises the rest.
        Level::Avx512 | Level::Avx512Bf16 => Some(|out, rows| unsafe { extrema_x86::take_rows::<LARGEST>(out, rows) }),
        _ => None,
    }
}

macro_rules! term {
    ($t:ty, $sum:ty, $widen:expr, $narrow:expr $(, $results:ident, $extrema:ident)?) => {
        impl Term for $t {
            type Sum = $sum;
            #[inline(always)]
            fn widen(self) -> $sum {
                $widen(self)
            }
            #[inline(always)]
            fn narrow(sum: $sum) -> $t {
                $narrow(sum)
            }
            $(fn results_of_sums(level: Level) -> Option<ResultsOf<$t>> {
                $results(level)
            }
            fn extrema_of_rows<const LARGEST: bool>(level: Level) -> Option<TakeRows<$t>> {
                $extrema::<LARGEST>(level)
            })?
        }
    };
}

term!(f64, f64, |x| x, |x| x);
term!(f32, f32, |x| x, |x| x, results_of_f32, extrema_of_f32);
term!(f16, f32, narrow::f16_to_f32, narrow::f16_from_f32);
term!(bf16, f32, narrow::bf16_to_f32, narrow::bf16_from_f32);
term!(i64, i64, |x| x, |x| x);
term!(i32, i32, |x| x, |x| x);
term!(u8, u8, |x| x, |x| x);

/// How two accumulators become one.
pub trait Monoid<A>: Copy + Send + Sync {
    /// Changes nothing.
    fn identity() -> A;
    fn combine(a: A, b: A) -> A;
    /// The results of blocks from their lanes.
    fn trees(level: Level) -> Trees<A>;
    /// Finds the results of blocks, where a level has a way of its own.
    fn results<T: Term<Sum = A>>(_: Level) -> Option<ResultsOf<T>> {
        None
    }
    /// Takes rows into what there is, where a level has a way of its own.
    fn take_rows<T: Term<Sum = A>>(_: Level) -> Option<TakeRows<T>> {
        None
    }
    /// Whether any order of the terms gives the same bits.
    const ANY_ORDER: bool = false;
    /// All of them combined; only where any order does.
    fn all<T: Term<Sum = A>>(_: &[T]) -> A
    where
        A: Accumulate,
    {
        unreachable!("the order of the terms matters")
    }
}

/// The largest or smallest number, or NaN; `identity` changes neither.
#[inline(always)]
fn extremum<T: Term, const LARGEST: bool>(identity: T::Sum, terms: &[T]) -> T::Sum {
    const CHAINS: usize = 2 * LANES;
    if let Some(last) = terms.last_chunk::<CHAINS>() {
        return extremum_of_chains::<T, CHAINS, LARGEST>(identity, terms, last);
    }
    if let Some(last) = terms.last_chunk::<LANES>() {
        return extremum_of_chains::<T, LANES, LARGEST>(identity, terms, last);
    }
    let combine = |a: T::Sum, x: &T| if LARGEST { a.larger(x.widen()) } else { a.smaller(x.widen()) };
    terms.iter().fold(identity, combine)
}

/// The same of at least as many terms as chains. The last ones, which fill all chains, may have come before.
#[inline(always)]
fn extremum_of_chains<T: Term, const CHAINS: usize, const LARGEST: bool>(
    identity: T::Sum,
    terms: &[T],
    last: &[T; CHAINS],
) -> T::Sum {
    let (mut best, mut worst) = ([identity.rank(); CHAINS], [identity.rank(); CHAINS]);
    let ahead = ahead();
    for chunk in terms.as_chunks::<CHAINS>().0 {
        for line in (0..size_of_val(chunk)).step_by(LINE) {
            prefetch(chunk.as_ptr().cast::<u8>().wrapping_add(ahead + line));
        }
        take::<T, CHAINS, LARGEST>(&mut best, &mut worst, chunk);
    }
    take::<T, CHAINS, LARGEST>(&mut best, &mut worst, last);
    let best = best.into_iter().reduce(|a, b| if LARGEST { a.max(b) } else { a.min(b) }).expect("chains");
    let worst = worst.into_iter().reduce(|a, b| if LARGEST { a.min(b) } else { a.max(b) }).expect("chains");
    let is_number = T::Sum::NUMBERS.is_none_or(|numbers| numbers.contains(&worst));
    T::Sum::ranked(if is_number { best } else { worst })
}

type Rank<T> = <<T as Term>::Sum as Accumulate>::Rank;

/// Takes a term into each chain. Terms that lose most clearly count, too: there are NaNs among them.
#[inline(always)]
fn take<T: Term, const CHAINS: usize, const LARGEST: bool>(
    best: &mut [Rank<T>; CHAINS],
    worst: &mut [Rank<T>; CHAINS],
    terms: &[T; CHAINS],
) {
    for i in 0..CHAINS {
        let rank = terms[i].widen().rank();
        best[i] = if LARGEST { best[i].max(rank) } else { best[i].min(rank) };
        if T::Sum::NUMBERS.is_some() {
            worst[i] = if LARGEST { worst[i].min(rank) } else { worst[i].max(rank) };
        }
    }
}

macro_rules! monoid {
    ($($name:ident: $identity:ident, $combine:ident, $trees:expr $(, results $results:ident)? $(, $largest:literal)?;)*) => {
        $(
            #[derive(Clone, Copy)]
            pub struct $name;
            impl<A: Accumulate> Monoid<A> for $name {
                #[inline(always)]
                fn identity() -> A {
                    A::$identity
                }
                #[inline(always)]
                fn combine(a: A, b: A) -> A {
                    a.$combine(b)
                }
                fn trees(level: Level) -> Trees<A> {
                    $trees(level)
                }
                $(fn results<T: Term<Sum = A>>(level: Level) -> Option<ResultsOf<T>> {
                    T::$results(level)
                })?
                $(fn take_rows<T: Term<Sum = A>>(level: Level) -> Option<TakeRows<T>> {
                    T::extrema_of_rows::<$largest>(level)
                }
                const ANY_ORDER: bool = true;
                #[inline(always)]
                fn all<T: Term<Sum = A>>(terms: &[T]) -> A {
                    extremum::<T, $largest>(A::$identity, terms)
                })?
            }
        )*
    };
}

monoid! {
    Sum: ZERO, add, A::sums, results results_of_sums;
    Prod: ONE, multiply, |_| trees::<A, Prod>;
    Max: LOWEST, larger, |_| trees::<A, Max>, true;
    Min: HIGHEST, smaller, |_| trees::<A, Min>, false;
}
