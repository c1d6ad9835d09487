//! Reductions in canonical order.
//!
//! Two ways to the same bits: along *rows*, where the terms of one output lie behind each other and fill the lanes,
//! and over *columns*, where outputs lie behind each other and whole rows of them are added at once. Rows that lie
//! behind each other are one matrix, which one loop runs through. With many outputs the threads share those; with few
//! they share the blocks, whose results wait in scratch memory for the tree.

mod monoid;
#[cfg(test)]
mod tests;

use crate::multiversion;
use crate::operand::Shared;
use crate::walk::Walk;
use crate::{Context, Level, Operand, Output};
use half::{bf16, f16};
use meshwork_graph::canonical::{Blocks, LANES, in_tree_order, lane_tree};
use meshwork_graph::ops::{Reduce, ReduceOp};
use meshwork_graph::{DType, Layout};
pub use monoid::{Accumulate, Term};
pub(crate) use monoid::{Max, Min, Monoid, Prod, Sum};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Terms per task below which further threads do not pay.
const GRAIN: usize = 1 << 15;
/// Terms that are gathered at once, a multiple of the lanes.
const GATHER: usize = 1024;
/// Runs of at least so many terms are added where they lie.
const LONG: usize = 256;
/// Up to so many terms it pays to gather columns of outputs that do not lie behind each other.
const SHORT: usize = 32;
/// Rows of up to so many terms are reduced as a matrix.
const MATRIX: usize = 4096;
/// Terms that are combined all at once, at least, where any order gives the same: a chain of comparisons would wait for itself.
const MANY: usize = 64;
/// Terms of a block of extrema by rows, at least, which may be cut anywhere: its end takes as long as hundreds of terms.
const EXTREMA: usize = 1 << 14;
/// Bytes of one lane of columns that lie behind each other. Memory is faster the longer the pieces of rows are: over 10,000
/// columns of f32 pieces of 8, 20 and 40 KB take 20, 17 and 14 ms on two Zen 4 cores. All lanes of a tile fit into a second
/// cache of 1 MiB, too; smaller ones were not measured with it.
const LANE_BYTES: usize = 40960;
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
        // Extrema cost more at the end of a row than in its lanes, and take the other ways.
        let matrix = !is_extremum
            && terms.is_dense()
            && kept.sizes.len() == 1
            && apart == terms.len() as isize
            && terms.len() <= MATRIX;
        let way = match () {
            () if beside => Way::Columns,
            () if matrix => Way::Matrix,
            () if short => Way::Columns,
            () => Way::Rows,
        };
        if is_extremum && way == Way::Rows {
            blocks.unit = blocks.unit.max(EXTREMA.div_ceil(blocks.inner.max(1)));
        }
        let width = if apart == 1 { LANE_BYTES } else { GATHERED_LANE_BYTES } / sum_size(dtype);
        let mut plan = Plan { kept, terms, blocks, way, width, by_block: false };
        let items = if way == Way::Columns { plan.column_tiles() } else { plan.kept.len() };
        plan.by_block =
            threads > 1 && blocks.count() > 1 && items < 4 * threads && plan.kept.len() * plan.terms.len() > 2 * GRAIN;
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
    if plan.by_block { plan.blocks.count() * plan.kept.len() * sum_size(dtype) } else { 0 }
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
    let needed = if plan.by_block { plan.blocks.count() * plan.kept.len() * size_of::<T::Sum>() } else { 0 };
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

    fn matrix<M: Monoid<T::Sum>>(&self, op: M) {
        let terms = self.plan.terms.len();
        self.context.par.ranges(self.plan.kept.len(), GRAIN / terms + 1, &|range| {
            // SAFETY: the plan says that the terms lie behind each other; this task owns these outputs.
            let (rows, out) = unsafe {
                let rows = self.first.pointer().add(range.start * terms);
                (std::slice::from_raw_parts(rows, range.len() * terms), self.output.slice(range.start, range.len()))
            };
            reduce_rows(self.context.level, op, rows, terms, self.plan.block(0).1, out);
        });
    }

    fn rows<M: Monoid<T::Sum>>(&self, op: M) {
        let (outputs, blocks) = (self.plan.kept.len(), self.plan.blocks.count());
        let par = self.context.par;
        if !self.plan.by_block {
            let grain = GRAIN / self.plan.terms.len() + 1;
            return par.ranges(outputs, grain, &|range| {
                let mut buffer = [M::identity(); GATHER];
                for output in range {
                    if blocks == 1 {
                        let root = self.row_block(op, output, 0, &mut buffer);
                        // SAFETY: this task owns the output.
                        unsafe { *self.output.pointer().add(output) = T::narrow(root) };
                        continue;
                    }
                    let mut tree = Tree::<T::Sum>::new();
                    for block in 0..blocks {
                        tree.push(self.row_block(op, output, block, &mut buffer), M::combine);
                    }
                    // SAFETY: this task owns the output.
                    unsafe { *self.output.pointer().add(output) = T::narrow(tree.finish(M::combine)) };
                }
            });
        }
        let grain = GRAIN / self.plan.block(0).1 + 1;
        par.ranges(outputs * blocks, grain, &|range| {
            let mut buffer = [M::identity(); GATHER];
            for item in range {
                let root = self.row_block(op, item / blocks, item % blocks, &mut buffer);
                // SAFETY: this task owns the root.
                unsafe { *self.roots.pointer().add(item) = root };
            }
        });
        par.ranges(outputs, GRAIN / blocks + 1, &|range| {
            for output in range {
                // SAFETY: this task owns the output and its roots.
                let roots = unsafe { self.roots.slice(output * blocks, blocks) };
                in_tree_order(blocks, |left, right| roots[left] = M::combine(roots[left], roots[right]));
                // SAFETY: as above.
                unsafe { *self.output.pointer().add(output) = T::narrow(roots[0]) };
            }
        });
    }

    /// The result of one block of one output.
    fn row_block<M: Monoid<T::Sum>>(
        &self,
        op: M,
        output: usize,
        block: usize,
        buffer: &mut [T::Sum; GATHER],
    ) -> T::Sum {
        let terms = &self.plan.terms;
        let (start, count) = self.plan.block(block);
        let level = self.context.level;
        let mut lanes = [M::identity(); LANES];
        // SAFETY: the positions are those of elements.
        unsafe {
            let first = self.first.pointer().offset(self.plan.kept.position(output));
            let (run, stride) = terms.inner();
            if stride == 1 && (run >= LONG || terms.sizes.len() == 1) {
                terms.runs(start, count, |done, position, count, _| {
                    let run = std::slice::from_raw_parts(first.offset(position), count);
                    add_terms(level, op, &mut lanes, done % LANES, run);
                });
            } else {
                for done in (0..count).step_by(GATHER) {
                    let buffer = &mut buffer[..GATHER.min(count - done)];
                    terms.gather(first, start + done, buffer, T::widen);
                    add_sums(level, op, &mut lanes, buffer);
                }
            }
        }
        lane_tree(lanes, M::combine)
    }

    fn columns<M: Monoid<T::Sum>>(&self, op: M) {
        let (outputs, blocks) = (self.plan.kept.len(), self.plan.blocks.count());
        let tiles = self.plan.column_tiles();
        let (par, level) = (self.context.par, self.context.level);
        let columns = self.plan.width.min(self.plan.kept.inner().0);
        if !self.plan.by_block {
            let grain = GRAIN / (self.plan.terms.len() * columns) + 1;
            return par.ranges(tiles, grain, &|range| {
                let mut lanes = vec![M::identity(); LANES * columns];
                let mut tree = RowTree::new(columns, blocks, M::identity());
                for tile in range {
                    let place = self.plan.column_tile(tile);
                    for block in 0..blocks {
                        let root = self.column_block(op, &place, block, &mut lanes);
                        tree.push(root, |left, right| merge_rows(level, op, left, right));
                    }
                    let root = tree.finish(place.len(), |left, right| merge_rows(level, op, left, right));
                    // SAFETY: this task owns the outputs of its tiles.
                    narrow_row(level, root, unsafe { self.output.slice(place.start, place.len()) });
                }
            });
        }
        let grain = GRAIN / (self.plan.block(0).1 * columns) + 1;
        par.ranges(tiles * blocks, grain, &|range| {
            let mut lanes = vec![M::identity(); LANES * columns];
            for item in range {
                let (block, tile) = (item / tiles, item % tiles);
                let place = self.plan.column_tile(tile);
                let root = self.column_block(op, &place, block, &mut lanes);
                // SAFETY: this task owns the roots of this tile and block.
                unsafe { self.roots.slice(block * outputs + place.start, place.len()) }.copy_from_slice(root);
            }
        });
        par.ranges(outputs, GRAIN / blocks + 1, &|range| {
            // SAFETY: this task owns these outputs and their roots.
            let row = |block: usize| unsafe { self.roots.slice(block * outputs + range.start, range.len()) };
            in_tree_order(blocks, |left, right| merge_rows(level, op, row(left), row(right)));
            // SAFETY: as above.
            narrow_row(level, row(0), unsafe { self.output.slice(range.start, range.len()) });
        });
    }

    /// The results of one block for neighbouring outputs.
    fn column_block<'b, M: Monoid<T::Sum>>(
        &self,
        op: M,
        outputs: &Range<usize>,
        block: usize,
        lanes: &'b mut [T::Sum],
    ) -> &'b [T::Sum] {
        let (start, count) = self.plan.block(block);
        let (columns, level) = (outputs.len(), self.context.level);
        let lanes = &mut lanes[..LANES * columns];
        // SAFETY: the positions are those of elements.
        let first = unsafe { self.first.pointer().offset(self.plan.kept.position(outputs.start)) };
        let (_, apart) = self.plan.kept.inner();
        let mut gathered = [MaybeUninit::<T>::uninit(); GATHERED_LANE_BYTES];
        self.plan.terms.runs(start, count, |done, position, run, stride| {
            if apart == 1 && stride == columns as isize {
                // SAFETY: as above; the rows lie behind each other.
                let rows = unsafe { std::slice::from_raw_parts(first.offset(position), run * columns) };
                let (fresh, further) = rows.split_at(LANES.saturating_sub(done).min(run) * columns);
                let lane = done % LANES * columns;
                start_row(level, op, &mut lanes[lane..lane + fresh.len()], fresh);
                return add_rows(level, op, lanes, (lane + fresh.len()) % (LANES * columns), further);
            }
            for i in 0..run {
                let lane = (done + i) % LANES * columns;
                let lane = &mut lanes[lane..lane + columns];
                // SAFETY: as above. Outputs that do not lie behind each other are brought there.
                let row = unsafe {
                    let from = first.offset(position + i as isize * stride);
                    let row = if apart == 1 {
                        from
                    } else {
                        for (j, to) in gathered[..columns].iter_mut().enumerate() {
                            to.write(*from.offset(j as isize * apart));
                        }
                        gathered.as_ptr().cast()
                    };
                    std::slice::from_raw_parts(row, columns)
                };
                if done + i < LANES { start_row(level, op, lane, row) } else { add_row(level, op, lane, row) }
            }
        });
        // The lane tree; lanes without terms change nothing and are left out.
        let mut used = count.min(LANES);
        let mut half = LANES / 2;
        while half > 0 {
            if used > half {
                let (left, right) = lanes.split_at_mut(half * columns);
                let merged = (used - half) * columns;
                merge_rows(level, op, &mut left[..merged], &right[..merged]);
                used = half;
            }
            half /= 2;
        }
        &lanes[..columns]
    }
}

/// Adds up `count` rows that lie behind each other by the tree of adjacent pairs, and stores the sum.
///
/// # Safety
/// `rows` must be there, aligned, used by nobody else, and of the output's type.
///
/// # Panics
/// When that is not f32 or f64.
pub(crate) unsafe fn add_rows_by_tree(rows: *mut u8, count: usize, output: &Output, level: Level) {
    fn of<T: Accumulate>(rows: *mut u8, count: usize, output: &Output, level: Level) {
        let (width, rows) = (output.shape.numel(), Shared(rows.cast::<T>()));
        // SAFETY: the caller's rows, of which `in_tree_order` names two different ones at a time.
        let row = |i: usize| unsafe { rows.slice(i * width, width) };
        in_tree_order(count, |left, right| merge_rows(level, Sum, row(left), row(right)));
        // SAFETY: the output has room for a row.
        unsafe { Shared(output.bytes().cast::<T>()).slice(0, width) }.copy_from_slice(row(0));
    }
    match output.dtype {
        DType::F32 => of::<f32>(rows, count, output, level),
        DType::F64 => of::<f64>(rows, count, output, level),
        other => panic!("parts of a sum of {other}"),
    }
}

/// `TreeSum` without allocation.
struct Tree<A> {
    stack: [A; 64],
    height: usize,
    count: usize,
}

impl<A: Accumulate> Tree<A> {
    fn new() -> Self {
        Tree { stack: [A::ZERO; 64], height: 0, count: 0 }
    }

    fn push(&mut self, leaf: A, combine: impl Fn(A, A) -> A) {
        let mut root = leaf;
        for _ in 0..self.count.trailing_ones() {
            self.height -= 1;
            root = combine(self.stack[self.height], root);
        }
        self.stack[self.height] = root;
        self.height += 1;
        self.count += 1;
    }

    /// The root of at least one leaf.
    fn finish(self, combine: impl Fn(A, A) -> A) -> A {
        let mut root = self.stack[self.height - 1];
        for left in self.stack[..self.height - 1].iter().rev() {
            root = combine(*left, root);
        }
        root
    }
}

/// The same for rows of numbers.
struct RowTree<A> {
    stack: Vec<A>,
    width: usize,
    height: usize,
    count: usize,
}

impl<A: Accumulate> RowTree<A> {
    /// Room for `leaves` rows of up to `width` numbers.
    fn new(width: usize, leaves: usize, fill: A) -> Self {
        let depth = leaves.ilog2() as usize + 2;
        RowTree { stack: vec![fill; depth * width], width, height: 0, count: 0 }
    }

    fn push(&mut self, leaf: &[A], mut merge: impl FnMut(&mut [A], &[A])) {
        self.stack[self.height * self.width..][..leaf.len()].copy_from_slice(leaf);
        self.height += 1;
        for _ in 0..self.count.trailing_ones() {
            self.pop(leaf.len(), &mut merge);
        }
        self.count += 1;
    }

    /// Merges the two topmost rows.
    fn pop(&mut self, len: usize, merge: &mut impl FnMut(&mut [A], &[A])) {
        self.height -= 1;
        let (left, right) = self.stack.split_at_mut(self.height * self.width);
        merge(&mut left[(self.height - 1) * self.width..][..len], &right[..len]);
    }

    /// The root of at least one leaf; the tree is empty afterwards.
    fn finish(&mut self, len: usize, mut merge: impl FnMut(&mut [A], &[A])) -> &[A] {
        while self.height > 1 {
            self.pop(len, &mut merge);
        }
        (self.height, self.count) = (0, 0);
        &self.stack[..len]
    }
}

#[inline(always)]
fn add_terms_body<T: Term, M: Monoid<T::Sum>>(_: M, lanes: &mut [T::Sum; LANES], offset: usize, terms: &[T]) {
    if M::ANY_ORDER && terms.len() >= MANY {
        lanes[0] = M::combine(lanes[0], M::all(terms));
        return;
    }
    let head = if offset == 0 { 0 } else { (LANES - offset).min(terms.len()) };
    for (lane, x) in lanes[offset..].iter_mut().zip(&terms[..head]) {
        *lane = M::combine(*lane, x.widen());
    }
    let mut local = *lanes;
    let (chunks, tail) = terms[head..].as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            local[i] = M::combine(local[i], chunk[i].widen());
        }
    }
    *lanes = local;
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane = M::combine(*lane, x.widen());
    }
}

#[inline(always)]
fn reduce_rows_body<T: Term, M: Monoid<T::Sum>>(op: M, rows: &[T], terms: usize, block: usize, out: &mut [T]) {
    for (row, y) in out.iter_mut().enumerate() {
        let (start, end) = (row * terms, (row + 1) * terms);
        if terms <= block {
            *y = T::narrow(reduce_block(op, rows, start..end));
            continue;
        }
        let mut tree = Tree::<T::Sum>::new();
        for at in (start..end).step_by(block) {
            tree.push(reduce_block(op, rows, at..end.min(at + block)), M::combine);
        }
        *y = T::narrow(tree.finish(M::combine));
    }
}

/// The result of a block. What follows it is read with its last terms but replaced by what changes nothing.
#[inline(always)]
fn reduce_block<T: Term, M: Monoid<T::Sum>>(_: M, rows: &[T], block: Range<usize>) -> T::Sum {
    if M::ANY_ORDER && block.len() >= MANY {
        return M::all(&rows[block]);
    }
    let mut lanes = [M::identity(); LANES];
    let (chunks, tail) = rows[block.clone()].as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = M::combine(lanes[i], chunk[i].widen());
        }
    }
    if let Some(chunk) = rows[block.end - tail.len()..].first_chunk::<LANES>() {
        for i in 0..LANES {
            let x = if i < tail.len() { chunk[i].widen() } else { M::identity() };
            lanes[i] = M::combine(lanes[i], x);
        }
    } else {
        for (lane, x) in lanes.iter_mut().zip(tail) {
            *lane = M::combine(*lane, x.widen());
        }
    }
    lane_tree(lanes, M::combine)
}

#[inline(always)]
fn add_sums_body<A: Accumulate, M: Monoid<A>>(_: M, lanes: &mut [A; LANES], terms: &[A]) {
    let mut local = *lanes;
    let (chunks, tail) = terms.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            local[i] = M::combine(local[i], chunk[i]);
        }
    }
    *lanes = local;
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane = M::combine(*lane, *x);
    }
}

#[inline(always)]
fn start_row_body<T: Term, M: Monoid<T::Sum>>(_: M, lane: &mut [T::Sum], row: &[T]) {
    for (sum, x) in lane.iter_mut().zip(row) {
        *sum = M::combine(M::identity(), x.widen());
    }
}

#[inline(always)]
fn add_row_body<T: Term, M: Monoid<T::Sum>>(_: M, lane: &mut [T::Sum], row: &[T]) {
    for (sum, x) in lane.iter_mut().zip(row) {
        *sum = M::combine(*sum, x.widen());
    }
}

#[inline(always)]
fn add_rows_body<T: Term, M: Monoid<T::Sum>>(op: M, lanes: &mut [T::Sum], offset: usize, rows: &[T]) {
    let (head, further) = rows.split_at((lanes.len() - offset).min(rows.len()));
    add_row_body(op, &mut lanes[offset..], head);
    for rows in further.chunks(lanes.len()) {
        add_row_body(op, lanes, rows);
    }
}

#[inline(always)]
fn merge_rows_body<A: Accumulate, M: Monoid<A>>(_: M, left: &mut [A], right: &[A]) {
    for (a, b) in left.iter_mut().zip(right) {
        *a = M::combine(*a, *b);
    }
}

#[inline(always)]
fn narrow_row_body<T: Term>(row: &[T::Sum], out: &mut [T]) {
    for (y, x) in out.iter_mut().zip(row) {
        *y = T::narrow(*x);
    }
}

multiversion! {
    /// Adds terms that lie behind each other to the lanes, the first one to lane `offset`.
    fn add_terms<T: Term, M: Monoid<T::Sum>>(op: M, lanes: &mut [T::Sum; LANES], offset: usize, terms: &[T]) = add_terms_body;
}
multiversion! {
    /// Adds widened terms to the lanes from lane 0 on.
    fn add_sums<A: Accumulate, M: Monoid<A>>(op: M, lanes: &mut [A; LANES], terms: &[A]) = add_sums_body;
}
multiversion! {
    /// The first term of a lane for a row of outputs.
    fn start_row<T: Term, M: Monoid<T::Sum>>(op: M, lane: &mut [T::Sum], row: &[T]) = start_row_body;
}
multiversion! {
    /// A further term of a lane for a row of outputs.
    fn add_row<T: Term, M: Monoid<T::Sum>>(op: M, lane: &mut [T::Sum], row: &[T]) = add_row_body;
}
multiversion! {
    /// Further terms of all lanes in turn for rows of outputs that lie behind each other, from `offset` on.
    fn add_rows<T: Term, M: Monoid<T::Sum>>(op: M, lanes: &mut [T::Sum], offset: usize, rows: &[T]) = add_rows_body;
}
multiversion! {
    /// The results of rows of so many terms, in blocks of so many.
    fn reduce_rows<T: Term, M: Monoid<T::Sum>>(op: M, rows: &[T], terms: usize, block: usize, out: &mut [T]) = reduce_rows_body;
}
multiversion! {
    /// Combines two rows of results into the left one.
    fn merge_rows<A: Accumulate, M: Monoid<A>>(op: M, left: &mut [A], right: &[A]) = merge_rows_body;
}
multiversion! {
    /// Stores a row of results.
    fn narrow_row<T: Term>(row: &[T::Sum], out: &mut [T]) = narrow_row_body;
}
