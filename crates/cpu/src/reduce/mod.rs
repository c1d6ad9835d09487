//! Reductions in canonical order.
//!
//! Two ways to the same bits: along *rows* (`rows`), where the terms of one output lie behind each other and fill the lanes,
//! and over *columns* (`columns`, `lanes`), where outputs lie behind each other and whole rows of them are added at once.
//! Rows that lie behind each other are one matrix (`matrix`), which one loop runs through. With many outputs the threads share those; with few
//! they share the blocks, whose results wait in scratch memory for the tree.

mod beside;
mod columns;
#[cfg(target_arch = "x86_64")]
mod extrema_x86;
mod lanes;
mod matrix;
mod monoid;
mod rows;
#[cfg(target_arch = "x86_64")]
mod sums_x86;
#[cfg(test)]
mod tests;
mod trees;

use crate::operand::Shared;
use crate::walk::Walk;
use crate::{Context, Operand, Output};
pub(crate) use beside::{Combine, combine};
pub(crate) use columns::add_rows_by_tree;
use half::{bf16, f16};
pub(crate) use matrix::{reduce_blocks, reduce_rows};
use meshwork_graph::canonical::{Blocks, LANES};
use meshwork_graph::ops::{Reduce, ReduceOp};
use meshwork_graph::{DType, Layout};
pub use monoid::{Accumulate, Term};
pub(crate) use monoid::{Max, Min, Monoid, Prod, Sum};
use std::ops::Range;
pub(crate) use trees::{Lanes, TOGETHER, merge, results};

/// Terms per task below which further threads do not pay.
const GRAIN: usize = 1 << 15;
/// Parts of the blocks for each thread, at least, where threads share blocks.
const PARTS: usize = 8;
/// Terms that are gathered at once, a multiple of the lanes.
const GATHER: usize = 1024;
/// Runs of at least so many terms are added where they lie: their ends, lane by lane, take as long as many vectors.
const LONG: usize = 1024;
/// Up to so many terms it pays to gather columns of outputs that do not lie behind each other.
const SHORT: usize = 32;
/// Terms that are combined all at once, at least, where any order gives the same: a chain of comparisons would wait for itself.
const MANY: usize = 64;
/// Terms of a block of extrema by rows, at least: its end takes as long as hundreds of terms.
const EXTREMA: usize = 1 << 14;
/// Bytes of a row of columns that lie behind each other. Memory is faster the longer the pieces of rows are: over 10,000
/// columns of f32 pieces of 8, 20 and 40 KB took 20, 17 and 14 ms on two Zen 4 cores. Where blocks have so many terms that lanes
/// are stored, all of a tile fit into a second cache of 1 MiB, too; smaller ones were not measured with it.
const LANE_BYTES: usize = 40960;
/// The same where all terms are in the third cache: what becomes of blocks stays in the first one.
const NEAR_LANE_BYTES: usize = 4096;
/// So few terms are near anyway: long rows of them come by themselves.
const FEW_TERMS: usize = 16;
/// Bytes of terms that are there.
const NEAR: usize = 16 << 20;
/// The same for columns that are gathered: all lanes fit into the first cache.
const GATHERED_LANE_BYTES: usize = 1024;

/// In which order the elements are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Output by output.
    Rows,
    /// As `Rows`, where the terms of all outputs lie behind each other.
    Matrix,
    /// Term by term for many outputs.
    Columns,
}

/// How a reduction is done.
struct Plan {
    /// The outputs in row-major order, and where their terms start.
    kept: Walk,
    /// The terms of one output in row-major order.
    terms: Walk,
    blocks: Blocks,
    way: Way,
    /// Columns of a tile.
    width: usize,
    /// The threads share blocks instead of outputs.
    by_block: bool,
    /// So many blocks, a power of two, are one thread's, which hands over what becomes of all.
    together: usize,
}

impl Plan {
    fn new(op: &Reduce, dtype: DType, layout: &Layout, threads: usize) -> Self {
        let dim = |d: usize| (layout.shape[d], layout.strides[d]);
        let kept = Walk::over((0..layout.shape.rank()).filter(|d| !op.dims.contains(d)).map(dim));
        let terms = Walk::over(op.dims.iter().map(|&d| dim(d)));
        let mut blocks = op.blocks(&layout.shape);
        let (count, along) = terms.inner();
        let (outputs, apart) = kept.inner();
        let beside = apart == 1 && outputs >= 4 && !(along == 1 && count >= LANES);
        let short = terms.len() <= SHORT && outputs >= LANES;
        let is_extremum = matches!(op.op, ReduceOp::Max | ReduceOp::Min);
        let is_matrix = terms.is_dense() && kept.sizes.len() == 1 && apart == terms.len() as isize;
        // Extrema of rows that fill no lanes cost more at their ends.
        let matrix = is_matrix && !(is_extremum && terms.len() < LANES);
        let way = match () {
            () if beside => Way::Columns,
            () if matrix => Way::Matrix,
            () if short => Way::Columns,
            () => Way::Rows,
        };
        if is_extremum {
            // Any cut gives the same.
            let least = if way == Way::Columns { lanes::ROUND } else { EXTREMA };
            blocks.unit = blocks.unit.max(least.div_ceil(blocks.inner.max(1)));
        }
        let width = match apart {
            1 if layout.shape.numel() * dtype.size() <= NEAR || terms.len() <= FEW_TERMS => NEAR_LANE_BYTES,
            1 => LANE_BYTES,
            _ => GATHERED_LANE_BYTES,
        } / sum_size(dtype);
        let mut plan = Plan { kept, terms, blocks, way, width, by_block: false, together: 1 };
        let items = if way == Way::Columns { plan.column_tiles() } else { plan.kept.len() };
        plan.by_block =
            threads > 1 && blocks.count() > 1 && items < 4 * threads && plan.kept.len() * plan.terms.len() > 2 * GRAIN;
        if plan.by_block && way == Way::Columns {
            let least = blocks.count() / (PARTS * threads);
            plan.together = if least > 1 { 1 << least.ilog2() } else { 1 };
        }
        plan
    }

    /// Number of pieces that the outputs are cut into for the columns way.
    fn column_tiles(&self) -> usize {
        let (columns, _) = self.kept.inner();
        self.kept.len() / columns.max(1) * columns.div_ceil(self.width)
    }

    /// The outputs of a column tile.
    fn column_tile(&self, tile: usize) -> Range<usize> {
        let (columns, _) = self.kept.inner();
        let width = self.width;
        let per_row = columns.div_ceil(width);
        let (row, piece) = (tile / per_row, tile % per_row);
        row * columns + piece * width..row * columns + ((piece + 1) * width).min(columns)
    }

    /// Results that threads hand over for each output, where they share blocks.
    fn roots(&self) -> usize {
        self.blocks.count().div_ceil(self.together)
    }

    /// Number of the first term of a block, and how many it has.
    fn block(&self, block: usize) -> (usize, usize) {
        let outer = self.blocks.range(block);
        (outer.start * self.blocks.inner, outer.len() * self.blocks.inner)
    }
}

/// Size of the type that a dtype accumulates in.
fn sum_size(dtype: DType) -> usize {
    match dtype {
        DType::F16 | DType::BF16 => 4,
        other => other.size(),
    }
}

/// Bytes of scratch memory that [`run`] needs.
pub fn scratch(op: &Reduce, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    let plan = Plan::new(op, dtype, inputs[0], threads);
    if plan.by_block { plan.roots() * plan.kept.len() * sum_size(dtype) } else { 0 }
}

/// Computes the reduction; `scratch` has the size that [`scratch()`] says for these threads, aligned to 64 bytes.
///
/// # Panics
/// When shapes or dtypes do not fit, or `scratch` is too small.
pub fn run(op: &Reduce, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    let input = inputs[0];
    assert_eq!(input.dtype, output.dtype, "dtypes of a reduction");
    match input.dtype {
        DType::F64 => by_op::<f64>(op, input, output, scratch, context),
        DType::F32 => by_op::<f32>(op, input, output, scratch, context),
        DType::F16 => by_op::<f16>(op, input, output, scratch, context),
        DType::BF16 => by_op::<bf16>(op, input, output, scratch, context),
        DType::I64 => by_op::<i64>(op, input, output, scratch, context),
        DType::I32 => by_op::<i32>(op, input, output, scratch, context),
        DType::U8 | DType::Bool => by_op::<u8>(op, input, output, scratch, context),
    }
}

fn by_op<T: Term>(op: &Reduce, input: Operand, output: Output, scratch: &mut [u8], context: Context) {
    let plan = Plan::new(op, input.dtype, input.layout, context.par.lanes());
    assert_eq!(plan.kept.len(), output.shape.numel(), "elements of the result of a reduction");
    let needed = if plan.by_block { plan.roots() * plan.kept.len() * size_of::<T::Sum>() } else { 0 };
    assert!(
        scratch.len() >= needed && (needed == 0 || scratch.as_ptr().cast::<T::Sum>().is_aligned()),
        "scratch memory of a reduction: {} bytes instead of {needed}",
        scratch.len()
    );
    // SAFETY: the offset is that of an element.
    let first = unsafe { input.bytes().add(input.layout.offset * input.dtype.size()) };
    let job = Job::<T> {
        plan,
        first: Shared(first.cast_mut().cast()),
        output: Shared(output.bytes().cast()),
        roots: Shared(scratch.as_mut_ptr().cast()),
        context,
    };
    match op.op {
        ReduceOp::Sum => job.run(Sum),
        ReduceOp::Prod => job.run(Prod),
        ReduceOp::Max => job.run(Max),
        ReduceOp::Min => job.run(Min),
    }
}

struct Job<'a, T: Term> {
    plan: Plan,
    first: Shared<T>,
    output: Shared<T>,
    /// Results of blocks: `[output][block]` by rows, `[block][output]` by columns.
    roots: Shared<T::Sum>,
    context: Context<'a>,
}

impl<T: Term> Job<'_, T> {
    fn run<M: Monoid<T::Sum>>(&self, op: M) {
        let outputs = self.plan.kept.len();
        if self.plan.terms.is_empty() {
            // SAFETY: these are all outputs.
            unsafe { self.output.slice(0, outputs) }.fill(T::narrow(M::identity()));
        } else if outputs == 0 {
        } else {
            match self.plan.way {
                Way::Matrix if !self.plan.by_block => self.matrix(op),
                Way::Matrix | Way::Rows => self.rows(op),
                Way::Columns => self.columns(op),
            }
        }
    }
}
