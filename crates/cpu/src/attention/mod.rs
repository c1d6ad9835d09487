//! Attention, forward and backward, without the matrix of scores.
//!
//! Queries are taken in *units* of [`UNIT`] positions, keys in *blocks* of [`BLOCK`], both by global index. The scores of a
//! unit by a block are a tile that stays in the caches. A unit computes with the keys up to the end of the unit of
//! positions in which its causal mask ends (and up to that in which the sample ends); what is beyond is skipped, and what
//! is masked before it has a weight of +0.
//!
//! # Order
//!
//! - A score is the scale times the sum over features of key times query, in the order of a contraction
//!   (`Blocks::contraction`, features). So is the product of a value and a gradient, over the value's features.
//! - Forward, for each query over the blocks of keys in order: the highest score so far; exponentials of the scores less
//!   that, and their sum from +0 in the order of the keys; the sum over the block's keys of exponential times value, one
//!   chain of fused multiply-adds from +0. Sums of the blocks before are multiplied by the exponential of (highest before
//!   less highest now), and the block's are added: fused for the exponentials, not fused for the values. At the end the
//!   sum of values is multiplied by the reciprocal of the sum of exponentials. (Online softmax: Milakov and Gimelshein,
//!   2018; FlashAttention: Dao et al., 2022; Dao, 2023.)
//! - Backward, weights are exponentials of the scores less the normalizer, slopes are weight · (product of value and gradient −
//!   delta). The gradient by a query is the sum over blocks of keys in order, each one chain from +0, times the scale.
//!   The gradient by a key, and by a value, is a sum over the query heads of its group in order, and over their units in
//!   order, each one chain from +0 over the unit's queries; that by a key is multiplied by the scale at the end.
//! - With bf16 exponentials, weights and slopes are rounded to bf16 where they are multiplied by values, gradients, keys or
//!   queries, as in FlashAttention. Their sum is that of the exponentials before they are rounded.
//! - +0 is added to what is stored: a sum of zeros has no sign.
//!
//! Nothing of that depends on tiles, threads or instructions. What is not said above to be rounded is f32 for f16 and bf16,
//! and rounded once at the end.
//!
//! # Tiles
//!
//! Scores have keys as rows and queries as columns. So keys and values are read where they lie (or from a copy of their
//! rows, where they are not dense or narrow), only a unit's queries and gradients are transposed, and a softmax is made of
//! the chains of independent lanes. All products are those of `gemm`'s microkernels.
//!
//! Where there are microkernels for pairs of bf16 ([`crate::gemm`]), operands of bf16 are copied as pairs along the terms of
//! the product that needs them, and tiles of exponentials, weights and slopes are made pairs of keys or of queries (`pairs`).
//!
//! # Floor
//!
//! Forward takes 2 (D + E) floating-point operations and one exponential for each pair of a query and a key that it sees,
//! backward 2 (3 D + 2 E) and one exponential, of about 1 cycle each in vectors of 8 numbers; all operands and results
//! pass once through memory. On two Zen 3 cores (`kernel_speed 2 attention`: causal, f32, only pairs that are seen count;
//! shares of what the cores do in registers, 119 GFLOP/s in this one run on a shared machine), samples × positions × heads ×
//! features:
//!
//! | | forward | share of the peak | backward | share of the peak |
//! |---|---|---|---|---|
//! | 16 × 128 × 8 × 32 | 3.7 ms | 31 % | 8.5 ms | 33 % |
//! | 16 × 128 × 8 × 64 | 6.6 ms | 35 % | 19.4 ms | 29 % |
//! | 2 × 1024 × 8 × 64 | 27.8 ms | 65 % | 75.7 ms | 59 % |
//! | 1 × 1024 × 8 × 128 | 24.0 ms | 75 % | 64.8 ms | 69 % |
//!
//! On two Zen 4 cores (AVX-512 with BF16; shares of 233 GFLOP/s in f32, the peak of pairs is 466), the better of two runs, with the
//! time that bf16 took when it was computed as f32:
//!
//! | | f32 forward | backward | bf16 forward | as f32 | backward | as f32 |
//! |---|---|---|---|---|---|---|
//! | 16 × 128 × 8 × 32 | 1.36 ms, 43 % | 3.99 ms, 36 % | 1.18 ms, 49 % | 1.33 ms | 2.71 ms, 54 % | 3.07 ms |
//! | 16 × 128 × 8 × 64 | 3.06 ms, 38 % | 6.58 ms, 44 % | 2.05 ms, 57 % | 2.35 ms | 4.64 ms, 63 % | 5.53 ms |
//! | 2 × 1024 × 8 × 64 | 13.0 ms, 71 % | 31.3 ms, 74 % | 8.61 ms, 107 % | 12.3 ms | 20.3 ms, 114 % | 29.3 ms |
//! | 1 × 1024 × 8 × 128 | 12.2 ms, 76 % | 29.9 ms, 77 % | 7.15 ms, 129 % | 11.8 ms | 18.3 ms, 127 % | 28.9 ms |
//!
//! What short sequences lose: the triangle is covered by whole units, a fifth more pairs at 128 positions than are seen; a
//! softmax takes a fifth of the time, and so does copying rows in and out, which lie a cache line or two at a time.

mod ahead;
mod backward;
mod call;
mod forward;
mod pairs;
mod plan;
mod rows;
mod softmax;
mod tile;

use crate::number::for_float;
pub use rows::is_readable;
pub use softmax::UNIT;

use crate::kernel::Outputs;
use crate::{Context, Operand};
use call::Call;
use meshwork_graph::ops::Attention;
use meshwork_graph::{DType, Layout};
use softmax::Input;

/// Keys of a block.
pub const BLOCK: usize = 64;

/// Bytes of scratch memory for [`run`], for queries of a dtype.
pub fn scratch(op: &Attention, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    for_float!("attention", dtype, scratch_of(op, inputs, threads))
}

fn scratch_of<S: Input>(op: &Attention, inputs: &[&Layout], threads: usize) -> usize {
    let plan = plan::Plan::new::<S>(op, inputs, threads);
    plan.bytes::<S::Real>() * plan.slots()
}

/// Computes all results of the operation; operands are readable as [`is_readable`] says.
pub fn run(op: &Attention, inputs: &[Operand], outputs: Outputs, scratch: &mut [u8], context: Context) {
    for_float!("attention", inputs[0].dtype, run_of(op, inputs, outputs, scratch, context))
}

fn run_of<S: Input>(op: &Attention, inputs: &[Operand], outputs: Outputs, scratch: &mut [u8], context: Context) {
    let call = Call::<S>::new(op, inputs, &outputs, context);
    if op.results[0].is_gradient() { backward::run(&call, scratch) } else { forward::run(&call, scratch) }
}
