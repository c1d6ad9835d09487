//! Microkernels for AVX-512 on Zen 4, 8 × 1 or 4 × 2 vectors.
//!
//! Zen 4 multiplies and adds a vector a cycle, for which eight sums are enough, and each vector that leaves the registers costs one
//! and a half of these cycles, wherever it stands: 8 × 1 or 4 × 2 sums of four blocks stay in 24 registers. Additions cost nothing
//! beside multiply-adds that take the left number from memory, and 0.4 cycles beside ones that take it from a register, for which a
//! load has broadcast it. Panels of the right side come from the second cache as fast as 4 × 2 sums need them, as long as nothing
//! else takes its time.

use super::loops::{microkernel, table};
use super::x86::{anchor512_pd, anchor512_ps, splat512_pd, splat512_ps};
use std::arch::x86_64::*;

microkernel!(
    #[target_feature(enable = "avx512f")]
    low_f32: f32, __m512, 16, _mm512_setzero_ps(), _mm512_loadu_ps, _mm512_storeu_ps, splat512_ps,
    |a, b, c| _mm512_fmadd_ps(a, b, c), _mm512_add_ps, anchor512_ps, 8, 0, true
);
table!(LOW_F32, f32, low_f32, false, [1 2 3 4], [5 6 7 8], []);
table!(TALL_F32, f32, low_f32, false, [], [], [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]);
table!(LOW_COPYING_F32, f32, low_f32, true, [1 2 3 4], [5 6 7 8], []);

microkernel!(
    #[target_feature(enable = "avx512f")]
    low_f64: f64, __m512d, 8, _mm512_setzero_pd(), _mm512_loadu_pd, _mm512_storeu_pd, splat512_pd,
    |a, b, c| _mm512_fmadd_pd(a, b, c), _mm512_add_pd, anchor512_pd, 8, 0, true
);
table!(LOW_F64, f64, low_f64, false, [1 2 3 4], [5 6 7 8], []);
table!(TALL_F64, f64, low_f64, false, [], [], [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16]);
table!(LOW_COPYING_F64, f64, low_f64, true, [1 2 3 4], [5 6 7 8], []);
