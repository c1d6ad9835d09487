//! Products with few rows: the right operand is read once, in place, along its rows.
//!
//! Packing would cost more than the product. A strip is a range of columns, whose sums stay in the first-level cache
//! while the terms of a block go by; roots of blocks go to a binary counter as in the microkernels.

use super::drive::Batch;
use super::real::{Element, Real};
use super::scratch::{Arena, room};
use super::{Offsets, Size};
use crate::Context;
use crate::operand::Shared;
use crate::par::with_slots;
use meshwork_simd::multiversion;

/// Rows of a product, at most.
const ROWS: usize = 4;
/// Sums of a strip, at most.
const SUMS: usize = 2048;
/// Columns of a strip, at least; with fewer columns than that, terms must be cut to keep threads busy.
const COLUMNS: usize = 64;
/// Columns of which strips have a multiple, but for the last one.
const LANES: usize = 16;

/// One strip of a product.
struct Strip<S: Element> {
    rows: usize,
    columns: usize,
    terms: usize,
    block: usize,
    left: *const S,
    /// Distances between the rows and between the terms of the left operand.
    left_steps: [isize; 2],
    right: *const S,
    /// Distance between the terms of the right operand; its columns lie side by side.
    right_step: isize,
    /// Room for [`tiles`] of [`SUMS`]: those of the current block, and the counter. The result ends in the first one.
    sums: *mut S::Real,
}

/// Tiles of sums that a product needs.
fn tiles(size: &Size) -> usize {
    2 + size.terms.div_ceil(size.block).ilog2() as usize
}

/// Columns of a strip.
fn width(size: &Size, threads: usize) -> usize {
    let most = SUMS / size.rows / LANES * LANES;
    let parts = size.columns.div_ceil(most).next_multiple_of(threads);
    size.columns.div_ceil(parts).next_multiple_of(LANES).max(COLUMNS).min(most)
}

/// Bytes of scratch memory that one thread needs.
fn slot<T>(size: &Size) -> usize {
    room::<T>(SUMS * tiles(size))
}

/// Whether products of this size are computed in strips where the operands lie well.
pub fn fits(size: &Size) -> bool {
    (1..=ROWS).contains(&size.rows) && size.columns >= 2 * COLUMNS && size.terms > 0
}

/// Bytes of scratch memory for [`multiply`].
pub fn scratch_bytes<T: Real>(size: &Size, threads: usize) -> usize {
    if fits(size) { threads * slot::<T>(size) } else { 0 }
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
    let size = batch.size;
    let (left, right_side) = (batch.left_side, batch.right_side);
    let steps = (left.lines.stride(), left.terms.stride(), right_side.lines.stride(), right_side.terms.stride());
    let (Some(row), Some(term), Some(1), Some(right_step)) = steps else { return false };
    if !fits(&size) {
        return false;
    }
    let threads = context.par.lanes();
    let (width, bytes) = (width(&size, threads), slot::<S::Real>(&size));
    let strips = size.columns.div_ceil(width);
    let right = Shared(right.cast_mut());
    let rooms = arena.slots(threads, bytes);
    with_slots(context.par, threads, batch.outs.len * strips, |slot, task| {
        let right = { right };
        let (product, first) = (task / strips, task % strips * width);
        let columns = width.min(size.columns - first);
        let sums: *mut S::Real = rooms.room(slot).take(SUMS * tiles(&size));
        // SAFETY: the caller's promise; a task has its own columns of the result and a slot its own room.
        unsafe {
            let strip = Strip {
                rows: size.rows,
                columns,
                terms: size.terms,
                block: size.block,
                left: batch.left.offset(batch.lefts.at(product)),
                left_steps: [row, term],
                right: right.0.offset(rights.at(product) + first as isize).cast_const(),
                right_step,
                sums,
            };
            compute(context.level, &strip);
            let (out, place) = (batch.out.offset(batch.outs.at(product)), &batch.place.columns);
            for i in 0..size.rows {
                let (out, sums) = (out.offset(batch.place.rows.at(i)), sums.add(i * across(size.rows)));
                match place.stride() {
                    Some(1) => store(context.level, sums, out.add(first), columns),
                    _ => (0..columns).for_each(|j| *out.offset(place.at(first + j)) = O::narrow(*sums.add(j))),
                }
            }
        }
    });
    true
}

/// Distance between the rows of a tile of sums. Compilers know it, and so that rows do not overlap.
const fn across(rows: usize) -> usize {
    SUMS / rows / LANES * LANES
}

multiversion! {
    /// Computes the sums of a strip.
    fn compute<S: Element>(strip: &Strip<S>) = compute_body;
}

#[inline(always)]
fn compute_body<S: Element>(strip: &Strip<S>) {
    match strip.rows {
        1 => rows::<S, 1, 8>(strip),
        2 => rows::<S, 2, 8>(strip),
        3 => rows::<S, 3, 4>(strip),
        _ => rows::<S, 4, 4>(strip),
    }
}

/// `TERMS` terms are computed together, as many as registers hold factors of.
#[inline(always)]
fn rows<S: Element, const ROWS: usize, const TERMS: usize>(strip: &Strip<S>) {
    // A row of the tile that a slot of the counter has.
    let slot = |level: usize, row: usize| strip.sums.wrapping_add((1 + level) * SUMS + row * across(ROWS));
    let blocks = strip.terms.div_ceil(strip.block);
    for block in 0..blocks {
        // SAFETY: tiles of the strip's room, terms of its operands.
        unsafe {
            let sums = std::slice::from_raw_parts_mut(strip.sums, ROWS * across(ROWS));
            for row in sums.chunks_exact_mut(across(ROWS)) {
                row[..strip.columns].fill(S::Real::ZERO);
            }
            let end = ((block + 1) * strip.block).min(strip.terms);
            let mut term = block * strip.block;
            while term + TERMS <= end {
                terms::<S, ROWS, TERMS>(strip, term, sums);
                term += TERMS;
            }
            while term < end {
                terms::<S, ROWS, 1>(strip, term, sums);
                term += 1;
            }
            let last = block + 1 == blocks;
            let mut merged = if last { block } else { (1 << block.trailing_ones()) - 1 };
            while merged != 0 {
                for (i, row) in sums.chunks_exact_mut(across(ROWS)).enumerate() {
                    let left = slot(merged.trailing_zeros() as usize, i);
                    add(std::slice::from_raw_parts(left, strip.columns), &mut row[..strip.columns]);
                }
                merged &= merged - 1;
            }
            if !last {
                for (i, row) in sums.chunks_exact(across(ROWS)).enumerate() {
                    let to = slot(block.trailing_ones() as usize, i);
                    std::ptr::copy_nonoverlapping(row.as_ptr(), to, strip.columns);
                }
            }
        }
    }
}

/// Adds `left[i]` to the left of `sums[i]`.
#[inline(always)]
fn add<T: Real>(left: &[T], sums: &mut [T]) {
    for (sum, &x) in sums.iter_mut().zip(left) {
        *sum = x + *sum;
    }
}

/// Continues all chains by terms `first..first + TERMS`. The loop over columns is one that compilers make vectors of: arrays
/// of a vector's numbers, mapped, became calls for every number.
///
/// # Safety
/// The operands must have these terms.
#[inline(always)]
unsafe fn terms<S: Element, const ROWS: usize, const TERMS: usize>(
    strip: &Strip<S>,
    first: usize,
    sums: &mut [S::Real],
) {
    let [row, term] = strip.left_steps;
    let mut factors = [[S::Real::ZERO; TERMS]; ROWS];
    for (i, factors) in factors.iter_mut().enumerate() {
        for (k, factor) in factors.iter_mut().enumerate() {
            let at = i as isize * row + (first + k) as isize * term;
            // SAFETY: elements of the left operand.
            *factor = unsafe { strip.left.offset(at).read() }.widen();
        }
    }
    let right = strip.right.wrapping_offset(first as isize * strip.right_step);
    for column in 0..strip.columns {
        for k in 0..TERMS {
            // SAFETY: elements of the right operand and of the tile.
            unsafe {
                let x = right.wrapping_offset(k as isize * strip.right_step).add(column).read().widen();
                for (i, factors) in factors.iter().enumerate() {
                    let sum = sums.get_unchecked_mut(i * across(ROWS) + column);
                    *sum = factors[k].fma(x, *sum);
                }
            }
        }
    }
}

multiversion! {
    /// Stores sums that lie side by side in the result.
    pub fn store<T: Real, O: Element<Real = T>>(sums: *const T, out: *mut O, count: usize) = store_body;
}

#[inline(always)]
fn store_body<T: Real, O: Element<Real = T>>(sums: *const T, out: *mut O, count: usize) {
    for i in 0..count {
        // SAFETY: who calls has these sums, and room for them.
        unsafe { *out.add(i) = O::narrow(*sums.add(i)) }
    }
}
