//! What instruction sets differ in.

use super::program::{Builder, Source};
use crate::math::Table;
use iced_x86::{Code as X86, Register};

pub const SIGN: u32 = 0x8000_0000;
pub const ONE: u32 = 0x3f80_0000;

/// The bit of a mode of rounding that asks for no exception where the result is not exact.
pub const NO_EXCEPTION: u8 = 8;

/// An instruction set that there is machine code for. Floats of any dtype are held as a vector of f32, bools as a mask.
pub trait Target: Sized {
    const CODES: Codes;
    /// Elements of a vector.
    const LANES: usize;
    /// The first of the registers for vectors, and their number.
    const VECTORS: (Register, u32);
    /// Whether masks have registers of their own and stand beside instructions, and constants are one number in memory.
    const HAS_MASKS: bool;
    /// The instruction for x · 2ⁿ, with n as a float.
    const SCALE: Option<X86>;

    /// The first register by the name that stands for the part that an operand of an instruction works on, if that is not
    /// a whole vector.
    fn part(code: X86, operand: u32) -> Option<Register>;

    /// The bools at an address.
    fn load_bools(code: &mut Builder<Self>, address: u16) -> Source;

    /// Stores bools at an address.
    fn store_bools(code: &mut Builder<Self>, address: u16, mask: Source);

    /// Stores values of bf16, which have been rounded before, at an address.
    fn store_bf16(code: &mut Builder<Self>, address: u16, value: Source);

    fn not(code: &mut Builder<Self>, mask: Source) -> Source;

    /// `x` where the mask is set, else zero.
    fn within(code: &mut Builder<Self>, mask: Source, x: Source) -> Source;

    /// `a` where the mask is set, else `b`.
    fn blend(code: &mut Builder<Self>, mask: Source, a: Source, b: Source) -> Source;

    /// The greater or the less of two numbers, zeros ordered by their signs; anything where one is NaN.
    fn extremum(code: &mut Builder<Self>, is_max: bool, a: Source, b: Source) -> Source;

    /// The first number with the sign of the second.
    fn copysign(code: &mut Builder<Self>, size: Source, sign: Source) -> Source;

    /// The numbers of tables at the lowest four bits of an index.
    fn of_tables<const N: usize>(code: &mut Builder<Self>, tables: &'static [Table; N], index: Source) -> [Source; N];
}

/// Instructions that all targets have.
#[derive(Clone, Copy, Debug)]
pub struct Codes {
    pub load: X86,
    pub store: X86,
    pub store_past_caches: X86,
    pub broadcast: X86,
    pub copy: X86,
    /// 16 bits to 32.
    pub widen: X86,
    pub from_f16: X86,
    pub to_f16: X86,
    pub add: X86,
    pub sub: X86,
    pub mul: X86,
    pub div: X86,
    pub sqrt: X86,
    pub round: X86,
    /// The second number where one is NaN, or both are zero.
    pub min: X86,
    pub max: X86,
    pub compare: X86,
    /// a · b + c, of which the result takes the place of a.
    pub fma_over_a: X86,
    /// The same with c first, whose place the result takes.
    pub fma_over_c: X86,
    pub int_to_float: X86,
    pub int_add: X86,
    pub int_sub: X86,
    pub and: X86,
    pub or: X86,
    pub xor: X86,
    pub mask_and: X86,
    pub mask_or: X86,
    pub mask_xor: X86,
    pub shift_left: X86,
    /// Zeros come from above.
    pub shift_right: X86,
    /// The sign comes from above.
    pub shift_right_signed: X86,
}
