//! Reductions over columns: outputs lie behind each other, and whole rows of them are combined.

use super::lanes::{self, WIDE};
use super::monoid::{Accumulate, Monoid, Sum, Term};
use super::{GATHERED_LANE_BYTES, GRAIN, Job};
use crate::operand::Shared;
use crate::{Level, Output};
use meshwork_graph::DType;
use meshwork_graph::canonical::{LANES, in_tree_order};
use meshwork_simd::multiversion;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Numbers of a row of results that are joined with all others before the next ones are: those of all rows stay in a cache.
const PIECE: usize = 512;
/// Rows of which the extrema are found at once.
pub(super) const ABREAST: usize = 4;

impl<T: Term> Job<'_, T> {
    pub(super) fn columns<M: Monoid<T::Sum>>(&self, op: M) {
        let plan = &self.plan;
        let (outputs, blocks) = (plan.kept.len(), plan.blocks.count());
        let tiles = plan.column_tiles();
        let (par, level) = (self.context.par, self.context.level);
        let columns = plan.width.min(plan.kept.inner().0);
        // A tile at the end of rows may be narrow where others are not.
        let narrow = if plan.kept.inner().1 == 1 { columns.min(WIDE) } else { columns };
        let numbers = lanes::room(columns, plan.block(0).1).max(LANES * narrow);
        let room = || vec![M::identity(); numbers];
        if !plan.by_block {
            let grain = GRAIN / (plan.terms.len() * columns) + 1;
            return par.ranges(tiles, grain, &|range| {
                let (mut room, mut tree) = (room(), RowTree::new(columns, blocks, M::identity()));
                for tile in range {
                    let place = plan.column_tile(tile);
                    let root = self.column_blocks(op, &place, 0..blocks, &mut room, &mut tree);
                    // SAFETY: this task owns the outputs of its tiles.
                    narrow_row(level, root, unsafe { self.output.slice(place.start, place.len()) });
                }
            });
        }
        let roots = plan.roots();
        let grain = GRAIN / (plan.block(0).1 * plan.together * columns) + 1;
        par.ranges(tiles * roots, grain, &|range| {
            let (mut room, mut tree) = (room(), RowTree::new(columns, plan.together, M::identity()));
            for item in range {
                let (root, tile) = (item / tiles, item % tiles);
                let place = plan.column_tile(tile);
                let blocks = root * plan.together..((root + 1) * plan.together).min(blocks);
                let result = self.column_blocks(op, &place, blocks, &mut room, &mut tree);
                // SAFETY: this task owns the roots of this tile and these blocks.
                unsafe { self.roots.slice(root * outputs + place.start, place.len()) }.copy_from_slice(result);
            }
        });
        par.ranges(outputs, GRAIN / roots + 1, &|range| {
            for start in range.clone().step_by(PIECE) {
                let count = PIECE.min(range.end - start);
                // SAFETY: this task owns these outputs and their roots.
                let row = |root: usize| unsafe { self.roots.slice(root * outputs + start, count) };
                in_tree_order(roots, |left, right| merge_rows(level, op, row(left), row(right)));
                // SAFETY: as above.
                narrow_row(level, row(0), unsafe { self.output.slice(start, count) });
            }
        });
    }

    /// The results of some blocks, which begin at an aligned one, for neighbouring outputs. The tree is empty before and after.
    fn column_blocks<'t, M: Monoid<T::Sum>>(
        &self,
        op: M,
        outputs: &Range<usize>,
        blocks: Range<usize>,
        room: &mut [T::Sum],
        tree: &'t mut RowTree<T::Sum>,
    ) -> &'t [T::Sum] {
        let (level, columns) = (self.context.level, outputs.len());
        for block in blocks {
            self.column_block(op, outputs, block, room, tree.next(columns));
            tree.push(columns, |left, right| merge_rows(level, op, left, right));
        }
        tree.finish(columns, |left, right| merge_rows(level, op, left, right))
    }

    /// The results of one block for neighbouring outputs.
    fn column_block<M: Monoid<T::Sum>>(
        &self,
        op: M,
        outputs: &Range<usize>,
        block: usize,
        room: &mut [T::Sum],
        out: &mut [T::Sum],
    ) {
        let (start, count) = self.plan.block(block);
        let (columns, level) = (outputs.len(), self.context.level);
        // SAFETY: the positions are those of elements.
        let first = unsafe { self.first.pointer().offset(self.plan.kept.position(outputs.start)) };
        let (_, apart) = self.plan.kept.inner();
        if M::ANY_ORDER && apart == 1 && columns >= WIDE {
            out.fill(M::identity());
            let (mut rows, mut waiting) = ([first.cast_const(); ABREAST], 0);
            self.plan.terms.runs(start, count, |_, position, run, stride| {
                for i in 0..run {
                    // SAFETY: as above.
                    rows[waiting] = unsafe { first.offset(position + i as isize * stride) };
                    waiting += 1;
                    if waiting == ABREAST {
                        // SAFETY: as above.
                        unsafe { take_rows(level, op, out, &rows) };
                        waiting = 0;
                    }
                }
            });
            // What is taken twice changes nothing.
            if waiting > 0 {
                let again = rows[0];
                rows[waiting..].fill(again);
                // SAFETY: as above.
                unsafe { take_rows(level, op, out, &rows) };
            }
            return;
        }
        if apart == 1 && columns >= WIDE {
            let mut block = lanes::Block::<T>::new(level, [columns, count], room);
            self.plan.terms.runs(start, count, |_, position, run, stride| {
                for i in 0..run {
                    // SAFETY: as above.
                    unsafe { block.push(op, first.offset(position + i as isize * stride)) };
                }
            });
            return block.finish(op, out);
        }
        let lanes = &mut room[..LANES * columns];
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
        merge_lanes(level, op, lanes, count, columns);
        out.copy_from_slice(&lanes[..columns]);
    }
}

/// Joins the lanes of a block of `count` terms, rows of so many columns, into the first of them by the lane tree. Lanes without
/// terms change nothing and are left out.
pub(super) fn merge_lanes<A: Accumulate, M: Monoid<A>>(
    level: Level,
    op: M,
    lanes: &mut [A],
    count: usize,
    columns: usize,
) {
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

/// `TreeSum` for rows of numbers, in room that is there from the start.
pub(super) struct RowTree<A> {
    stack: Vec<A>,
    width: usize,
    height: usize,
    count: usize,
}

impl<A: Accumulate> RowTree<A> {
    /// Room for `leaves` rows of up to `width` numbers.
    pub(super) fn new(width: usize, leaves: usize, fill: A) -> Self {
        let depth = leaves.ilog2() as usize + 2;
        RowTree { stack: vec![fill; depth * width], width, height: 0, count: 0 }
    }

    /// Room for the next leaf.
    pub(super) fn next(&mut self, len: usize) -> &mut [A] {
        &mut self.stack[self.height * self.width..][..len]
    }

    /// The next leaf is there.
    pub(super) fn push(&mut self, len: usize, mut merge: impl FnMut(&mut [A], &[A])) {
        self.height += 1;
        for _ in 0..self.count.trailing_ones() {
            self.pop(len, &mut merge);
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
    pub(super) fn finish(&mut self, len: usize, mut merge: impl FnMut(&mut [A], &[A])) -> &[A] {
        while self.height > 1 {
            self.pop(len, &mut merge);
        }
        (self.height, self.count) = (0, 0);
        &self.stack[..len]
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
fn take_rows_body<T: Term, M: Monoid<T::Sum>>(_: M, out: &mut [T::Sum], rows: &[*const T; ABREAST]) {
    // SAFETY: the caller passes rows of as many columns.
    let [a, b, c, d] = rows.map(|row| unsafe { std::slice::from_raw_parts(row, out.len()) });
    for (i, best) in out.iter_mut().enumerate() {
        let (left, right) = (M::combine(a[i].widen(), b[i].widen()), M::combine(c[i].widen(), d[i].widen()));
        *best = M::combine(*best, M::combine(left, right));
    }
}

/// Combines terms of some rows with what there is, in any order.
///
/// # Safety
/// The rows must have as many terms as there are results.
pub(super) unsafe fn take_rows<T: Term, M: Monoid<T::Sum>>(
    level: Level,
    op: M,
    out: &mut [T::Sum],
    rows: &[*const T; ABREAST],
) {
    match M::take_rows::<T>(level) {
        // SAFETY: the caller's promise.
        Some(take) => unsafe { take(out, rows) },
        None => take_any_rows(level, op, out, rows),
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
    /// The first term of a lane for a row of outputs.
    fn start_row<T: Term, M: Monoid<T::Sum>>(op: M, lane: &mut [T::Sum], row: &[T]) = start_row_body;
}
multiversion! {
    /// A further term of a lane for a row of outputs.
    pub(super) fn add_row<T: Term, M: Monoid<T::Sum>>(op: M, lane: &mut [T::Sum], row: &[T]) = add_row_body;
}
multiversion! {
    /// Further terms of all lanes in turn for rows of outputs that lie behind each other, from `offset` on.
    fn add_rows<T: Term, M: Monoid<T::Sum>>(op: M, lanes: &mut [T::Sum], offset: usize, rows: &[T]) = add_rows_body;
}
multiversion! {
    /// Combines terms of some rows with what there is, in any order.
    fn take_any_rows<T: Term, M: Monoid<T::Sum>>(op: M, out: &mut [T::Sum], rows: &[*const T; ABREAST]) = take_rows_body;
}
multiversion! {
    /// Combines two rows of results into the left one.
    pub(super) fn merge_rows<A: Accumulate, M: Monoid<A>>(op: M, left: &mut [A], right: &[A]) = merge_rows_body;
}
multiversion! {
    /// Stores a row of results.
    fn narrow_row<T: Term>(row: &[T::Sum], out: &mut [T]) = narrow_row_body;
}
