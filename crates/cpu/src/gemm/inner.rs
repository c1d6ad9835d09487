//! Inner products: few rows by a right operand whose terms lie side by side, such as samples by the rows of a weight.
//!
//! Packing would cost more than the product, and computed transposed it would use as many lanes as there are rows. The right
//! operand is read once, in place: eight terms of eight columns are transposed in registers (`inner_x86`). The left one is
//! small, and each task packs it. For elements that become f32, where there are such microkernels.

use super::block::Part;
use super::drive::{Batch, turn};
#[cfg(target_arch = "x86_64")]
use super::inner_x86 as kernel;
use super::real::{Element, Real, same};
use super::scratch::{Arena, room};
use super::strip::store;
use super::{Offsets, Size};
use crate::Context;
use crate::Level;
use crate::operand::Shared;
use crate::par::with_slots;
use half::{bf16, f16};
use std::ops::Range;

/// Rows of a product, at most.
const ROWS: usize = 12;
/// Rows where processors multiply two vectors of sixteen numbers a cycle, or have 16 registers.
const FEW: usize = 8;
/// Columns of a vector.
pub const LANES: usize = 8;
/// Numbers that packing may write after the left operand.
pub const SLACK: usize = 8;
/// Columns whose sums are stored together, and of which epilogues take no more.
const SPAN: usize = 64;
/// Cycles of a batch which one thread needs no longer for than others take to come.
const ALONE: usize = 4_000;
/// Products for each thread from which none is cut.
const MANY: usize = 4;

/// Whole vectors of columns, all of whose sums one call computes.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub struct Tile<S> {
    /// Rows.
    pub rows: usize,
    /// Columns, a multiple of [`LANES`].
    pub columns: usize,
    /// Terms of each sum.
    pub terms: usize,
    /// Terms of a block.
    pub block: usize,
    /// The left operand; the rows of a term lie side by side.
    pub left: *const f32,
    /// The first column.
    pub right: *const S,
    /// Distance between columns, whose terms lie side by side.
    pub step: isize,
    /// Where the sums of the first row go.
    pub sums: *mut f32,
    /// Distance between rows of sums.
    pub across: usize,
}

/// A range of columns of one product, and rooms.
struct Task<'a, S, O> {
    batch: &'a Batch<'a, S, O>,
    /// The number of the product.
    product: usize,
    right: *const S,
    step: isize,
    /// The left operand, packed.
    left: *const f32,
    /// Room for the sums of [`SPAN`] columns, a row after the other.
    sums: *mut f32,
    /// Room for as many results.
    results: *mut O,
}

/// Bytes of scratch memory that one thread needs.
fn slot(size: &Size) -> usize {
    room::<f32>(size.rows * size.terms + SLACK) + 2 * room::<f32>(size.rows * SPAN)
}

/// Whether products of this size are computed this way where the operands lie well.
fn fits(size: &Size) -> bool {
    (1..=ROWS).contains(&size.rows) && size.columns >= LANES && size.terms > 0
}

/// Rows for which there are microkernels that are the fastest ones, at most.
fn most<S: Element>(level: Level) -> usize {
    let is_known = same::<S, f32>() || same::<S, bf16>() || same::<S, f16>();
    match () {
        () if !cfg!(target_arch = "x86_64") || level < Level::Avx2 || !is_known => 0,
        // The processors that have slender tiles multiply one such vector a cycle.
        () if S::Real::kernels(level).slender.is_some() => ROWS,
        () => FEW,
    }
}

/// Cycles that a product takes, about: eight terms of eight columns twelve, and four for each row.
fn cycles(size: &Size) -> usize {
    size.columns.div_ceil(LANES) * size.terms.div_ceil(LANES) * (12 + 4 * size.rows)
}

/// Whether a product takes longer this way than the transposed one.
pub fn is_better_turned(size: &Size) -> bool {
    cycles(&turn(size)) < cycles(size)
}

/// Bytes of scratch memory for [`multiply`].
pub fn scratch_bytes(size: &Size, threads: usize) -> usize {
    if fits(size) { threads * slot(size) } else { 0 }
}

/// Computes all products of a batch if they are of this kind, and says whether they were.
///
/// # Safety
/// As for [`super::multiply`].
pub unsafe fn multiply<S: Element, O: Element<Real = S::Real>>(
    batch: &Batch<S, O>,
    right: *const S,
    rights: &Offsets,
    mut arena: Arena,
    context: Context,
) -> bool {
    let (size, side) = (batch.size, batch.right_side);
    let (Some(step), Some(1)) = (side.lines.stride(), side.terms.stride()) else { return false };
    if !fits(&size) || size.rows > most::<S>(context.level) {
        return false;
    }
    let products = batch.outs.len;
    let threads = if products * cycles(&size) < ALONE { 1 } else { context.par.lanes() };
    let parts = if products >= MANY * threads { 1 } else { threads };
    let width = size.columns.div_ceil(parts).next_multiple_of(LANES);
    let parts = size.columns.div_ceil(width);
    let right = Shared(right.cast_mut());
    let rooms = arena.slots(threads, slot(&size));
    with_slots(context.par, threads, products * parts, |number, task| {
        let right = { right };
        let (product, first) = (task / parts, task % parts * width);
        let mut arena = rooms.room(number);
        let packed: *mut f32 = arena.take(size.rows * size.terms + SLACK);
        // SAFETY: the caller's promise; a task has its own columns of the result and a slot its own room.
        unsafe {
            let task = Task {
                batch,
                product,
                right: right.0.offset(rights.at(product)),
                step,
                left: pack(context.level, batch, product, packed),
                sums: arena.take(size.rows * SPAN),
                results: arena.take::<f32>(size.rows * SPAN).cast(),
            };
            task.compute(context.level, first..size.columns.min(first + width));
        }
    });
    true
}

/// The left operand of a product so that the rows of a term lie side by side, in `room` unless it lies so.
///
/// # Safety
/// The operand must be readable, the room writable.
unsafe fn pack<S: Element, O>(level: Level, batch: &Batch<S, O>, product: usize, room: *mut f32) -> *const f32 {
    let (Size { rows, terms, .. }, side) = (batch.size, batch.left_side);
    let from = batch.left.wrapping_offset(batch.lefts.at(product));
    let (line, term) = (side.lines.stride(), side.terms.stride());
    if same::<S, f32>() && line == Some(1) && term == Some(rows as isize) {
        return from.cast();
    }
    // SAFETY: the caller's promise.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if let (Some(line), Some(1)) = (line, term) {
            match () {
                () if same::<S, f32>() => kernel::pack::<f32>(from.cast(), rows, line, terms, room),
                () if same::<S, bf16>() => kernel::pack::<bf16>(from.cast(), rows, line, terms, room),
                () => kernel::pack::<f16>(from.cast(), rows, line, terms, room),
            }
            return room;
        }
        for term in 0..terms {
            for row in 0..rows {
                let element = *from.offset(side.lines.at(row) + side.terms.at(term));
                *room.cast::<S::Real>().add(term * rows + row) = element.widen();
            }
        }
    }
    _ = level;
    room
}

impl<S: Element, O: Element<Real = S::Real>> Task<'_, S, O> {
    /// Computes the results of these columns.
    ///
    /// # Safety
    /// The operands must be readable, the rooms and the result writable, and the processor able to run the level.
    unsafe fn compute(&self, level: Level, columns: Range<usize>) {
        let Size { rows, terms, block, .. } = self.batch.size;
        for first in columns.clone().step_by(SPAN) {
            let count = SPAN.min(columns.end - first);
            let whole = count / LANES * LANES;
            let tile = |first: usize, columns: usize, sums: *mut f32, across: usize| Tile {
                rows,
                columns,
                terms,
                block,
                left: self.left,
                right: self.right.wrapping_offset(first as isize * self.step),
                step: self.step,
                sums,
                across,
            };
            // SAFETY: the caller's promise.
            unsafe {
                if whole > 0 {
                    run(level, &tile(first, whole, self.sums, SPAN));
                }
                // The last columns, together with others that are computed once more.
                let rest = count - whole;
                if rest > 0 {
                    let mut last = [0.0; ROWS * LANES];
                    run(level, &tile(first + count - LANES, LANES, last.as_mut_ptr(), LANES));
                    for row in 0..rows {
                        let from = &last[(row + 1) * LANES - rest..][..rest];
                        std::ptr::copy_nonoverlapping(from.as_ptr(), self.sums.add(row * SPAN + whole), rest);
                    }
                }
                self.store(level, first, count);
            }
        }
    }

    /// Stores the sums of columns.
    ///
    /// # Safety
    /// As for [`Task::compute`].
    unsafe fn store(&self, level: Level, first: usize, count: usize) {
        let (rows, place) = (self.batch.size.rows, self.batch.place);
        let in_rows = place.columns.stride() == Some(1) && place.columns.len > 1;
        let sums: *const S::Real = self.sums.cast_const().cast();
        let out = self.batch.out.wrapping_offset(self.batch.outs.at(self.product));
        // SAFETY: sums that have been computed; the caller's promise.
        unsafe {
            if let Some(finish) = self.batch.finish {
                let part = Part { product: self.product, rows: 0..rows, columns: first..first + count };
                let steps = if in_rows { [SPAN, 1] } else { [1, rows] };
                for row in 0..rows {
                    let (sums, results) = (sums.add(row * SPAN), self.results.add(row * steps[0]));
                    scatter(level, sums, results, steps[1] as isize, count);
                }
                return finish.take(part, self.results, steps);
            }
            for row in 0..rows {
                let (sums, out) = (sums.add(row * SPAN), out.offset(place.rows.at(row)));
                match place.columns.stride() {
                    Some(step) => scatter(level, sums, out.offset(first as isize * step), step, count),
                    None => (0..count).for_each(|j| *out.offset(place.columns.at(first + j)) = O::narrow(*sums.add(j))),
                }
            }
        }
    }
}

/// Stores sums that lie side by side in results that are `step` apart.
///
/// # Safety
/// The sums must be readable, the results writable.
unsafe fn scatter<T: Real, O: Element<Real = T>>(level: Level, sums: *const T, out: *mut O, step: isize, count: usize) {
    if step == 1 {
        return store(level, sums, out, count);
    }
    // SAFETY: the caller's promise.
    (0..count).for_each(|j| unsafe { *out.offset(j as isize * step) = O::narrow(*sums.add(j)) });
}

/// Computes a tile.
///
/// # Safety
/// See the microkernels.
unsafe fn run<S: Element>(level: Level, tile: &Tile<S>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        let tile: *const Tile<S> = tile;
        match () {
            () if same::<S, f32>() => kernel::compute::<f32>(level, &*tile.cast()),
            () if same::<S, bf16>() => kernel::compute::<bf16>(level, &*tile.cast()),
            () => kernel::compute::<f16>(level, &*tile.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("no such microkernels for {} columns at {level:?}", tile.columns);
}
