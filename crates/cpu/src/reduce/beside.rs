//! Reductions of neighbouring rows whose terms come one of each at a time.

use super::columns::{ABREAST, RowTree, add_row, merge_lanes, merge_rows, take_rows};
use super::monoid::{Accumulate, Max, Min, Monoid, Prod, Sum};
use crate::Level;
use meshwork_graph::canonical::LANES;
use meshwork_graph::ops::ReduceOp;

/// The reduction of up to so many rows, which becomes known term by term.
pub(crate) trait Combine {
    /// Begins with so many rows.
    fn start(&mut self, rows: usize);

    /// So many further terms of all rows, each behind each other, so many bytes from term to term.
    ///
    /// # Safety
    /// They must be there, of the type of the reduction.
    unsafe fn take(&mut self, level: Level, first: *const u8, step: isize, count: usize);

    /// What the next terms are combined with, and bytes from there to what is combined with those that follow. Of sums
    /// and products there are as many as lanes, as far as the block's terms go.
    fn lanes(&mut self) -> (*mut u8, isize);

    /// So many terms have been combined with them.
    fn took(&mut self, level: Level, count: usize);

    /// Stores the results behind each other.
    ///
    /// # Safety
    /// There must be room for them.
    unsafe fn finish(&mut self, level: Level, out: *mut u8);
}

/// A reduction of up to `rows` rows of `terms` terms in blocks of so many.
pub(crate) fn combine<A: Accumulate>(op: ReduceOp, rows: usize, [terms, block]: [usize; 2]) -> Box<dyn Combine> {
    match op {
        ReduceOp::Sum => Box::new(Rows::<A, _>::new(Sum, rows, [terms, block])),
        ReduceOp::Prod => Box::new(Rows::<A, _>::new(Prod, rows, [terms, block])),
        ReduceOp::Max => Box::new(Rows::<A, _>::new(Max, rows, [terms, terms])),
        ReduceOp::Min => Box::new(Rows::<A, _>::new(Min, rows, [terms, terms])),
    }
}

struct Rows<A, M> {
    op: M,
    /// The lanes of a block, each a row of results; one of all where any order gives the same.
    lanes: Vec<A>,
    tree: RowTree<A>,
    /// Rows.
    len: usize,
    /// Terms of a block, and those that are in the lanes.
    block: usize,
    count: usize,
    /// Whether blocks have ended.
    has_blocks: bool,
}

impl<A: Accumulate, M: Monoid<A>> Rows<A, M> {
    fn new(op: M, rows: usize, [terms, block]: [usize; 2]) -> Self {
        // One of all terms ends with them.
        let block = if block >= terms { usize::MAX } else { block };
        let lanes = if M::ANY_ORDER { 1 } else { LANES.min(block).min(terms) };
        let tree = RowTree::new(rows, terms.div_ceil(block), M::identity());
        Rows { op, lanes: vec![M::identity(); lanes * rows], tree, len: rows, block, count: 0, has_blocks: false }
    }

    /// Joins the lanes of a block.
    fn join(&mut self, level: Level) {
        merge_lanes(level, self.op, &mut self.lanes, self.count, self.len);
    }

    /// Ends a block.
    fn end_block(&mut self, level: Level) {
        let (op, len) = (self.op, self.len);
        self.join(level);
        self.tree.next(len).copy_from_slice(&self.lanes[..len]);
        self.tree.push(len, |left, right| merge_rows(level, op, left, right));
        (self.count, self.has_blocks) = (0, true);
    }
}

impl<A: Accumulate, M: Monoid<A>> Combine for Rows<A, M> {
    fn start(&mut self, rows: usize) {
        (self.len, self.count, self.has_blocks) = (rows, 0, false);
        self.lanes.fill(M::identity());
    }

    unsafe fn take(&mut self, level: Level, first: *const u8, step: isize, count: usize) {
        let (op, len) = (self.op, self.len);
        let terms = |i: usize| first.wrapping_offset(i as isize * step).cast::<A>();
        if M::ANY_ORDER {
            for i in (0..count).step_by(ABREAST) {
                // What is taken twice changes nothing.
                let rows = std::array::from_fn(|k| terms((i + k).min(count - 1)));
                // SAFETY: the caller's promise.
                unsafe { take_rows(level, op, &mut self.lanes[..len], &rows) };
            }
            return;
        }
        for i in 0..count {
            // SAFETY: the caller's promise.
            let terms = unsafe { std::slice::from_raw_parts(terms(i), len) };
            add_row(level, op, &mut self.lanes[self.count % LANES * len..][..len], terms);
            self.took(level, 1);
        }
    }

    fn lanes(&mut self) -> (*mut u8, isize) {
        let (len, size) = (self.len, size_of::<A>());
        match M::ANY_ORDER {
            true => (self.lanes.as_mut_ptr().cast(), 0),
            false => (self.lanes[self.count % LANES * len..].as_mut_ptr().cast(), (len * size) as isize),
        }
    }

    fn took(&mut self, level: Level, count: usize) {
        if M::ANY_ORDER {
            return;
        }
        self.count += count;
        if self.count == self.block {
            self.end_block(level);
            self.lanes.fill(M::identity());
        }
    }

    unsafe fn finish(&mut self, level: Level, out: *mut u8) {
        let (op, len) = (self.op, self.len);
        // SAFETY: the caller's promise.
        let out = unsafe { std::slice::from_raw_parts_mut(out.cast::<A>(), len) };
        if self.has_blocks {
            if self.count > 0 {
                self.end_block(level);
            }
            return out.copy_from_slice(self.tree.finish(len, |left, right| merge_rows(level, op, left, right)));
        }
        self.join(level);
        out.copy_from_slice(&self.lanes[..len]);
    }
}
