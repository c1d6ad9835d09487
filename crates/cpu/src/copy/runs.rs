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
            1 => rows.two::<1>(bytes),
            2..=3 => rows.two::<2>(bytes),
            4..=7 => rows.two::<4>(bytes),
            8..=15 => rows.two::<8>(bytes),
            16..=31 => rows.two::<16>(bytes),
            32..=64 => rows.two::<32>(bytes),
            65..=SHORT => rows.each(|from, to| {
                for at in (0..bytes - PIECE).step_by(PIECE) {
                    piece::<PIECE>(from.add(at), to.add(at));
                }
                piece::<PIECE>(from.add(bytes - PIECE), to.add(bytes - PIECE));
            }),
            _ => rows.each(|from, to| std::ptr::copy_nonoverlapping(from, to, bytes)),
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
    /// Moves rows of so many bytes, as many as `N` and up to twice as many.
    #[inline(always)]
    unsafe fn two<const N: usize>(self, bytes: usize) {
        // SAFETY: the caller's promise.
        self.each(|from, to| unsafe {
            let (first, last) = (from.cast::<[u8; N]>(), from.add(bytes - N).cast::<[u8; N]>());
            let (first, last) = (first.read_unaligned(), last.read_unaligned());
            to.cast::<[u8; N]>().write_unaligned(first);
            to.add(bytes - N).cast::<[u8; N]>().write_unaligned(last);
        });
    }

    #[inline(always)]
    fn each(self, copy: impl Fn(*const u8, *mut u8)) {
        self.pairs.groups(self.rows, |[from, to], count, steps| {
            let (mut from, mut to) = (self.first.wrapping_offset(from), self.out.wrapping_offset(to));
            for _ in 0..count {
                copy(from.cast(), to.cast());
                (from, to) = (from.wrapping_offset(steps[0]), to.wrapping_offset(steps[1]));
            }
        });
    }
}

#[inline(always)]
unsafe fn piece<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: the caller passes so many bytes.
    unsafe { to.cast::<[u8; N]>().write_unaligned(from.cast::<[u8; N]>().read_unaligned()) };
}
