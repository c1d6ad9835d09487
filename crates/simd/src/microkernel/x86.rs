//! What microkernels for x86-64 are made of besides instructions.

use std::arch::x86_64::*;

/// One number in all lanes, from memory.
macro_rules! splat {
    ($name:ident, $feature:literal, $number:ty, $vector:ty, $set:path) => {
        #[inline]
        #[target_feature(enable = $feature)]
        pub(super) unsafe fn $name(x: *const $number) -> $vector {
            // SAFETY: the caller promises a readable number.
            $set(unsafe { *x })
        }
    };
}

macro_rules! anchor {
    ($name:ident, $feature:literal, $class:ident, $vector:ty) => {
        /// Nothing to a processor; compilers move no instruction across it that it depends on.
        ///
        /// # Safety
        /// The processor must have the instructions.
        #[inline]
        #[target_feature(enable = $feature)]
        pub fn $name(sum: &mut $vector) {
            // SAFETY: no instruction.
            unsafe { std::arch::asm!("/* {0} */", inout($class) * sum, options(nomem, nostack, preserves_flags)) }
        }
    };
}

anchor!(anchor_ps, "avx2,fma", ymm_reg, __m256);
anchor!(anchor_pd, "avx2,fma", ymm_reg, __m256d);
anchor!(anchor512_ps, "avx512f", zmm_reg, __m512);
anchor!(anchor512_pd, "avx512f", zmm_reg, __m512d);

splat!(splat_ps, "avx2,fma", f32, __m256, _mm256_set1_ps);
splat!(splat_pd, "avx2,fma", f64, __m256d, _mm256_set1_pd);
splat!(splat512_ps, "avx512f", f32, __m512, _mm512_set1_ps);
splat!(splat512_pd, "avx512f", f64, __m512d, _mm512_set1_pd);
