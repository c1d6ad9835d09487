//! Elements from any places to any others: what reshapes, concatenations and paddings do.

mod interleave;
mod pairs;
mod runs;
mod turn;

use crate::operand::Shared;
use crate::stream::STREAM_BYTES;
use crate::{Context, Operand, Output};
use interleave::Interleave;
use meshwork_simd::line::{LINE, Line};
pub(crate) use pairs::Pairs;
pub(crate) use runs::copy as copy_rows;
use std::cell::Cell;
use std::ops::Range;
use turn::Turn;

/// Elements per task below which further threads do not pay.
pub(crate) const GRAIN: usize = 1 << 14;
/// Elements of a part of a row, from which one is cut.
const PART: usize = 1 << 14;

thread_local! {
    /// Where a thread puts together what goes past the caches, or gathers what it reads at once.
    static ROOM: Cell<Vec<Line>> = const { Cell::new(vec![]) };
}

/// Copies `input` in row-major order, under whatever shape the output has. Either dtype may be anything, but both
/// must be the same.
///
/// # Panics
/// When numbers of elements or dtypes differ.
pub fn run(input: Operand, output: Output, context: Context) {
    assert_eq!(input.dtype, output.dtype, "dtypes of a copy");
    assert_eq!(input.shape().numel(), output.shape.numel(), "elements of a copy");
    let strides = input.shape().strides();
    // SAFETY: the output has room for the elements of this shape.
    unsafe { place(&input, &strides, output.bytes(), context) };
}

/// Copies an operand's elements to `out` and to so many elements from there for each dimension, one or more.
///
/// # Safety
/// All these places must be writable, no two elements have the same one, and nobody else use them meanwhile.
pub(crate) unsafe fn place(input: &Operand, strides: &[isize], out: *mut u8, context: Context) {
    let pairs = Pairs::between(input.layout, strides);
    if pairs.len() == 0 {
        return;
    }
    // SAFETY: the offset is that of an element.
    let first = unsafe { input.bytes().add(input.layout.offset * input.dtype.size()) };
    // SAFETY: the caller's promise; any bits of their size can be moved.
    crate::number::by_size!(input.dtype, T => unsafe {
        copy::<T>(&pairs, (Shared(first.cast_mut().cast()), Shared(out.cast())), context);
    });
}

unsafe fn copy<T: Copy + Send + Sync>(pairs: &Pairs, places: (Shared<T>, Shared<T>), context: Context) {
    let streams = pairs.len() * size_of::<T>() >= STREAM_BYTES && pairs.is_dense();
    // SAFETY: the caller's promise.
    unsafe {
        if pairs.rows_lie_together() {
            runs::run(pairs, places, streams, context);
        } else if let Some(interleave) = Interleave::new(pairs) {
            interleave.run(places, streams, context);
        } else if let Some(turn) = Turn::new(pairs) {
            turn.run(places, streams, context);
        } else {
            elements(pairs, places, context);
        }
    }
}

/// Copies some elements of those of [`Pairs::dense`], the first of them to `out`.
///
/// # Safety
/// All elements must be readable from `first` on, and there must be room for those that are copied.
pub(crate) unsafe fn gather<T: Copy>(pairs: &Pairs, range: Range<usize>, first: *const T, out: *mut T) {
    let (row, last) = (pairs.row(), pairs.last());
    let out = out.wrapping_sub(range.start);
    let part = |part: Range<usize>| {
        if !part.is_empty() {
            let [from, to] = pairs.position(part.start);
            // SAFETY: the caller's promise.
            unsafe { copy_row([pairs.from[last], 1], first.offset(from), out.wrapping_offset(to), part.len()) };
        }
    };
    let begin = range.start.next_multiple_of(row).min(range.end);
    let end = (range.end / row * row).max(begin);
    part(range.start..begin);
    // SAFETY: the caller's promise.
    unsafe { rows(pairs, begin.div_ceil(row)..end / row, first, out) };
    part(end..range.end);
}

/// Copies some rows.
unsafe fn rows<T: Copy>(pairs: &Pairs, rows: Range<usize>, first: *const T, out: *mut T) {
    let (row, steps) = (pairs.row(), [pairs.from[pairs.last()], pairs.to[pairs.last()]]);
    // SAFETY: the caller's promise.
    unsafe {
        match steps {
            [1, 1] => runs::copy(pairs, rows, first, out),
            [0, 1] => runs::fill(pairs, rows, first, out),
            _ => pairs.groups(rows, |[from, to], count, along| {
                let (mut from, mut to) = (first.wrapping_offset(from), out.wrapping_offset(to));
                for _ in 0..count {
                    copy_row(steps, from, to, row);
                    (from, to) = (from.wrapping_offset(along[0]), to.wrapping_offset(along[1]));
                }
            }),
        }
    }
}

/// Copies so many elements, which are so far apart.
#[inline(always)]
unsafe fn copy_row<T: Copy>([read, written]: [isize; 2], from: *const T, to: *mut T, count: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match [read, written] {
            [1, 1] => from.copy_to_nonoverlapping(to, count),
            [0, 1] => std::slice::from_raw_parts_mut(to, count).fill(*from),
            _ => (0..count as isize).for_each(|i| *to.offset(i * written) = *from.offset(i * read)),
        }
    }
}

/// Element by element.
unsafe fn elements<T: Copy + Send + Sync>(pairs: &Pairs, (first, out): (Shared<T>, Shared<T>), context: Context) {
    let (row, last) = (pairs.row(), pairs.last());
    if row >= PART {
        let parts = row.div_ceil(PART);
        let steps = [pairs.from[last], pairs.to[last]];
        return context.par.ranges(pairs.len() / row * parts, 1, &|range| {
            for item in range {
                let start = item % parts * PART;
                let [from, to] = pairs.position(item / parts * row + start);
                // SAFETY: the elements of a part, which belongs to this task.
                unsafe {
                    let (from, to) = (first.pointer().offset(from), out.pointer().offset(to));
                    copy_row(steps, from, to, PART.min(row - start));
                }
            }
        });
    }
    context.par.ranges(pairs.len() / row, GRAIN / row + 1, &|range| {
        // SAFETY: these rows belong to this task.
        unsafe { rows(pairs, range, first.pointer(), out.pointer()) };
    });
}

/// Calls `body` with so many bytes of this thread.
pub(crate) fn room(bytes: usize, body: impl FnOnce(*mut u8)) {
    let mut room = ROOM.take();
    room.resize(room.len().max(bytes.div_ceil(LINE)), Line([0; LINE]));
    body(room.as_mut_ptr().cast());
    ROOM.set(room);
}

#[cfg(test)]
mod tests {
    use crate::stream::STREAM_BYTES;
    use crate::testing::{self, Case, Sample, bits};
    use crate::{Context, Level};
    use meshwork_graph::{Layout, Shape};

    fn check<T: Sample>(shape: &[usize]) {
        testing::each_context(|context| {
            for case in Case::<T>::strided(shape) {
                let got = testing::output::<T>(&case.layout.shape, |output| {
                    super::run(case.operand(), output, context);
                });
                assert_eq!(bits(&got), bits(&case.elements()), "{:?}", case.layout);
            }
        });
    }

    #[test]
    fn copies_are_the_elements_in_row_major_order() {
        check::<f32>(&[7, 33, 70]);
        check::<f64>(&[2, 3, 0, 5]);
        check::<half::bf16>(&[65, 40]);
        check::<bool>(&[200, 101]);
        check::<i64>(&[1, 1]);
        check::<i32>(&[]);
        check::<f32>(&[5, 6, 3, 45]);
        check::<f64>(&[40, 9, 4]);
        // Parts of columns, and of rows.
        check::<f32>(&[20, 1500]);
        check::<half::f16>(&[2, 3 * super::PART / 2]);
    }

    /// Copies what lies in the order of `base` in another one.
    fn reorders<T: Sample>(base: &[usize], order: &[usize], contexts: impl Fn(Context) -> bool) {
        let base = Shape::new(base);
        let case = Case::<T>::new(1, base.numel(), Layout::contiguous(&base).permute(order));
        let want = bits(&case.elements());
        testing::each_context(|context| {
            if contexts(context) {
                let got = testing::output::<T>(&case.layout.shape, |output| {
                    super::run(case.operand(), output, context);
                });
                assert!(bits(&got) == want, "{:?} at {:?}", case.layout, context.level);
            }
        });
    }

    #[test]
    fn rows_of_any_length_lie_together() {
        for row in (1..=67).chain([96, 127, 200, 513, 700]) {
            reorders::<u8>(&[3, 5, row], &[1, 0, 2], |_| true);
            reorders::<f32>(&[3, 5, row], &[1, 0, 2], |_| true);
        }
    }

    #[test]
    fn few_rows_are_interleaved_and_parted() {
        for rows in 1..=9 {
            for row in [1, 15, 16, 17, 33, 100, 4096, 5003] {
                for base in [[2, rows, row], [2, row, rows]] {
                    reorders::<u8>(&base, &[0, 2, 1], |_| true);
                    reorders::<half::f16>(&base, &[0, 2, 1], |_| true);
                    reorders::<f32>(&base, &[0, 2, 1], |_| true);
                    reorders::<i64>(&base, &[0, 2, 1], |_| true);
                }
            }
        }
        reorders::<f32>(&[30, 3, 20, 20], &[0, 2, 3, 1], |_| true);
        reorders::<f32>(&[3, 700, 2, 40], &[0, 1, 3, 2], |_| true);
        reorders::<f32>(&[3, 40, 40, 2], &[0, 3, 1, 2], |_| true);
    }

    #[test]
    fn what_is_larger_than_the_caches_goes_past_them() {
        let elements = STREAM_BYTES / 4;
        let once = |context: Context| context.par.lanes() == 2 && context.level == Level::Portable;
        for (base, order) in [
            ([3, elements / 3000, 1001], [0, 2, 1]),
            ([elements / 2000, 401, 5], [1, 0, 2]),
            ([2, 3, elements / 6 + 1], [1, 0, 2]),
            ([2, 3, elements / 6 + 1], [0, 2, 1]),
            ([2, elements / 6 + 1, 3], [0, 2, 1]),
            ([1, 1, elements + 3], [0, 1, 2]),
        ] {
            reorders::<f32>(&base, &order, once);
        }
    }
}
