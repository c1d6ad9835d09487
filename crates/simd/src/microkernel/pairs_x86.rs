//! Microkernels for pairs of bf16 with AVX-512 BF16.
//!
//! A number of a panel is two terms here, the first one in its upper half. `vdpbf16ps` adds the product of the upper
//! halves to a sum, then that of the lower ones, and rounds each of the two sums to the nearest (Intel, *Architecture
//! Instruction Set Extensions Programming Reference*): a product of bf16 is exact, so these are the fused
//! multiply-adds of a chain, in order. It takes subnormal numbers for zeros, though, where it reads and where it
//! writes, so that it is for numbers of which the caller knows that none can come about.

use super::Table;
use super::loops::{microkernel, table};
use super::x86::{anchor512_ps, splat512_ps};
use std::arch::x86_64::*;
use std::sync::OnceLock;

/// The fast microkernels, and those for any numbers.
pub fn tables() -> [Table<f32>; 2] {
    [if multiplies_pairs() { NATIVE } else { EMULATED }, EXACT]
}

/// Whether the processor has the instruction, and it does what is said above.
pub fn multiplies_pairs() -> bool {
    static RESULT: OnceLock<bool> = OnceLock::new();
    *RESULT.get_or_init(|| {
        let there = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16");
        // SAFETY: the processor has the instructions.
        there && unsafe { native_is_as_emulated() }
    })
}

/// Two fused multiply-adds a pair.
#[inline]
#[target_feature(enable = "avx512f")]
fn exact(a: __m512, b: __m512, sum: __m512) -> __m512 {
    let sum = _mm512_fmadd_ps(upper(a), upper(b), sum);
    _mm512_fmadd_ps(lower(a), lower(b), sum)
}

/// The instruction.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn native(a: __m512, b: __m512, sum: __m512) -> __m512 {
    // SAFETY: vectors of as many bits, of which any are valid.
    let [a, b] = unsafe { std::mem::transmute::<[__m512; 2], [__m512bh; 2]>([a, b]) };
    _mm512_dpbf16_ps(sum, a, b)
}

/// What the instruction does. Not inlined: a microkernel would have hundreds of copies to compile.
#[inline(never)]
#[target_feature(enable = "avx512f")]
fn emulated(a: __m512, b: __m512, sum: __m512) -> __m512 {
    let sum = _mm512_fmadd_ps(flush(upper(a)), flush(upper(b)), flush(sum));
    flush(_mm512_fmadd_ps(flush(lower(a)), flush(lower(b)), flush(sum)))
}

/// The upper halves as numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn upper(pairs: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-1 << 16)))
}

/// The lower halves as numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn lower(pairs: __m512) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_castps_si512(pairs)))
}

/// Subnormal numbers become zeros of their sign.
#[inline]
#[target_feature(enable = "avx512f")]
fn flush(x: __m512) -> __m512 {
    let bits = _mm512_castps_si512(x);
    let tiny = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7f80_0000));
    _mm512_castsi512_ps(_mm512_mask_and_epi32(bits, tiny, bits, _mm512_set1_epi32(i32::MIN)))
}

/// Compares bits of the instruction and its emulation, on numbers whose sums depend on every rounding and on the order.
#[target_feature(enable = "avx512f,avx512bf16")]
fn native_is_as_emulated() -> bool {
    /// Rounds of sixteen sums.
    const ROUNDS: u32 = 512;
    let mut state = 1u32;
    // Any sign and fraction, exponents of 2^-8 to 2^7, and zeros.
    let mut half = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let bits = state >> 8;
        let exponent = 119 + (bits >> 12 & 15);
        if bits & 0xf00 == 0 { bits << 15 & 0x8000 } else { bits << 15 & 0x8000 | exponent << 7 | bits >> 1 & 0x7f }
    };
    let mut numbers = || {
        let pairs: [u32; 16] = std::array::from_fn(|_| half() << 16 | half());
        // SAFETY: sixteen numbers.
        unsafe { _mm512_loadu_ps(pairs.as_ptr().cast()) }
    };
    let mut sum = numbers();
    (0..ROUNDS).all(|round| {
        let (a, b) = (numbers(), numbers());
        let [found, expected] = [native(a, b, sum), emulated(a, b, sum)];
        sum = if round % 8 == 0 { numbers() } else { found };
        _mm512_cmpeq_epi32_mask(_mm512_castps_si512(found), _mm512_castps_si512(expected)) == 0xffff
    })
}

macro_rules! pairs {
    ($feature:literal, $name:ident, $table:ident, $dot:ident, $together:tt, $paired:tt) => {
        microkernel!(
            #[target_feature(enable = $feature)]
            $name: f32, __m512, 16, _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, splat512_ps,
            |a, b, sum| $dot(a, b, sum), _mm512_add_ps, anchor512_ps, $together, $paired, false
        );
        table!($table, f32, $name, false, [1 2 3 4 5 6 7 8 9 10 11 12], [], []);
    };
}

pairs!("avx512f,avx512bf16", native_pairs, NATIVE, native, 8, 12);
pairs!("avx512f", emulated_pairs, EMULATED, emulated, 0, 0);
pairs!("avx512f", exact_pairs, EXACT, exact, 0, 0);
