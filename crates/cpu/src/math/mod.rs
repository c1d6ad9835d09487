//! Our own f32 functions: branch-free, with fused multiply-adds, so that a loop over them vectorises and gives the same bits in
//! the vector body, in the tail and at every level. What machine code can do is defined once, in `functions.rs`, for numbers and
//! for code.
//!
//! Coefficients are near-minimax (Chebyshev interpolation in 40-digit arithmetic over the reduced range,
//! rounded to f32); reductions follow Cody and Waite. Largest errors, measured by the tests below against f64:
//!
//! | function | ulp | | function | ulp |
//! |---|---|---|---|---|
//! | `exp` | 1.01 | | `cos` | 1.55 |
//! | `expm1` | 1.55 | | `tanh` | 2.31 |
//! | `log` | 0.83 | | `sigmoid` | 2.27 |
//! | `log1p` | 0.84 | | `erf` | 1.22 |
//! | `sin` | 1.54 | | `pow` | 0.51 |
//!
//! Square root and reciprocal are the processor's, which are exact to the last bit. f64 functions are those of the
//! `libm` crate, which are the same everywhere.

// Coefficients are written with the digits that identify the f32; some are near well-known constants.
#![allow(clippy::excessive_precision, clippy::approx_constant)]

mod arithmetic;
pub(crate) mod functions;

pub(crate) use arithmetic::{Arithmetic, Table};

use arithmetic::Plain;
use functions::{ROUND, exp_tail, power_of_two, reduce_exp};

/// 1.5 · 2⁵²: adding it rounds to an integer, which then is in the low bits.
const ROUND_WIDE: f64 = 6_755_399_441_055_744.0;

/// A function of numbers from its definition.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name(x: f32) -> f32 {
            functions::$name(&mut Plain, x)
        })*
    };
}

plain! {
    /// e^x.
    exp
    /// e^x − 1 without cancellation.
    expm1
    /// The natural logarithm.
    log
    /// log(1 + x) without cancellation.
    log1p
    /// The hyperbolic tangent.
    tanh
    /// 1 / (1 + e^−x), without overflow on either side.
    sigmoid
    /// The error function.
    erf
}

/// e^x for x ≤ 0, as a softmax needs it: [`exp`] without what only larger numbers need. Below −87, where f32 begin to be
/// subnormal, it is +0.
#[inline(always)]
pub fn exp_not_above_zero(x: f32) -> f32 {
    let bounded = if x < -87.0 { -87.0 } else { x };
    let ((_, n), r) = reduce_exp(&mut Plain, bounded);
    let y = ((r * r).mul_add(exp_tail(&mut Plain, r), r) + 1.0) * power_of_two(&mut Plain, n);
    if x < -87.0 { 0.0 } else { y }
}

/// Beyond this the reduction of sine and cosine runs out of digits; larger arguments take the slow path.
pub const TRIGONOMETRIC_LIMIT: f32 = 1e5;

/// `(n, r)` with x = n π/2 + r and |r| ≤ π/4 for |x| ≤ 10⁵: the first product is cancelled exactly.
#[inline(always)]
fn reduce_pi(x: f32) -> (i32, f32) {
    let t = x.mul_add(0.636_619_747, ROUND);
    let n = t - ROUND;
    let r = n.mul_add(-1.570_796_370_506_286_6, x);
    let r = n.mul_add(4.371_138_828_673_793e-8, r);
    let r = n.mul_add(1.715_124_510_005_881_9e-15, r);
    ((t.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32), r)
}

#[inline(always)]
fn sin_reduced(r: f32, z: f32) -> f32 {
    let p = 2.724_378_19e-6_f32.mul_add(z, -0.000_198_400_39);
    let p = p.mul_add(z, 0.008_333_331_91).mul_add(z, -0.166_666_672);
    (z * r).mul_add(p, r)
}

#[inline(always)]
fn cos_reduced(z: f32) -> f32 {
    let p = -2.729_583_17e-7_f32;
    let p = p.mul_add(z, 2.480_055_99e-5).mul_add(z, -0.001_388_888_81).mul_add(z, 0.041_666_667_9);
    (z * z).mul_add(p, z.mul_add(-0.5, 1.0))
}

/// Sine of quadrant `n` and rest `r`.
#[inline(always)]
fn sin_of_quadrant(n: i32, r: f32) -> f32 {
    let z = r * r;
    let y = if n & 1 == 0 { sin_reduced(r, z) } else { cos_reduced(z) };
    f32::from_bits(y.to_bits() ^ ((n as u32 & 2) << 30))
}

/// Sine for |x| ≤ [`TRIGONOMETRIC_LIMIT`].
#[inline(always)]
pub fn sin_near(x: f32) -> f32 {
    let (n, r) = reduce_pi(x);
    let y = sin_of_quadrant(n, r);
    if x == 0.0 { x } else { y }
}

/// Cosine for |x| ≤ [`TRIGONOMETRIC_LIMIT`].
#[inline(always)]
pub fn cos_near(x: f32) -> f32 {
    let (n, r) = reduce_pi(x);
    sin_of_quadrant(n.wrapping_add(1), r)
}

/// Whether sine and cosine of `x` take the slow path.
#[inline(always)]
pub fn is_far(x: f32) -> bool {
    x.abs() > TRIGONOMETRIC_LIMIT
}

/// Sine of any number.
pub fn sin(x: f32) -> f32 {
    if is_far(x) { libm::sin(x.into()) as f32 } else { sin_near(x) }
}

/// Cosine of any number.
pub fn cos(x: f32) -> f32 {
    if is_far(x) { libm::cos(x.into()) as f32 } else { cos_near(x) }
}

/// `x` to the power of `y` with C's rules at the edges. Logarithm and exponential run in f64.
#[inline(always)]
pub fn pow(x: f32, y: f32) -> f32 {
    let a = x.abs();
    let t = f64::from(y) * log2_wide(a);
    let t = if t > 200.0 { 200.0 } else { t };
    let t = if t < -200.0 { -200.0 } else { t };
    let y_is_whole = y.trunc() == y;
    let half = y * 0.5;
    let y_is_odd = y_is_whole && half.trunc() != half;
    let size = exp2_wide(t);
    let size = if x < 0.0 && a < f32::INFINITY && !y_is_whole { f32::NAN } else { size };
    let size = if t.is_nan() { f32::NAN } else { size };
    let size = if a == 1.0 && (x > 0.0 || y.is_infinite()) { 1.0 } else { size };
    let size = if y == 0.0 { 1.0 } else { size };
    if y_is_odd && x.is_sign_negative() { -size } else { size }
}

/// The base-2 logarithm of a non-negative f32 in f64, to about 50 bits; NaN stays NaN.
#[inline(always)]
fn log2_wide(x: f32) -> f64 {
    let wide = f64::from(x);
    let moved = wide.to_bits().wrapping_sub(0x3fe6_a09e_667f_3bcd);
    // The exponent as a double without a 64-bit conversion: it is put into the low bits of 1.5 · 2^52.
    let exponent = (moved as i64 >> 52) as u64;
    // To f64 without a conversion of 64-bit integers: the exponent is added to the low bits of 1.5 · 2⁵².
    let e = f64::from_bits(ROUND_WIDE.to_bits().wrapping_add(exponent)) - ROUND_WIDE;
    let m = f64::from_bits((moved & 0x000f_ffff_ffff_ffff).wrapping_add(0x3fe6_a09e_667f_3bcd));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let p = 0.282_928_211_886_632_03_f64.mul_add(z, 0.319_903_942_470_341_65).mul_add(z, 0.412_209_289_579_810_1);
    let p = p.mul_add(z, 0.577_077_942_057_682).mul_add(z, 0.961_796_694_114_164_5).mul_add(z, 2.885_390_081_777_849_5);
    let y = p.mul_add(s, e);
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x < f32::INFINITY { y } else { wide }
}

/// 2^t for |t| ≤ 200, rounded to f32.
#[inline(always)]
fn exp2_wide(t: f64) -> f32 {
    let moved = t + ROUND_WIDE;
    let r = t - (moved - ROUND_WIDE);
    let p = 1.325_530_450_336_741_3e-6_f64.mul_add(r, 1.531_019_433_917_332_2e-5);
    let p = p.mul_add(r, 0.000_154_034_555_535_738_18).mul_add(r, 0.001_333_345_013_657_559);
    let p = p.mul_add(r, 0.009_618_129_159_714_186).mul_add(r, 0.055_504_109_416_557_555);
    let p = p.mul_add(r, 0.240_226_506_958_122_1).mul_add(r, 0.693_147_180_545_820_9).mul_add(r, 1.0);
    // The integer sits in the low bits of `moved`; shifted up it is the exponent.
    let scale = f64::from_bits((moved.to_bits().wrapping_add(1023)) << 52);
    (p * scale) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distance of `got` from the exact `want` in units of the last place of f32 at `want`.
    fn ulps(got: f32, want: f64) -> f64 {
        let rounded = want as f32;
        if rounded.is_nan() || rounded.is_infinite() || got.is_nan() || got.is_infinite() {
            let same = got.is_nan() && rounded.is_nan() || got == rounded;
            return if same { 0.0 } else { f64::INFINITY };
        }
        let exponent = (((want.abs().to_bits() >> 52) as i32) - 1023).max(-126);
        (f64::from(got) - want).abs() / 2f64.powi(exponent - 23)
    }

    /// The largest error over floats of every exponent and both signs, `step` bit patterns apart.
    fn worst(step: usize, function: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        for bits in (0..=u32::MAX).step_by(step) {
            let x = f32::from_bits(bits);
            let error = ulps(function(x), exact(x.into()));
            if error > worst.0 {
                worst = (error, x);
            }
        }
        worst
    }

    fn check(name: &str, limit: f64, function: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) {
        let (error, x) = worst(1013, function, exact);
        println!("{name}: {error:.3} ulp at {x:e}");
        assert!(error <= limit, "{name}({x:e}) is {error:.3} ulp off, more than {limit}");
    }

    #[test]
    fn exponentials_and_logarithms_are_as_exact_as_stated() {
        check("exp", 1.1, exp, libm::exp);
        check("expm1", 1.6, expm1, libm::expm1);
        check("log", 0.9, log, libm::log);
        check("log1p", 0.9, log1p, libm::log1p);
    }

    #[test]
    fn the_exponential_of_a_softmax_is_the_exponential_or_zero() {
        for bits in (0x8000_0000..=0xff80_0000u32).step_by(397).chain([0]) {
            let x = f32::from_bits(bits);
            let expected = if x < -87.0 { 0.0 } else { exp(x) };
            assert_eq!(exp_not_above_zero(x).to_bits(), expected.to_bits(), "{x}");
        }
        assert!(exp_not_above_zero(f32::NAN).is_nan());
    }

    #[test]
    fn sine_and_cosine_are_as_exact_as_stated() {
        check("sin", 1.6, sin, libm::sin);
        check("cos", 1.6, cos, libm::cos);
        // Close to multiples of π/2 the rest has few digits left.
        for n in 1..70_000 {
            let x = (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32;
            for x in [x, f32::from_bits(x.to_bits() + 1), f32::from_bits(x.to_bits() - 1)] {
                assert!(ulps(sin(x), libm::sin(x.into())) <= 2.0, "sin({x})");
                assert!(ulps(cos(x), libm::cos(x.into())) <= 2.0, "cos({x})");
            }
        }
    }

    #[test]
    fn sigmoidal_functions_are_as_exact_as_stated() {
        check("tanh", 2.4, tanh, libm::tanh);
        check("sigmoid", 2.4, sigmoid, |x| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) });
        check("erf", 1.22, erf, libm::erf);
        // It is least exact where one polynomial follows another.
        for i in 0..15 {
            let border = ((i as f32 + 0.5) * 0.254_989_62).to_bits();
            for x in (border - 20_000..border + 20_000).map(f32::from_bits) {
                assert!(ulps(erf(x), libm::erf(x.into())) <= 1.22, "erf({x})");
            }
        }
    }

    #[test]
    fn powers_are_as_exact_as_stated() {
        let mut worst = (0.0, 0.0, 0.0);
        for i in 0..4000 {
            // Bases over all exponents, exponents that keep the result finite and some that do not.
            let x = f32::from_bits(0x7f80_0000 / 4000 * i + i);
            for j in 0..500 {
                let y = (j as f32 - 250.0) * 0.37 / (1.0 + x.log2().abs() * 0.05);
                let error = ulps(pow(x, y), libm::pow(x.into(), y.into()));
                if error > worst.0 {
                    worst = (error, x, y);
                }
            }
        }
        println!("pow: {:.3} ulp at {:e}, {}", worst.0, worst.1, worst.2);
        assert!(worst.0 <= 0.6, "pow({:e}, {}) is {} ulp off", worst.1, worst.2, worst.0);
    }

    const SPECIAL: [f32; 20] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        2.0,
        -2.0,
        3.0,
        -3.0,
        1e-45,
        -1e-45,
        1e-38,
        f32::MAX,
        f32::MIN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        16_777_217.0,
        -8_388_609.0,
    ];

    #[test]
    fn edges_are_those_of_c() {
        type Pair = (&'static str, fn(f32) -> f32, fn(f64) -> f64);
        let functions: [Pair; 9] = [
            ("exp", exp, libm::exp),
            ("expm1", expm1, libm::expm1),
            ("log", log, libm::log),
            ("log1p", log1p, libm::log1p),
            ("sin", sin, libm::sin),
            ("cos", cos, libm::cos),
            ("tanh", tanh, libm::tanh),
            ("erf", erf, libm::erf),
            ("sigmoid", sigmoid, |x| 1.0 / (1.0 + libm::exp(-x))),
        ];
        for (name, ours, exact) in functions {
            for x in SPECIAL {
                let (got, want) = (ours(x), exact(x.into()));
                assert!(ulps(got, want) <= 2.5, "{name}({x}) = {got}, not {want}");
                if want == 0.0 && name != "sigmoid" {
                    assert_eq!(got.to_bits(), (want as f32).to_bits(), "sign of {name}({x})");
                }
            }
        }
        for x in SPECIAL {
            for y in SPECIAL {
                let (got, want) = (pow(x, y), libm::pow(x.into(), y.into()) as f32);
                let same = got.is_nan() && want.is_nan() || got.to_bits() == want.to_bits();
                assert!(same, "pow({x}, {y}) = {got}, not {want}");
            }
        }
    }
}
