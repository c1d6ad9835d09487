//! f16 and bf16 from and to f32 in integer arithmetic without branches, so that loops over them vectorise.

use half::{bf16, f16};

/// The value of an f16.
#[inline(always)]
pub fn f16_to_f32(x: f16) -> f32 {
    let bits = u32::from(x.to_bits());
    // Read as an f32 of a too small exponent; the product puts normal and subnormal numbers right.
    let scaled = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits(0x7780_0000);
    let special = if bits & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
    f32::from_bits(scaled.to_bits() | special | (bits & 0x8000) << 16)
}

/// The nearest f16, ties to even.
#[inline(always)]
pub fn f16_from_f32(x: f32) -> f16 {
    let bits = x.to_bits();
    let size = bits & 0x7fff_ffff;
    let normal = size.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (size >> 13 & 1)) >> 13;
    // At 0.5 an f32 has the resolution of subnormal f16.
    let subnormal = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let y = if size < 0x3880_0000 { subnormal } else { normal };
    let y = if size >= 0x477f_f000 { 0x7c00 } else { y };
    let y = if size > 0x7f80_0000 { 0x7e00 | (size >> 13 & 0x3ff) } else { y };
    f16::from_bits((y | (bits >> 16 & 0x8000)) as u16)
}

/// The f16 next to `x` toward zero.
#[inline(always)]
pub fn f16_toward_zero(x: f32) -> f16 {
    let y = f16_from_f32(x);
    let back = f16_to_f32(y).abs() > x.abs();
    f16::from_bits(y.to_bits() - u16::from(back))
}

/// The value of a bf16.
#[inline(always)]
pub fn bf16_to_f32(x: bf16) -> f32 {
    f32::from_bits(u32::from(x.to_bits()) << 16)
}

/// The nearest bf16, ties to even.
#[inline(always)]
pub fn bf16_from_f32(x: f32) -> bf16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let y = if bits & 0x7fff_ffff > 0x7f80_0000 { bits >> 16 | 0x40 } else { rounded };
    bf16::from_bits(y as u16)
}

/// The bf16 next to `x` toward zero.
#[inline(always)]
pub fn bf16_toward_zero(x: f32) -> bf16 {
    bf16::from_bits((x.to_bits() >> 16) as u16)
}

/// `x` rounded to odd: exact values stay, others take the neighbour whose last bit is 1. Rounding the result once
/// more to fewer digits gives what rounding `x` itself gives.
#[inline(always)]
pub fn round_to_odd(x: f64) -> f32 {
    let y = x as f32;
    let wide = f64::from(y);
    let toward_zero = y.to_bits().wrapping_sub(u32::from(wide.abs() > x.abs()));
    if wide == x || x.is_nan() { y } else { f32::from_bits(toward_zero | 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (f16_to_f32(f16::from_bits(bits)), f16::from_bits(bits).to_f32());
            assert!(ours.to_bits() == theirs.to_bits() || ours.is_nan() && theirs.is_nan(), "{bits:#x}");
            if !ours.is_nan() {
                assert_eq!(f16_from_f32(ours).to_bits(), bits);
                assert_eq!(f16_toward_zero(ours).to_bits(), bits);
            }
            let b = bf16::from_bits(bits);
            assert!(bf16_to_f32(b).to_bits() == b.to_f32().to_bits() || b.is_nan());
        }
    }

    #[test]
    fn rounding_is_to_nearest_even() {
        for bits in (0..=u32::MAX).step_by(997).chain((0..1 << 19).map(|i| i << 13 | 0x1000)) {
            let x = f32::from_bits(bits);
            let (a, b) = (f16_from_f32(x), f16::from_f32_const(x));
            assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{x:e}");
            let (a, b) = (bf16_from_f32(x), bf16::from_f32(x));
            assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{x:e}");
        }
    }

    #[test]
    fn doubles_are_rounded_once() {
        // Just above the middle of two f16: the detour over f32 rounds to the middle and then to even.
        let x = 1.0 + 2f64.powi(-11) + 2f64.powi(-40);
        assert_eq!(f16_from_f32(round_to_odd(x)).to_bits(), 0x3c01);
        assert_eq!(f16_from_f32(round_to_odd(1.0 + 2f64.powi(-11))).to_bits(), 0x3c00);
        assert_eq!(bf16_from_f32(round_to_odd(-(1.0 + 2f64.powi(-8) + 2f64.powi(-50)))).to_bits(), 0xbf81);
        assert!(bf16_from_f32(round_to_odd(f64::NAN)).is_nan());
        assert_eq!(bf16_from_f32(round_to_odd(f64::INFINITY)), bf16::INFINITY);
        assert_eq!(f16_from_f32(round_to_odd(1e300)), f16::INFINITY);
        assert_eq!(f16_from_f32(round_to_odd(-1e-300)).to_bits(), 0x8000);
    }
}
