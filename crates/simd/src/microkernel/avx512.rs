//! Microkernels for AVX-512, 12 × 2 vectors: 24 sums of 32 registers.

use super::loops::{microkernel, table};
use super::x86::{anchor512_pd, anchor512_ps, splat512_pd, splat512_ps};
use std::arch::x86_64::*;

microkernel!(
    #[target_feature(enable = "avx512f")]
    avx512_f32: f32, __m512, 16, _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, splat512_ps,
    |a, b, c| _mm512_fmadd_ps(a, b, c), _mm512_add_ps, anchor512_ps, 8, 12, false
);
table!(AVX512_F32, f32, avx512_f32, false, [1 2 3 4 5 6 7 8 9 10 11 12], [], []);

microkernel!(
    #[target_feature(enable = "avx512f")]
    avx512_f64: f64, __m512d, 8, _mm512_setzero_pd(), _mm512_loadu_pd, _mm512_storeu_pd, splat512_pd,
    |a, b, c| _mm512_fmadd_pd(a, b, c), _mm512_add_pd, anchor512_pd, 8, 12, false
);
table!(AVX512_F64, f64, avx512_f64, false, [1 2 3 4 5 6 7 8 9 10 11 12], [], []);
