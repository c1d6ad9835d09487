//! Attention, forward and backward, without the matrix of scores.
//!
//! Queries are taken in *units* of [`UNIT`] positions, keys in *blocks* of [`BLOCK`], both by global index. The scores of a
//! unit by a block are a tile that stays in the caches. A unit computes with the keys up to the end of the unit of
//! positions in which its causal mask ends (and up to that in which the sample ends); what is beyond is skipped, and what
//! is masked before it has a weight of +0.
//!
//! # Order
//!
//! - A score is the sum over features of key times (scale times query, rounded), in the order of a contraction
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
//!   order, each one chain from +0 over the unit's queries.
//! - +0 is added to what is stored: a sum of zeros has no sign.
//!
//! Nothing of that depends on tiles, threads or instructions. f16 and bf16 are computed in f32 and rounded once.
//!
//! # Tiles
//!
//! Scores have keys as rows and queries as columns. So keys and values are read where they lie (or from a copy of their
//! rows, where they are not dense or narrow), only a unit's queries and gradients are transposed, and a softmax is made of
//! the chains of independent lanes. All products are those of `gemm`'s microkernels.
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
//! What short sequences lose: the triangle is covered by whole units, a fifth more pairs at 128 positions than are seen; a
//! softmax takes a fifth of the time, and so does copying rows in and out, which lie a cache line or two at a time.

mod backward;
mod call;
mod forward;
mod plan;
mod rows;
mod softmax;
mod tile;

use crate::number::for_float;
pub use rows::is_readable;
pub use softmax::UNIT;

use crate::gemm::Element;
use crate::kernel::Outputs;
use crate::{Context, Operand};
use call::Call;
use meshwork_graph::ops::Attention;
use meshwork_graph::{DType, Layout};
use softmax::Number;

/// Keys of a block.
pub const BLOCK: usize = 64;

/// Bytes of scratch memory for [`run`], for queries of a dtype.
pub fn scratch(op: &Attention, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    for_float!("attention", dtype, scratch_of(op, inputs, threads))
}

fn scratch_of<S: Element<Real: Number>>(op: &Attention, inputs: &[&Layout], threads: usize) -> usize {
    let plan = plan::Plan::new::<S>(op, inputs, threads);
    plan.bytes::<S::Real>() * plan.slots()
}

/// Computes all results of the operation; operands are readable as [`is_readable`] says.
pub fn run(op: &Attention, inputs: &[Operand], outputs: Outputs, scratch: &mut [u8], context: Context) {
    for_float!("attention", inputs[0].dtype, run_of(op, inputs, outputs, scratch, context))
}

fn run_of<S: Element<Real: Number>>(
    op: &Attention,
    inputs: &[Operand],
    outputs: Outputs,
    scratch: &mut [u8],
    context: Context,
) {
    let call = Call::<S>::new(op, inputs, &outputs, context);
    if op.results[0].is_gradient() { backward::run(&call, scratch) } else { forward::run(&call, scratch) }
}
