//! Microkernels for AVX2, 6 × 2 vectors: 12 sums, 2 right-hand vectors and one broadcast fill 15 of 16 registers.

use super::loops::{microkernel, table};
use super::x86::{anchor_pd, anchor_ps, splat_pd, splat_ps};
use std::arch::x86_64::*;

microkernel!(
    #[target_feature(enable = "avx2,fma")]
    avx2_f32: f32, __m256, 8, _mm256_setzero_ps(), _mm256_loadu_ps, _mm256_storeu_ps, splat_ps,
    |a, b, c| _mm256_fmadd_ps(a, b, c), _mm256_add_ps, anchor_ps, 0, 0, false
);
table!(AVX2_F32, f32, avx2_f32, false, [1 2 3 4 5 6], [], []);

microkernel!(
    #[target_feature(enable = "avx2,fma")]
    avx2_f64: f64, __m256d, 4, _mm256_setzero_pd(), _mm256_loadu_pd, _mm256_storeu_pd, splat_pd,
    |a, b, c| _mm256_fmadd_pd(a, b, c), _mm256_add_pd, anchor_pd, 0, 0, false
);
table!(AVX2_F64, f64, avx2_f64, false, [1 2 3 4 5 6], [], []);
