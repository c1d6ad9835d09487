//! Sums at places that are data, in canonical order.

use super::{GRAIN, Indices, Place};
use crate::reduce::{Accumulate, Term};
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared};
use half::{bf16, f16};
use meshwork_graph::ops::{IndexAdd, ScatterAdd};
use meshwork_graph::{DType, Layout};
use std::ops::Range;

/// `by_term!(dtype, T => expression)`: as `by_dtype!`, for types that have sums.
macro_rules! by_term {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            DType::F64 => by_term!(@ f64, $name, $body),
            DType::F32 => by_term!(@ f32, $name, $body),
            DType::F16 => by_term!(@ f16, $name, $body),
            DType::BF16 => by_term!(@ bf16, $name, $body),
            DType::I64 => by_term!(@ i64, $name, $body),
            DType::I32 => by_term!(@ i32, $name, $body),
            DType::U8 => by_term!(@ u8, $name, $body),
            DType::Bool => panic!("sums of bool"),
        }
    };
    (@ $type:ty, $name:ident, $body:expr) => {{
        type $name = $type;
        $body
    }};
}

/// Which sources go to which target: the sources in order of their targets, and of their own number within one.
struct Sorted<'a> {
    /// Where the sources of each target end.
    ends: &'a mut [u32],
    order: &'a mut [u32],
}

impl<'a> Sorted<'a> {
    /// Words of memory for `sources` sources and `targets` targets.
    fn words(sources: usize, targets: usize) -> usize {
        sources + targets
    }

    /// A counting sort; `each(visit)` calls `visit(source, target)` for all sources that have a target here, in order.
    fn new(memory: &'a mut [u32], sources: usize, targets: usize, each: impl Fn(&mut dyn FnMut(usize, usize))) -> Self {
        assert!(u32::try_from(sources).is_ok(), "more than 2^32 indices");
        let (ends, order) = memory[..sources + targets].split_at_mut(targets);
        ends.fill(0);
        each(&mut |_, target| ends[target] += 1);
        let mut sum = 0;
        for end in ends.iter_mut() {
            // For now the start, which moves to the end as sources are placed.
            (*end, sum) = (sum, sum + *end);
        }
        each(&mut |source, target| {
            order[ends[target] as usize] = source as u32;
            ends[target] += 1;
        });
        Sorted { ends, order }
    }

    /// The sources of a target, ascending.
    fn sources(&self, target: usize) -> &[u32] {
        let start = if target == 0 { 0 } else { self.ends[target - 1] };
        &self.order[start as usize..self.ends[target] as usize]
    }
}

/// The tree over blocks of which only some have terms. Roots wait on a stack; two of them are neighbours' roots
/// when every block between them is empty.
struct SparseTree<A> {
    rows: Vec<A>,
    width: usize,
    /// Last block under each root on the stack.
    blocks: Vec<usize>,
}

impl<A: Accumulate> SparseTree<A> {
    fn new(width: usize) -> Self {
        SparseTree { rows: vec![], width, blocks: vec![] }
    }

    /// Starts the next block, whose row is zeros: merges what the tree merges before it.
    fn start(&mut self, block: usize) {
        while let [.., left, last] = self.blocks[..]
            && (left ^ last).ilog2() < (last ^ block).ilog2()
        {
            self.merge();
        }
        self.blocks.push(block);
        self.rows.resize(self.blocks.len() * self.width, A::ZERO);
    }

    /// The row of the block that was started last.
    fn row(&mut self) -> &mut [A] {
        let start = (self.blocks.len() - 1) * self.width;
        &mut self.rows[start..]
    }

    fn merge(&mut self) {
        let top = (self.blocks.len() - 1) * self.width;
        let (left, right) = self.rows.split_at_mut(top);
        for (a, b) in left[top - self.width..].iter_mut().zip(right) {
            *a = a.add(*b);
        }
        self.rows.truncate(top);
        let last = self.blocks.pop().expect("two roots");
        *self.blocks.last_mut().expect("two roots") = last;
    }

    /// The root, zeros without blocks; the tree is empty at the next [`clear`](Self::clear).
    fn finish(&mut self) -> &[A] {
        while self.blocks.len() > 1 {
            self.merge();
        }
        self.rows.resize(self.width, A::ZERO);
        &self.rows
    }

    fn clear(&mut self) {
        self.rows.clear();
        self.blocks.clear();
    }

    /// Adds the sources of one target block by block; `add(source, row)` adds one.
    fn sum(
        &mut self,
        sources: &[u32],
        block_of: impl Fn(usize) -> usize,
        mut add: impl FnMut(usize, &mut [A]),
    ) -> &[A] {
        self.clear();
        for &source in sources {
            let block = block_of(source as usize);
            if self.blocks.last() != Some(&block) {
                self.start(block);
            }
            add(source as usize, self.row());
        }
        self.finish()
    }
}

fn words(scratch: &mut [u8], count: usize) -> &mut [u32] {
    assert!(
        scratch.len() >= count * 4 && (count == 0 || scratch.as_ptr().cast::<u32>().is_aligned()),
        "scratch memory of indices: {} bytes instead of {}",
        scratch.len(),
        count * 4
    );
    // SAFETY: checked; any bytes are numbers.
    unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast(), count) }
}

/// Bytes of scratch memory that [`index_add`] needs; inputs are `(source, index)`.
pub fn index_add_scratch(op: &IndexAdd, _: DType, inputs: &[&Layout], _: usize) -> usize {
    Sorted::words(inputs[1].shape.numel(), op.size) * 4
}

/// Adds slices of the source into zeros; inputs are `(source, index)`.
///
/// # Panics
/// When an index is out of range, or shapes do not fit.
pub fn index_add(op: &IndexAdd, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    assert_eq!(inputs[0].dtype, output.dtype, "dtypes of an index_add");
    by_term!(output.dtype, T => index_add_of::<T>(op, inputs[0], inputs[1], output, scratch, context));
}

fn index_add_of<T: Term>(
    op: &IndexAdd,
    source: Operand,
    index: Operand,
    output: Output,
    scratch: &mut [u8],
    context: Context,
) {
    let (shape, strides) = (source.shape(), &source.layout.strides);
    let dims = |range: Range<usize>| Walk::over(range.map(|d| (shape[d], strides[d])));
    let behind = op.dim + index.shape().rank();
    let (before, slices, columns) = (dims(0..op.dim), dims(op.dim..behind), dims(behind..shape.rank()));
    let (count, width) = (index.shape().numel(), columns.len());
    assert_eq!(before.len() * op.size * width, output.shape.numel(), "elements of an index_add");
    let indices = Indices::new(index, op.dim, Place::new(op.part_of, op.size));
    let memory = words(scratch, Sorted::words(count, op.size));
    let each = |visit: &mut dyn FnMut(usize, usize)| {
        indices.each(0, count, |source, target| {
            if let Some(target) = target {
                visit(source, target);
            }
        });
    };
    let sorted = Sorted::new(memory, count, op.size, each);
    let blocks = op.blocks(index.shape());
    let block_terms = (blocks.unit * blocks.inner).max(1);
    // SAFETY: the offset is that of an element, or there is none.
    let first = unsafe { source.bytes().cast::<T>().add(source.layout.offset) };
    let (first, out) = (Shared(first.cast_mut()), Shared(output.bytes().cast::<T>()));
    let sorted = &sorted;
    if width == 0 {
        return;
    }
    // A task costs its outputs and its share of the sources.
    let cost = width * (count / op.size.max(1) + 1);
    context.par.ranges(before.len() * op.size, GRAIN / cost + 1, &|rows| {
        let mut tree = SparseTree::<T::Sum>::new(width);
        let mut terms = vec![T::Sum::ZERO; width];
        for row in rows {
            let base = before.position(row / op.size);
            let sources = sorted.sources(row % op.size);
            let add = |source: usize, row: &mut [T::Sum]| {
                // SAFETY: the positions are those of elements.
                unsafe {
                    let from = first.pointer().offset(base + slices.position(source));
                    columns.gather(from, 0, &mut terms, T::widen);
                }
                for (sum, &x) in row.iter_mut().zip(&terms) {
                    *sum = sum.add(x);
                }
            };
            let root = tree.sum(sources, |source| source / block_terms, add);
            // SAFETY: this task owns the row.
            let out = unsafe { out.slice(row * width, width) };
            for (y, &sum) in out.iter_mut().zip(root) {
                *y = T::narrow(sum);
            }
        }
    });
}

/// Lines along the indexed dimension, and what the threads need for them.
fn scatter_parts(op: &ScatterAdd, index: &Layout, threads: usize) -> (usize, usize) {
    let sources = index.shape[op.dim];
    let lines: usize = (0..index.shape.rank()).filter(|&d| d != op.dim).map(|d| index.shape[d]).product();
    (lines, threads.min(lines * (sources + 1) / GRAIN + 1))
}

/// Bytes of scratch memory that [`scatter_add`] needs; inputs are `(base, index, source)`.
pub fn scatter_add_scratch(op: &ScatterAdd, _: DType, inputs: &[&Layout], threads: usize) -> usize {
    if op.dim != 0 {
        return 0;
    }
    let (_, parts) = scatter_parts(op, inputs[1], threads);
    parts * Sorted::words(inputs[1].shape[op.dim], inputs[0].shape[op.dim]) * 4
}

/// Adds the sum of the sources of each place to the base: base + (blocks in tree order). The output may lie where the
/// dense base does. Inputs are `(base, index, source)`.
///
/// # Panics
/// When an index is out of range, or shapes do not fit.
pub fn scatter_add(op: &ScatterAdd, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    assert_eq!((inputs[0].dtype, inputs[0].shape()), (output.dtype, output.shape), "type of a scatter_add");
    assert_eq!(inputs[1].shape(), inputs[2].shape(), "shapes of the sources and indices of a scatter_add");
    by_term!(output.dtype, T => scatter_add_of::<T>(op, inputs, output, scratch, context));
}

fn scatter_add_of<T: Term>(op: &ScatterAdd, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    let (base, index, source) = (inputs[0], inputs[1], inputs[2]);
    let (count, size) = (index.shape()[op.dim], base.shape()[op.dim]);
    let (lines, parts) = scatter_parts(op, index.layout, context.par.lanes());
    let line_words = Sorted::words(count, size);
    // Only along dimension 0 do the sources of one line lie in several blocks.
    let one_block = op.dim != 0;
    let memory = Shared(words(scratch, if one_block { 0 } else { parts * line_words }).as_mut_ptr());
    let rank = base.shape().rank();
    let across =
        |strides: &[isize]| Walk::over((0..rank).filter(|&d| d != op.dim).map(|d| (base.shape()[d], strides[d])));
    let out_strides = output.shape.strides();
    let walks = [base.layout, index.layout, source.layout].map(|l| across(&l.strides));
    let out_walk = across(&out_strides);
    let along = [base.layout, index.layout, source.layout].map(|l| l.strides[op.dim]);
    let indices = Indices::new(index, op.dim, Place::new(op.part_of, size));
    let unit = op.blocks(index.shape()).unit;
    // SAFETY: the offsets are those of elements, or there are none.
    let (base_first, source_first) = unsafe {
        (
            Shared(base.bytes().cast::<T>().add(base.layout.offset).cast_mut()),
            Shared(source.bytes().cast::<T>().add(source.layout.offset).cast_mut()),
        )
    };
    let out = Shared(output.bytes().cast::<T>());
    context.par.run(parts, &|part| {
        // SAFETY: every part has memory of its own.
        let memory = unsafe { memory.slice(part * line_words, if one_block { 0 } else { line_words }) };
        let mut tree = SparseTree::<T::Sum>::new(1);
        let mut sums = vec![T::Sum::ZERO; if one_block { size } else { 0 }];
        for line in part * lines / parts..(part + 1) * lines / parts {
            let [base_at, index_at, source_at] = [0, 1, 2].map(|i: usize| walks[i].position(line));
            let out_at = out_walk.position(line);
            let each = |visit: &mut dyn FnMut(usize, usize)| indices.line(index_at, along[1], count, visit);
            // SAFETY: the position is that of an element.
            let term = |i: usize| unsafe { *source_first.pointer().offset(source_at + i as isize * along[2]) }.widen();
            // SAFETY: the positions are those of elements; this task owns the line of the output, and reads the base
            // before it writes there.
            let store = |target: usize, sum: T::Sum| unsafe {
                let x = *base_first.pointer().offset(base_at + target as isize * along[0]);
                *out.pointer().offset(out_at + target as isize * out_strides[op.dim]) = T::narrow(x.widen().add(sum));
            };
            if one_block {
                each(&mut |i, target| sums[target] = sums[target].add(term(i)));
                for (target, sum) in sums.iter_mut().enumerate() {
                    store(target, std::mem::replace(sum, T::Sum::ZERO));
                }
                continue;
            }
            let sorted = Sorted::new(memory, count, size, each);
            for target in 0..size {
                let add = |i: usize, row: &mut [T::Sum]| row[0] = row[0].add(term(i));
                store(target, tree.sum(sorted.sources(target), |i| i / unit, add)[0]);
            }
        }
    });
}
