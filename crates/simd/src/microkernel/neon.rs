//! Microkernels for Advanced SIMD: 8 × 2 vectors, 16 sums of 32 registers.

use super::loops::{anchor, microkernel, table};
use std::arch::aarch64::*;

microkernel!(
    #[target_feature(enable = "neon")]
    neon_f32: f32, float32x4_t, 4, vdupq_n_f32(0.0), vld1q_f32, vst1q_f32, vld1q_dup_f32,
    |a, b, c| vfmaq_f32(c, a, b), vaddq_f32, anchor, 0, 0, false
);
table!(NEON_F32, f32, neon_f32, false, [1 2 3 4 5 6 7 8], [], []);

microkernel!(
    #[target_feature(enable = "neon")]
    neon_f64: f64, float64x2_t, 2, vdupq_n_f64(0.0), vld1q_f64, vst1q_f64, vld1q_dup_f64,
    |a, b, c| vfmaq_f64(c, a, b), vaddq_f64, anchor, 0, 0, false
);
table!(NEON_F64, f64, neon_f64, false, [1 2 3 4 5 6 7 8], [], []);
