//! Rows whose elements lie together on both sides. Short ones are two pieces of a power of two of bytes that overlap: to
//! call a function for each would take longer than to move it.

use super::pairs::Pairs;
use super::{GRAIN, PART, room};
use crate::operand::Shared;
use crate::{Context, stream};
use std::ops::Range;

/// Bytes of rows that are put together before they go past the caches.
const TOGETHER: usize = 16 << 10;
/// Bytes of rows that are moved piece by piece, at most.
const SHORT: usize = 512;
/// Bytes of a piece.
const PIECE: usize = 32;

/// Copies all rows, past the caches where the target lies together and is to be written so.
///
/// # Safety
/// As for [`super::place`].
pub unsafe fn run<T: Copy + Send + Sync>(
    pairs: &Pairs,
    (first, out): (Shared<T>, Shared<T>),
    streams: bool,
    context: Context,
) {
    let (row, rows) = (pairs.row(), pairs.len() / pairs.row());
    let bytes = row * size_of::<T>();
    if row >= PART {
        let parts = row.div_ceil(PART);
        return context.par.ranges(rows * parts, 1, &|range| {
            for item in range {
                let start = item % parts * PART;
                let [from, to] = pairs.position(item / parts * row + start);
                let bytes = PART.min(row - start) * size_of::<T>();
                // SAFETY: these elements belong to this task.
                unsafe {
                    let (from, to) = (first.pointer().offset(from), out.pointer().offset(to));
                    match streams {
                        true => stream::copy(from.cast(), to.cast(), bytes, &[]),
                        false => std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), bytes),
                    }
                }
            }
            stream::fence();
        });
    }
    context.par.ranges(rows, GRAIN / row + 1, &|range| {
        // SAFETY: these rows belong to this task. They follow each other in the target if that lies together.
        unsafe {
            if !streams {
                return copy(pairs, range, first.pointer(), out.pointer());
            }
            let count = (TOGETHER / bytes).max(1);
            room(count * bytes, |room| {
                for start in range.clone().step_by(count) {
                    let rows = start..range.end.min(start + count);
                    let to = out.pointer().add(start * row);
                    let written = room.cast::<T>().wrapping_sub(start * row);
                    copy(pairs, rows.clone(), first.pointer(), written);
                    stream::copy(room, to.cast(), rows.len() * bytes, &[]);
                }
            });
            stream::fence();
        }
    });
}

/// Copies some rows.
///
/// # Safety
/// The rows' elements must be readable from `first` on and writable from `out` on, and overlap nowhere.
pub unsafe fn copy<T: Copy>(pairs: &Pairs, rows: Range<usize>, first: *const T, out: *mut T) {
    let bytes = pairs.row() * size_of::<T>();
    let rows = Rows { pairs, rows, first, out };
    // SAFETY: the caller's promise; pieces of so many bytes are as long as a row at most.
    unsafe {
        match bytes {
            1 => rows.each(two::<T, 1>(bytes)),
            2..=3 => rows.each(two::<T, 2>(bytes)),
            4..=7 => rows.each(two::<T, 4>(bytes)),
            8..=15 => rows.each(two::<T, 8>(bytes)),
            16..=31 => rows.each(two::<T, 16>(bytes)),
            32..=64 => rows.each(two::<T, PIECE>(bytes)),
            65..=SHORT => rows.each(|from, to| {
                let last = bytes - PIECE;
                for at in (0..last).step_by(PIECE).chain([last]) {
                    write(to, at, read::<PIECE>(from.cast(), at));
                }
            }),
            _ => rows.each(|from, to| std::ptr::copy_nonoverlapping(from, to, bytes / size_of::<T>())),
        }
    }
}

/// Fills some rows, each with one element.
///
/// # Safety
/// As for [`copy`].
pub unsafe fn fill<T: Copy>(pairs: &Pairs, rows: Range<usize>, first: *const T, out: *mut T) {
    let (row, bytes) = (pairs.row(), pairs.row() * size_of::<T>());
    let rows = Rows { pairs, rows, first, out };
    // SAFETY: the caller's promise; pieces are no longer than a row, and have whole elements.
    unsafe {
        match bytes {
            8..=15 => rows.each(fill_two::<T, 8>(bytes)),
            16..=31 => rows.each(fill_two::<T, 16>(bytes)),
            32..=64 => rows.each(fill_two::<T, PIECE>(bytes)),
            _ => rows.each(|from, to| std::slice::from_raw_parts_mut(to, row).fill(*from)),
        }
    }
}

struct Rows<'a, T> {
    pairs: &'a Pairs,
    rows: Range<usize>,
    first: *const T,
    out: *mut T,
}

impl<T> Rows<'_, T> {
    /// Calls `copy` with the first element of each row on both sides.
    #[inline(always)]
    fn each(self, copy: impl Fn(*const T, *mut T)) {
        self.pairs.groups(self.rows, |[from, to], count, steps| {
            let (mut from, mut to) = (self.first.wrapping_offset(from), self.out.wrapping_offset(to));
            for _ in 0..count {
                copy(from, to);
                (from, to) = (from.wrapping_offset(steps[0]), to.wrapping_offset(steps[1]));
            }
        });
    }
}

/// Moves a row of so many bytes, as many as `N` and up to twice as many.
#[inline(always)]
unsafe fn two<T, const N: usize>(bytes: usize) -> impl Fn(*const T, *mut T) {
    // SAFETY: the caller's promise.
    move |from, to| unsafe {
        let (first, last) = (read::<N>(from.cast(), 0), read::<N>(from.cast(), bytes - N));
        write(to, 0, first);
        write(to, bytes - N, last);
    }
}

/// Fills a row of so many bytes, as many as `N` and up to twice as many.
#[inline(always)]
unsafe fn fill_two<T: Copy, const N: usize>(bytes: usize) -> impl Fn(*const T, *mut T) {
    // SAFETY: the caller's promise; a piece begins with a whole element, as sizes of elements are powers of two.
    move |from, to| unsafe {
        let value = [*from; PIECE];
        let piece = value.as_ptr().cast::<[u8; N]>().read_unaligned();
        write(to, 0, piece);
        write(to, bytes - N, piece);
    }
}

#[inline(always)]
unsafe fn read<const N: usize>(from: *const u8, at: usize) -> [u8; N] {
    // SAFETY: the caller passes so many bytes.
    unsafe { from.add(at).cast::<[u8; N]>().read_unaligned() }
}

#[inline(always)]
unsafe fn write<T, const N: usize>(to: *mut T, at: usize, piece: [u8; N]) {
    // SAFETY: the caller passes so many bytes.
    unsafe { to.cast::<u8>().add(at).cast::<[u8; N]>().write_unaligned(piece) };
}
