//! What the functions of this folder are written in: one definition of each, which computes a number, and from which machine
//! code for vectors is made.

use super::functions;

/// Numbers to choose from.
pub type Table = [f32; 16];

/// Arithmetic on f32, or on whatever stands for them. Every operation rounds once, to the nearest.
pub trait Arithmetic {
    type Float: Copy;
    /// 32 bits.
    type Int: Copy;
    type Mask: Copy;

    fn float(&mut self, x: f32) -> Self::Float;
    fn add(&mut self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn sub(&mut self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn mul(&mut self, a: Self::Float, b: Self::Float) -> Self::Float;
    fn div(&mut self, a: Self::Float, b: Self::Float) -> Self::Float;
    /// a · b + c.
    fn fma(&mut self, a: Self::Float, b: Self::Float, c: Self::Float) -> Self::Float;
    /// x · 2ⁿ for −150 ≤ n ≤ 128 and x between ½ and 2. `n` is given as a float, and by the bits of 1.5 · 2²³ + n.
    fn scaled(&mut self, x: Self::Float, n: (Self::Float, Self::Int)) -> Self::Float;
    /// `most` where x is greater, else x, which may be NaN.
    fn at_most(&mut self, x: Self::Float, most: f32) -> Self::Float;
    /// `least` where x is less, else x, which may be NaN.
    fn at_least(&mut self, x: Self::Float, least: f32) -> Self::Float;
    fn abs(&mut self, x: Self::Float) -> Self::Float;
    fn neg(&mut self, x: Self::Float) -> Self::Float;
    fn copysign(&mut self, size: Self::Float, sign: Self::Float) -> Self::Float;
    /// The greater; anything where one is NaN.
    fn greater(&mut self, a: Self::Float, b: Self::Float) -> Self::Float;

    fn is_less(&mut self, a: Self::Float, b: Self::Float) -> Self::Mask;
    /// Whether a ≥ b.
    fn reaches(&mut self, a: Self::Float, b: Self::Float) -> Self::Mask;
    fn is_equal(&mut self, a: Self::Float, b: Self::Float) -> Self::Mask;
    /// `a` where the mask is set, else `b`.
    fn choose(&mut self, mask: Self::Mask, a: Self::Float, b: Self::Float) -> Self::Float;

    fn int(&mut self, x: u32) -> Self::Int;
    fn bits(&mut self, x: Self::Float) -> Self::Int;
    fn of_bits(&mut self, x: Self::Int) -> Self::Float;
    fn int_to_float(&mut self, x: Self::Int) -> Self::Float;
    fn int_add(&mut self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn int_sub(&mut self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn int_and(&mut self, a: Self::Int, b: Self::Int) -> Self::Int;
    fn shift_left(&mut self, x: Self::Int, bits: u8) -> Self::Int;
    /// The sign comes from above.
    fn shift_right(&mut self, x: Self::Int, bits: u8) -> Self::Int;
    fn choose_int(&mut self, mask: Self::Mask, a: Self::Int, b: Self::Int) -> Self::Int;

    /// The number that every table has at the lowest four bits of `index`.
    fn of_tables<const N: usize>(&mut self, tables: &'static [Table; N], index: Self::Int) -> [Self::Float; N];

    /// c₀ rᵏ + … + cₖ.
    #[inline(always)]
    fn polynomial<const N: usize>(&mut self, coefficients: [f32; N], r: Self::Float) -> Self::Float {
        let mut sum = self.float(coefficients[0]);
        for &next in &coefficients[1..] {
            let next = self.float(next);
            sum = self.fma(sum, r, next);
        }
        sum
    }
}

/// Numbers themselves.
pub struct Plain;

impl Arithmetic for Plain {
    type Float = f32;
    type Int = i32;
    type Mask = bool;

    #[inline(always)]
    fn float(&mut self, x: f32) -> f32 {
        x
    }

    #[inline(always)]
    fn add(&mut self, a: f32, b: f32) -> f32 {
        a + b
    }

    #[inline(always)]
    fn sub(&mut self, a: f32, b: f32) -> f32 {
        a - b
    }

    #[inline(always)]
    fn mul(&mut self, a: f32, b: f32) -> f32 {
        a * b
    }

    #[inline(always)]
    fn div(&mut self, a: f32, b: f32) -> f32 {
        a / b
    }

    #[inline(always)]
    fn fma(&mut self, a: f32, b: f32, c: f32) -> f32 {
        a.mul_add(b, c)
    }

    #[inline(always)]
    fn scaled(&mut self, x: f32, (_, n): (f32, i32)) -> f32 {
        functions::scaled(self, x, n)
    }

    #[inline(always)]
    fn at_most(&mut self, x: f32, most: f32) -> f32 {
        if x > most { most } else { x }
    }

    #[inline(always)]
    fn at_least(&mut self, x: f32, least: f32) -> f32 {
        if x < least { least } else { x }
    }

    #[inline(always)]
    fn abs(&mut self, x: f32) -> f32 {
        x.abs()
    }

    #[inline(always)]
    fn neg(&mut self, x: f32) -> f32 {
        -x
    }

    #[inline(always)]
    fn copysign(&mut self, size: f32, sign: f32) -> f32 {
        size.copysign(sign)
    }

    #[inline(always)]
    fn greater(&mut self, a: f32, b: f32) -> f32 {
        if a > b { a } else { b }
    }

    #[inline(always)]
    fn is_less(&mut self, a: f32, b: f32) -> bool {
        a < b
    }

    #[inline(always)]
    fn reaches(&mut self, a: f32, b: f32) -> bool {
        a >= b
    }

    #[inline(always)]
    fn is_equal(&mut self, a: f32, b: f32) -> bool {
        a == b
    }

    #[inline(always)]
    fn choose(&mut self, mask: bool, a: f32, b: f32) -> f32 {
        if mask { a } else { b }
    }

    #[inline(always)]
    fn int(&mut self, x: u32) -> i32 {
        x as i32
    }

    #[inline(always)]
    fn bits(&mut self, x: f32) -> i32 {
        x.to_bits() as i32
    }

    #[inline(always)]
    fn of_bits(&mut self, x: i32) -> f32 {
        f32::from_bits(x as u32)
    }

    #[inline(always)]
    fn int_to_float(&mut self, x: i32) -> f32 {
        x as f32
    }

    #[inline(always)]
    fn int_add(&mut self, a: i32, b: i32) -> i32 {
        a.wrapping_add(b)
    }

    #[inline(always)]
    fn int_sub(&mut self, a: i32, b: i32) -> i32 {
        a.wrapping_sub(b)
    }

    #[inline(always)]
    fn int_and(&mut self, a: i32, b: i32) -> i32 {
        a & b
    }

    #[inline(always)]
    fn shift_left(&mut self, x: i32, bits: u8) -> i32 {
        x << bits
    }

    #[inline(always)]
    fn shift_right(&mut self, x: i32, bits: u8) -> i32 {
        x >> bits
    }

    #[inline(always)]
    fn choose_int(&mut self, mask: bool, a: i32, b: i32) -> i32 {
        if mask { a } else { b }
    }

    #[inline(always)]
    fn of_tables<const N: usize>(&mut self, tables: &'static [Table; N], index: i32) -> [f32; N] {
        std::array::from_fn(|i| tables[i][(index & 15) as usize])
    }
}
