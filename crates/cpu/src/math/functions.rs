//! The functions, in any arithmetic.

use super::{Arithmetic, Table};

/// 1.5 · 2²³: adding it rounds to an integer, which then is in the low bits.
pub(super) const ROUND: f32 = 12_582_912.0;
const LOG2_E: f32 = 1.442_695_02;
/// ln 2 with so few bits that a product with an exponent is exact, and the rest.
const LN2_HIGH: f32 = 0.693_145_751_953_125;
const LN2_LOW: f32 = 1.428_606_765_330_187e-6;

/// 2^n for −126 ≤ n ≤ 127. Only the lowest nine bits of `n` count.
#[inline(always)]
pub(super) fn power_of_two<A: Arithmetic>(a: &mut A, n: A::Int) -> A::Float {
    let (exponent, one) = (a.shift_left(n, 23), a.int(1.0_f32.to_bits()));
    let bits = a.int_add(exponent, one);
    a.of_bits(bits)
}

/// x · 2ⁿ, as [`Arithmetic::scaled`], in two steps, of which only the last can round.
#[inline(always)]
pub fn scaled<A: Arithmetic>(a: &mut A, x: A::Float, n: A::Int) -> A::Float {
    let zero = a.int(ROUND.to_bits());
    let n = a.int_sub(n, zero);
    let half = a.shift_right(n, 1);
    let rest = a.int_sub(n, half);
    let (first, second) = (power_of_two(a, half), power_of_two(a, rest));
    let x = a.mul(x, first);
    a.mul(x, second)
}

/// `(n, r)` with x = n ln 2 + r and |r| ≤ ln 2 / 2, and n as a float and as the bits of [`ROUND`] + n, which end with those of n.
#[inline(always)]
pub(super) fn reduce_exp<A: Arithmetic>(a: &mut A, x: A::Float) -> ((A::Float, A::Int), A::Float) {
    let (log2_e, round) = (a.float(LOG2_E), a.float(ROUND));
    let t = a.fma(x, log2_e, round);
    let n = a.sub(t, round);
    let (high, low) = (a.float(-LN2_HIGH), a.float(-LN2_LOW));
    let rest = a.fma(n, high, x);
    let r = a.fma(n, low, rest);
    ((n, a.bits(t)), r)
}

/// (exp(r) − 1 − r) / r² for |r| ≤ ln 2 / 2.
#[inline(always)]
pub(super) fn exp_tail<A: Arithmetic>(a: &mut A, r: A::Float) -> A::Float {
    a.polynomial([0.001_392_625_04, 0.008_363_232_95, 0.041_666_552_4, 0.166_665_763, 0.5], r)
}

/// exp(r) − 1 for |r| ≤ ln 2 / 2.
#[inline(always)]
fn expm1_reduced<A: Arithmetic>(a: &mut A, r: A::Float) -> A::Float {
    let (tail, square) = (exp_tail(a, r), a.mul(r, r));
    a.fma(square, tail, r)
}

/// e^x.
#[inline(always)]
pub fn exp<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let bounded = a.at_most(x, 89.0);
    exp_of_bounded(a, bounded)
}

/// e^x for x ≤ 89.
#[inline(always)]
fn exp_of_bounded<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let bounded = a.at_least(x, -104.0);
    let (n, r) = reduce_exp(a, bounded);
    let (p, one) = (expm1_reduced(a, r), a.float(1.0));
    let p = a.add(p, one);
    a.scaled(p, n)
}

/// e^x − 1 without cancellation.
#[inline(always)]
pub fn expm1<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let bounded = a.at_most(x, 89.0);
    let bounded = a.at_least(bounded, -20.0);
    let ((_, n), r) = reduce_exp(a, bounded);
    let p = expm1_reduced(a, r);
    // 2^n p + (2^n − 1), halved so that n = 128 does not overflow early.
    let one = a.int(1);
    let less = a.int_sub(n, one);
    let scale = power_of_two(a, less);
    let (half, two) = (a.float(0.5), a.float(2.0));
    let rest = a.sub(scale, half);
    let y = a.fma(p, scale, rest);
    let y = a.mul(y, two);
    // Also NaN, and −0 keeps its sign.
    let (size, tiny) = (a.abs(x), a.float(5.960_464_5e-8));
    let is_large = a.reaches(size, tiny);
    a.choose(is_large, y, x)
}

/// `(e, f)` with x = 2^e (1 + f) and 1 + f in [√½, √2), for positive x.
#[inline(always)]
fn split<A: Arithmetic>(a: &mut A, x: A::Float) -> (A::Float, A::Float) {
    let (normal, up) = (a.float(f32::MIN_POSITIVE), a.float(8_388_608.0));
    let is_small = a.is_less(x, normal);
    let larger = a.mul(x, up);
    let scaled = a.choose(is_small, larger, x);
    let (bits, root) = (a.bits(scaled), a.int(0x3f35_04f3));
    let moved = a.int_sub(bits, root);
    let exponent = a.shift_right(moved, 23);
    let (some, none) = (a.int(23), a.int(0));
    let added = a.choose_int(is_small, some, none);
    let exponent = a.int_sub(exponent, added);
    let fraction = a.int(0x007f_ffff);
    let fraction = a.int_and(moved, fraction);
    let bits = a.int_add(fraction, root);
    let (m, one) = (a.of_bits(bits), a.float(1.0));
    (a.int_to_float(exponent), a.sub(m, one))
}

/// e ln 2 + log(1 + f) + rest, where `rest` is tiny: with s = f / (2 + f), log(1 + f) = 2 atanh(s) = f − s (f − R(s²)).
#[inline(always)]
fn log_parts<A: Arithmetic>(a: &mut A, e: A::Float, f: A::Float, rest: A::Float) -> A::Float {
    let two = a.float(2.0);
    let sum = a.add(two, f);
    let s = a.div(f, sum);
    let z = a.mul(s, s);
    let r = a.polynomial([0.233_327_612, 0.285_507_351, 0.400_001_228, 0.666_666_687], z);
    let r = a.mul(r, z);
    let (low, high) = (a.float(LN2_LOW), a.float(LN2_HIGH));
    let low = a.fma(e, low, rest);
    let low = a.neg(low);
    let small = a.sub(f, r);
    let small = a.fma(small, s, low);
    let large = a.sub(f, small);
    a.fma(e, high, large)
}

/// The natural logarithm.
#[inline(always)]
pub fn log<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let ((e, f), zero) = (split(a, x), a.float(0.0));
    let y = log_parts(a, e, f, zero);
    log_at_edges(a, x, y)
}

/// `y`, or what the logarithm of `u` is at 0, infinity, negative numbers and NaN.
#[inline(always)]
fn log_at_edges<A: Arithmetic>(a: &mut A, u: A::Float, y: A::Float) -> A::Float {
    let (infinity, lowest, nan, zero) =
        (a.float(f32::INFINITY), a.float(f32::NEG_INFINITY), a.float(f32::NAN), a.float(0.0));
    let is_infinite = a.is_equal(u, infinity);
    let y = a.choose(is_infinite, u, y);
    let is_zero = a.is_equal(u, zero);
    let y = a.choose(is_zero, lowest, y);
    let is_defined = a.reaches(u, zero);
    a.choose(is_defined, y, nan)
}

/// log(1 + x) without cancellation.
#[inline(always)]
pub fn log1p<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let (one, zero) = (a.float(1.0), a.float(0.0));
    let u = a.add(one, x);
    // The rounding error of u, exactly.
    let back = a.sub(u, one);
    let lost = a.sub(u, back);
    let lost = a.sub(one, lost);
    let kept = a.sub(x, back);
    let error = a.add(lost, kept);
    let (e, f) = split(a, u);
    let is_near = a.is_equal(e, zero);
    let f = a.choose(is_near, x, f);
    let rest = a.div(error, u);
    let rest = a.choose(is_near, zero, rest);
    let y = log_parts(a, e, f, rest);
    let y = log_at_edges(a, u, y);
    let is_zero = a.is_equal(x, zero);
    a.choose(is_zero, x, y)
}

/// The hyperbolic tangent: t / (t + 2) with t = exp(2x) − 1.
#[inline(always)]
pub fn tanh<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let size = a.abs(x);
    let bounded = a.at_most(size, 10.0);
    let twice = a.add(bounded, bounded);
    let ((_, n), r) = reduce_exp(a, twice);
    let (p, scale, one) = (expm1_reduced(a, r), power_of_two(a, n), a.float(1.0));
    // 2^n (p + 1) − 1, which is p where n = 0.
    let less = a.sub(scale, one);
    let t = a.fma(p, scale, less);
    let two = a.float(2.0);
    let sum = a.add(t, two);
    let y = a.div(t, sum);
    a.copysign(y, x)
}

/// 1 / (1 + e^−x), without overflow on either side.
#[inline(always)]
pub fn sigmoid<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let size = a.abs(x);
    let below = a.neg(size);
    let e = exp_of_bounded(a, below);
    let (zero, one) = (a.float(0.0), a.float(1.0));
    let is_negative = a.is_less(x, zero);
    let above = a.choose(is_negative, e, one);
    let sum = a.add(one, e);
    a.div(above, sum)
}

/// What [`erf`] is from point to point of a grid with this distance.
const ERF_STEP: f32 = 0.254_989_624_023_437_5;

/// erf(i h + d) for step h and |d| ≤ h / 2 as a polynomial in d, the coefficient of the highest power first: those of i = 0, …, 15.
/// The last one but one is less by one at i = 0. Fitted by least squares of the error in ulp, where every coefficient is rounded
/// before the next ones are found; h is the step of its like for which the largest error is least.
#[rustfmt::skip]
static ERF: [Table; 6] = [
    [
        0.110_993_318, 0.079_765_997_8, 0.008_217_032_07, -0.054_868_925_4,
        -0.068_157_814_4, -0.043_860_036_9, -0.011_625_176_3, 0.008_181_761_02,
        0.013_008_000_3, 0.009_841_919_88, 0.005_327_275_95, 0.002_266_985_83,
        7.885_429_66e-4, 2.288_233_81e-4, 5.607_488_49e-5, 1.461_630_16e-4,
    ],
    [
        2.819_426_88e-4, 0.127_956_018, 0.182_504_892, 0.146_223_485,
        0.062_758_937_5, -0.011_637_881_4, -0.046_455_800_5, -0.046_663_951_1,
        -0.032_046_649_6, -0.016_705_986_1, -0.007_284_448_95, -0.002_898_279_81,
        -6.249_027_21e-4, 1.420_130_32e-5, 2.934_739_46e-4, 4.232_076_39e-5,
    ],
    [
        -0.376_141_548, -0.306_643_277, -0.139_230_087, 0.035_681_992_8,
        0.143_615_678, 0.166_633_144, 0.133_289_203, 0.083_526_484_7,
        0.042_932_763_7, 0.018_506_327_6, 0.006_774_516_78, 0.002_122_693_70,
        5.723_350_91e-4, 1.332_903_78e-4, 2.688_662_24e-5, 2.331_846_19e-6,
    ],
    [
        2.835_395_21e-7, -0.269_606_143, -0.443_666_190, -0.480_795_234,
        -0.406_669_497, -0.283_139_139, -0.166_173_235, -0.083_258_397_9,
        -0.035_875_897_9, -0.013_367_481_5, -0.004_316_400_27, -0.001_206_179_50,
        -2.997_289_99e-4, -6.762_315_75e-5, -1.864_045_41e-5, -2.903_814_45e-6,
    ],
    [
        0.128_379_166, 1.057_346_70, 0.869_970_322, 0.628_515_184,
        0.398_705_155, 0.222_081_587, 0.108_617_008, 0.046_645_280_0,
        0.017_589_042_0, 0.005_823_730_96, 0.001_693_109_63, 4.322_087_63e-4,
        9.687_837_88e-5, 1.906_711_99e-5, 3.295_098_17e-6, 5.068_484_94e-7,
    ],
    [
        0.0, 0.281_608_820, 0.529_225_588, 0.720_671_654,
        0.850_821_495, 0.928_619_444, 0.969_509_423, 0.988_406_062,
        0.996_084_332, 0.998_827_517, 0.999_689_162, 0.999_927_104,
        0.999_984_920, 0.999_997_258, 0.999_999_583, 0.999_999_940,
    ],
];

/// The error function: the odd one of polynomials between points of a grid.
#[inline(always)]
pub fn erf<A: Arithmetic>(a: &mut A, x: A::Float) -> A::Float {
    let size = a.abs(x);
    // From here on it is 1; and the last point of the grid is the nearest one.
    let size = a.at_most(size, 3.949_707);
    let (per_step, round, step) = (a.float(1.0 / ERF_STEP), a.float(ROUND), a.float(-ERF_STEP));
    let t = a.fma(size, per_step, round);
    let n = a.sub(t, round);
    let d = a.fma(n, step, size);
    let index = a.bits(t);
    let [c5, c4, c3, c2, c1, c0] = a.of_tables(&ERF, index);
    let y = [c4, c3, c2, c1].into_iter().fold(c5, |y, c| a.fma(y, d, c));
    // Near 0 it is d + y d, where c0 is 0 and less than d, so that small numbers lose no bits; elsewhere c0 is more.
    let base = a.greater(c0, d);
    let y = a.fma(y, d, base);
    a.copysign(y, x)
}
