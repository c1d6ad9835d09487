//! Elements that lie together along one dimension where they are read, and along others where they are written: square tiles
//! of both are transposed, so that every line of the caches is read and written while it is near.

use super::pairs::Pairs;
use super::{GRAIN, room};
use crate::gemm::pack;
use crate::operand::Shared;
use crate::walk::Walk;
use crate::{Context, Level, stream};
use meshwork_simd::line::prefetch_all;

/// Rows and columns of a tile: both sides stay in the first cache.
const EDGE: usize = 32;
/// Columns of a task, at most.
const PART: usize = 1 << 10;
/// Bytes of a row that are put together before they go past the caches.
const TOGETHER: usize = 1 << 10;
/// Bytes of elements that may be further away than in the second cache: they are asked for before they are read.
const FAR: usize = 1 << 20;
/// Elements that lie together where they are read, at least.
const ROWS: usize = 8;

/// How elements are transposed. A *row* is an index of the dimension along which they lie together where they are read, its
/// *columns* lie together where they are written.
pub struct Turn {
    rows: usize,
    /// Distance of rows where they are written.
    step: isize,
    /// Where columns are read.
    columns: Walk,
    /// The other dimensions.
    others: Pairs,
}

impl Turn {
    /// The way to transpose these elements, if they lie so.
    pub fn new(pairs: &Pairs) -> Option<Turn> {
        let last = pairs.last();
        if pairs.to[last] != 1 || matches!(pairs.from[last], 0 | 1) {
            return None;
        }
        let dense = (0..last).rfind(|&d| pairs.from[d] == 1 && pairs.sizes[d] >= ROWS)?;
        let follows = |d: &usize| pairs.to[*d] == pairs.to[d + 1] * pairs.sizes[d + 1] as isize;
        let first = (dense + 1..last).rev().take_while(follows).last().unwrap_or(last);
        let others = (0..first).filter(|&d| d != dense);
        Some(Turn {
            rows: pairs.sizes[dense],
            step: pairs.to[dense],
            columns: Walk::over((first..=last).map(|d| (pairs.sizes[d], pairs.from[d]))),
            others: Pairs::over(others.map(|d| (pairs.sizes[d], pairs.from[d], pairs.to[d]))),
        })
    }

    /// Copies all elements, past the caches if so.
    ///
    /// # Safety
    /// As for [`super::place`].
    pub unsafe fn run<T: Copy + Send + Sync>(
        &self,
        (first, out): (Shared<T>, Shared<T>),
        streams: bool,
        context: Context,
    ) {
        let (columns, others) = (self.columns.len(), self.others.len());
        let bands = self.rows.div_ceil(EDGE);
        // As many tasks as threads find work for, all alike.
        let all = others * self.rows * columns;
        let wanted = (all / GRAIN).min(4 * context.par.lanes()).div_ceil(others * bands);
        let part = columns.div_ceil(columns.div_ceil(PART).max(wanted)).next_multiple_of(EDGE);
        let parts = columns.div_ceil(part);
        let grain = (GRAIN / (EDGE.min(self.rows) * columns.min(part))).max(1);
        let asks = all * size_of::<T>() >= FAR;
        context.par.ranges(others * bands * parts, grain, &|range| {
            for item in range {
                let (number, item) = (item % parts, item / parts);
                let (band, other) = (item % bands, item / bands);
                let [from, to] = self.others.position(other);
                let (row, column) = (band * EDGE, number * part);
                let to = to + row as isize * self.step + column as isize;
                let band = Band {
                    turn: self,
                    rows: EDGE.min(self.rows - row),
                    columns: [column, columns.min(column + part)],
                    asks,
                    level: context.level,
                };
                // SAFETY: these elements belong to this task.
                unsafe {
                    let (from, to) = (first.pointer().offset(from + row as isize), out.pointer().offset(to));
                    match streams {
                        true => band.past_caches(from, to),
                        false => band.copy(band.columns, from, self.step, to),
                    }
                }
            }
            stream::fence();
        });
    }
}

/// Some columns of neighbouring rows.
struct Band<'a> {
    turn: &'a Turn,
    rows: usize,
    columns: [usize; 2],
    asks: bool,
    level: Level,
}

impl Band<'_> {
    /// Puts rows together before they are written.
    unsafe fn past_caches<T: Copy>(&self, from: *const T, to: *mut T) {
        let together = TOGETHER / size_of::<T>();
        let [first, end] = self.columns;
        // SAFETY: the caller's promise; there is room for all rows.
        room(EDGE * TOGETHER, |room| unsafe {
            for left in (first..end).step_by(together) {
                let right = end.min(left + together);
                self.copy([left, right], from, together as isize, room.cast());
                for row in 0..self.rows {
                    let source = room.cast::<T>().add(row * together);
                    let target = to.offset(row as isize * self.turn.step).add(left - first);
                    stream::copy(source.cast(), target.cast(), (right - left) * size_of::<T>(), &[]);
                }
            }
        });
    }

    /// Copies some columns to rows that are `step` apart, and asks for each tile while the one before is copied.
    unsafe fn copy<T: Copy>(&self, [first, end]: [usize; 2], from: *const T, step: isize, to: *mut T) {
        let mut places = [[0; EDGE]; 2];
        let find = |places: &mut [isize; EDGE], left: usize| {
            let count = EDGE.min(end - left);
            self.turn.columns.runs(left, count, |done, position, count, stride| {
                let places = places[done..done + count].iter_mut();
                places.enumerate().for_each(|(i, place)| *place = position + i as isize * stride);
            });
            count
        };
        let mut count = find(&mut places[0], first);
        for left in (first..end).step_by(EDGE) {
            let next = left + EDGE;
            let next_count = if next < end { find(&mut places[1], next) } else { 0 };
            for &place in places[1][..next_count].iter().filter(|_| self.asks) {
                prefetch_all(from.wrapping_offset(place), self.rows);
            }
            // SAFETY: the caller's promise.
            unsafe { tile(self.level, from, &places[0][..count], self.rows, step, to.add(left - first)) };
            places.swap(0, 1);
            count = next_count;
        }
    }
}

/// Copies a tile: `rows` neighbouring elements from each of some columns, those of a row to neighbours, rows `step` apart.
unsafe fn tile<T: Copy>(level: Level, from: *const T, columns: &[isize], rows: usize, step: isize, to: *mut T) {
    // SAFETY: the caller passes elements and their places; floats are moved as they are.
    unsafe {
        if size_of::<T>() == size_of::<f32>() && step > 0 {
            return pack::transpose::<f32>(level, from.cast(), columns, rows, step as usize, to.cast());
        }
        for row in 0..rows {
            let to = to.offset(row as isize * step);
            for (i, &column) in columns.iter().enumerate() {
                *to.add(i) = *from.offset(column).add(row);
            }
        }
    }
}
