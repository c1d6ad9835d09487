//! Products with few rows: the right operand is read once, in place, along its rows.
//!
//! Packing would cost more than the product. A strip is a range of columns, whose sums stay in the first-level cache
//! while the terms of a block go by; roots of blocks go to a binary counter as in the microkernels.

use super::drive::Batch;
use super::real::{Element, Real};
use super::scratch::{Arena, room};
use super::{Offsets, Size};
use crate::operand::Shared;
use crate::{Context, multiversion};

/// Rows of a product, at most.
const ROWS: usize = 4;
/// Sums of a strip, at most.
const SUMS: usize = 2048;
/// Columns of a strip, at least; with fewer columns than that, terms must be cut to keep threads busy.
const COLUMNS: usize = 256;
/// Columns that are computed together.
const LANES: usize = 8;
/// Terms that are computed together.
const TERMS: usize = 4;

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
    /// Room for [`tiles`] of rows × columns sums: those of the current block, and the counter. The result ends in
    /// the first one.
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
fn slot<T>(size: &Size, threads: usize) -> usize {
    room::<T>(size.rows * width(size, threads) * tiles(size))
}

/// Whether products of this size are computed in strips where the operands lie well.
pub fn fits(size: &Size) -> bool {
    (1..=ROWS).contains(&size.rows) && size.columns >= 2 * COLUMNS && size.terms > 0
}

/// Bytes of scratch memory for [`multiply`].
pub fn scratch_bytes<T: Real>(size: &Size, threads: usize) -> usize {
    if fits(size) { threads * slot::<T>(size, threads) } else { 0 }
}

/// Computes all products of a batch if they are of this kind, and says whether they were.
///
/// # Safety
/// As for [`super::multiply`].
pub unsafe fn multiply<S: Element, O: Element<Real = S::Real>>(
    batch: &Batch<S, O>,
    right: *const S,
    rights: &Offsets,
    arena: Arena,
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
    let (width, bytes) = (width(&size, threads), slot::<S::Real>(&size, threads));
    let strips = size.columns.div_ceil(width);
    let right = Shared(right.cast_mut());
    super::drive::with_slots(context.par, threads, batch.outs.len * strips, &|slot, task| {
        let right = { right };
        let (product, first) = (task / strips, task % strips * width);
        let columns = width.min(size.columns - first);
        let sums: *mut S::Real = arena.slot(slot, bytes).take(size.rows * width * tiles(&size));
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
            let out = batch.out.offset(batch.outs.at(product));
            for i in 0..size.rows {
                for j in 0..columns {
                    let at = batch.place.rows.at(i) + batch.place.columns.at(first + j);
                    *out.offset(at) = O::narrow(*sums.add(i * columns + j));
                }
            }
        }
    });
    true
}

multiversion! {
    /// Computes the sums of a strip.
    fn compute<S: Element>(strip: &Strip<S>) = compute_body;
}

#[inline(always)]
fn compute_body<S: Element>(strip: &Strip<S>) {
    match strip.rows {
        1 => rows::<S, 1>(strip),
        2 => rows::<S, 2>(strip),
        3 => rows::<S, 3>(strip),
        _ => rows::<S, 4>(strip),
    }
}

#[inline(always)]
fn rows<S: Element, const ROWS: usize>(strip: &Strip<S>) {
    let tile = ROWS * strip.columns;
    let slot = |level: usize| strip.sums.wrapping_add((1 + level) * tile);
    let blocks = strip.terms.div_ceil(strip.block);
    for block in 0..blocks {
        // SAFETY: tiles of the strip's room, terms of its operands.
        unsafe {
            for i in 0..tile {
                *strip.sums.add(i) = S::Real::ZERO;
            }
            let end = ((block + 1) * strip.block).min(strip.terms);
            let mut term = block * strip.block;
            while term + TERMS <= end {
                terms::<S, ROWS, TERMS>(strip, term);
                term += TERMS;
            }
            while term < end {
                terms::<S, ROWS, 1>(strip, term);
                term += 1;
            }
            let last = block + 1 == blocks;
            let mut merged = if last { block } else { (1 << block.trailing_ones()) - 1 };
            while merged != 0 {
                add(slot(merged.trailing_zeros() as usize), strip.sums, tile);
                merged &= merged - 1;
            }
            if !last {
                std::ptr::copy_nonoverlapping(strip.sums, slot(block.trailing_ones() as usize), tile);
            }
        }
    }
}

/// Adds `left[i]` to the left of `sums[i]`.
///
/// # Safety
/// Both must have `count` numbers and be apart.
#[inline(always)]
unsafe fn add<T: Real>(left: *const T, sums: *mut T, count: usize) {
    // SAFETY: the caller's promise.
    let (left, sums) =
        unsafe { (std::slice::from_raw_parts(left, count), std::slice::from_raw_parts_mut(sums, count)) };
    for (sum, &x) in sums.iter_mut().zip(left) {
        *sum = x + *sum;
    }
}

/// Continues all chains by terms `first..first + TERMS`.
///
/// # Safety
/// The operands must have these terms.
#[inline(always)]
unsafe fn terms<S: Element, const ROWS: usize, const TERMS: usize>(strip: &Strip<S>, first: usize) {
    let [row, term] = strip.left_steps;
    let factors: [[S::Real; TERMS]; ROWS] = std::array::from_fn(|i| {
        // SAFETY: elements of the left operand.
        std::array::from_fn(|k| unsafe {
            strip.left.offset(i as isize * row + (first + k) as isize * term).read().widen()
        })
    });
    let right: [*const S; TERMS] =
        std::array::from_fn(|k| strip.right.wrapping_offset((first + k) as isize * strip.right_step));
    let whole = strip.columns / LANES * LANES;
    // SAFETY: columns of the strip.
    unsafe {
        for column in (0..whole).step_by(LANES) {
            columns::<S, ROWS, TERMS, LANES>(&factors, &right, strip, column);
        }
        for column in whole..strip.columns {
            columns::<S, ROWS, TERMS, 1>(&factors, &right, strip, column);
        }
    }
}

/// The part of [`terms`] for `LANES` columns.
///
/// # Safety
/// The strip must have them.
#[inline(always)]
unsafe fn columns<S: Element, const ROWS: usize, const TERMS: usize, const LANES: usize>(
    factors: &[[S::Real; TERMS]; ROWS],
    right: &[*const S; TERMS],
    strip: &Strip<S>,
    column: usize,
) {
    // SAFETY: the caller's promise; an array has the alignment of its elements.
    unsafe {
        let right: [[S; LANES]; TERMS] = std::array::from_fn(|k| *right[k].add(column).cast());
        let right = right.map(|right| right.map(S::widen));
        for (i, factors) in factors.iter().enumerate() {
            let sums: *mut [S::Real; LANES] = strip.sums.add(i * strip.columns + column).cast();
            let mut sum = *sums;
            for (right, &factor) in right.iter().zip(factors) {
                sum = std::array::from_fn(|lane| factor.fma(right[lane], sum[lane]));
            }
            *sums = sum;
        }
    }
}
