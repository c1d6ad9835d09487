//! Microkernels for AVX2 (6 × 2 vectors: 12 sums, 2 right-hand vectors and one broadcast fill 15 of 16 registers) and
//! AVX-512 (12 × 2 vectors: 24 sums of 32 registers; on Zen 4 8 × 1 or 4 × 2, below).

use super::microkernel::{microkernel, table};
use std::arch::x86_64::*;

/// One number in all lanes, from memory.
macro_rules! splat {
    ($name:ident, $feature:literal, $number:ty, $vector:ty, $set:path) => {
        #[inline]
        #[target_feature(enable = $feature)]
        pub unsafe fn $name(x: *const $number) -> $vector {
            // SAFETY: the caller promises a readable number.
            $set(unsafe { *x })
        }
    };
}

/// Nothing to a processor; compilers move no instruction across it that it depends on.
macro_rules! anchor {
    ($name:ident, $feature:literal, $class:ident, $vector:ty) => {
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

microkernel!(
    #[target_feature(enable = "avx2,fma")]
    avx2_f32: f32, __m256, 8, _mm256_setzero_ps(), _mm256_loadu_ps, _mm256_storeu_ps, splat_ps,
    |a, b, c| _mm256_fmadd_ps(a, b, c), _mm256_add_ps, anchor_ps, 0, false
);
table!(AVX2_F32, f32, avx2_f32, false, [1 2 3 4 5 6], [], []);

microkernel!(
    #[target_feature(enable = "avx2,fma")]
    avx2_f64: f64, __m256d, 4, _mm256_setzero_pd(), _mm256_loadu_pd, _mm256_storeu_pd, splat_pd,
    |a, b, c| _mm256_fmadd_pd(a, b, c), _mm256_add_pd, anchor_pd, 0, false
);
table!(AVX2_F64, f64, avx2_f64, false, [1 2 3 4 5 6], [], []);

microkernel!(
    #[target_feature(enable = "avx512f")]
    avx512_f32: f32, __m512, 16, _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, splat512_ps,
    |a, b, c| _mm512_fmadd_ps(a, b, c), _mm512_add_ps, anchor512_ps, 8, false
);
table!(AVX512_F32, f32, avx512_f32, false, [1 2 3 4 5 6 7 8 9 10 11 12], [], []);

microkernel!(
    #[target_feature(enable = "avx512f")]
    avx512_f64: f64, __m512d, 8, _mm512_setzero_pd(), _mm512_loadu_pd, _mm512_storeu_pd, splat512_pd,
    |a, b, c| _mm512_fmadd_pd(a, b, c), _mm512_add_pd, anchor512_pd, 8, false
);
table!(AVX512_F64, f64, avx512_f64, false, [1 2 3 4 5 6 7 8 9 10 11 12], [], []);

// Zen 4 multiplies and adds a vector a cycle, for which eight sums are enough, and each vector that leaves the registers costs one
// and a half of these cycles, wherever it stands: 8 × 1 or 4 × 2 sums of four blocks stay in 24 registers. Additions cost nothing
// beside multiply-adds that take the left number from memory, and 0.4 cycles beside ones that take it from a register, for which a
// load has broadcast it. Panels of the right side come from the second cache as fast as 4 × 2 sums need them, as long as nothing
// else takes its time.
microkernel!(
    #[target_feature(enable = "avx512f")]
    low_f32: f32, __m512, 16, _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, splat512_ps,
    |a, b, c| _mm512_fmadd_ps(a, b, c), _mm512_add_ps, anchor512_ps, 8, true
);
table!(LOW_F32, f32, low_f32, false, [1 2 3 4], [5 6 7 8], []);
table!(TALL_F32, f32, low_f32, false, [], [], [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]);
table!(LOW_COPYING_F32, f32, low_f32, true, [1 2 3 4], [5 6 7 8], []);

microkernel!(
    #[target_feature(enable = "avx512f")]
    low_f64: f64, __m512d, 8, _mm512_setzero_pd(), _mm512_loadu_pd, _mm512_storeu_pd, splat512_pd,
    |a, b, c| _mm512_fmadd_pd(a, b, c), _mm512_add_pd, anchor512_pd, 8, true
);
table!(LOW_F64, f64, low_f64, false, [1 2 3 4], [5 6 7 8], []);
table!(TALL_F64, f64, low_f64, false, [], [], [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]);
table!(LOW_COPYING_F64, f64, low_f64, true, [1 2 3 4], [5 6 7 8], []);
