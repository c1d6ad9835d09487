//! Few rows that lie one behind the other on one side and in turn on the other, as channels of images that go last or first:
//! loops over the elements of all rows at once, of which compilers make shuffles of vectors.

use super::pairs::Pairs;
use super::{GRAIN, room};
use crate::operand::Shared;
use crate::{Context, Level, stream};
use meshwork_simd::line::LINE;
use meshwork_simd::multiversion;

/// Elements of each row that are copied at once.
const PART: usize = 1 << 12;
/// Elements of a row, at least.
const LONG: usize = 16;
/// Bytes that are put together before they go past the caches, at most, as whole lines.
const TOGETHER: usize = 16 << 10;

/// How rows are interleaved, or the other way round.
pub struct Interleave {
    /// Whether they lie in turn where they are written, not where they are read.
    joins: bool,
    /// Rows.
    rows: usize,
    /// Elements of a row.
    row: usize,
    /// Distance between rows on the side where they lie one behind the other.
    step: isize,
    /// The other dimensions.
    others: Pairs,
}

impl Interleave {
    /// The way to interleave these elements, or the other way round, if they lie so.
    pub fn new(pairs: &Pairs) -> Option<Interleave> {
        let last = pairs.last();
        let along = last.checked_sub(1)?;
        let [outer, inner] = [along, last].map(|d| (pairs.sizes[d], pairs.from[d], pairs.to[d]));
        let fits = |rows: usize, row: usize| matches!(rows, 2..=7) && row >= LONG;
        let (joins, rows, row, step) = match (outer, inner) {
            ((row, 1, to), (rows, step, 1)) if to == rows as isize && fits(rows, row) => (true, rows, row, step),
            ((rows, 1, step), (row, from, 1)) if from == rows as isize && fits(rows, row) => (false, rows, row, step),
            _ => return None,
        };
        let others = (0..along).map(|d| (pairs.sizes[d], pairs.from[d], pairs.to[d]));
        Some(Interleave { joins, rows, row, step, others: Pairs::over(others) })
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
        let part = if streams { TOGETHER / (self.rows * size_of::<T>()) / LINE * LINE } else { PART };
        let parts = self.row.div_ceil(part);
        let grain = GRAIN / (self.rows * self.row.min(part)) + 1;
        // Between neighbours of a row where it is read, and where it is written.
        let apart = if self.joins { [1, self.rows] } else { [self.rows, 1] };
        context.par.ranges(self.others.len() * parts, grain, &|range| {
            for item in range {
                let (start, [from, to]) = (item % parts * part, self.others.position(item / parts));
                let count = part.min(self.row - start);
                // SAFETY: these elements belong to this task.
                unsafe {
                    let from = first.pointer().offset(from).add(start * apart[0]);
                    let to = out.pointer().offset(to).add(start * apart[1]);
                    match streams {
                        true => self.past_caches(context.level, from, to, count),
                        false => self.copy(context.level, from, self.step, to, count),
                    }
                }
            }
            stream::fence();
        });
    }

    /// Puts so many elements of each row together before they are written.
    unsafe fn past_caches<T: Copy>(&self, level: Level, from: *const T, to: *mut T, count: usize) {
        let bytes = count * size_of::<T>();
        // SAFETY: the caller's promise; there is room for all of them.
        room(self.rows * bytes, |room| unsafe {
            if self.joins {
                self.copy(level, from, self.step, room.cast(), count);
                return stream::copy(room, to.cast(), self.rows * bytes, &[]);
            }
            self.copy(level, from, count as isize, room.cast(), count);
            for row in 0..self.rows {
                stream::copy(room.add(row * bytes), to.offset(row as isize * self.step).cast(), bytes, &[]);
            }
        });
    }

    /// Copies so many elements of each row; rows are `step` apart where they lie one behind the other.
    unsafe fn copy<T: Copy>(&self, level: Level, from: *const T, step: isize, to: *mut T, count: usize) {
        // SAFETY: the caller's promise; there are as many rows.
        unsafe {
            match self.rows {
                2 => self.copy_rows::<T, 2>(level, from, step, to, count),
                3 => self.copy_rows::<T, 3>(level, from, step, to, count),
                4 => self.copy_rows::<T, 4>(level, from, step, to, count),
                5 => self.copy_rows::<T, 5>(level, from, step, to, count),
                6 => self.copy_rows::<T, 6>(level, from, step, to, count),
                _ => self.copy_rows::<T, 7>(level, from, step, to, count),
            }
        }
    }

    unsafe fn copy_rows<T: Copy, const ROWS: usize>(
        &self,
        level: Level,
        from: *const T,
        step: isize,
        to: *mut T,
        count: usize,
    ) {
        // SAFETY: the caller's promise. What is written does not overlap.
        unsafe {
            if self.joins {
                let row = |i: usize| std::slice::from_raw_parts(from.offset(i as isize * step), count);
                let rows: [&[T]; ROWS] = std::array::from_fn(row);
                join::<T, [T; ROWS]>(level, &rows, std::slice::from_raw_parts_mut(to.cast(), count));
            } else {
                let row = |i: usize| std::slice::from_raw_parts_mut(to.offset(i as isize * step), count);
                let mut rows: [&mut [T]; ROWS] = std::array::from_fn(row);
                part::<T, [T; ROWS]>(level, std::slice::from_raw_parts(from.cast(), count), &mut rows);
            }
        }
    }
}

/// An element of each row.
trait Column<T>: Copy {
    /// Makes columns of rows that are as long, or longer.
    fn join(rows: &[&[T]], columns: &mut [Self]);

    /// Makes rows of columns.
    fn part(columns: &[Self], rows: &mut [&mut [T]]);
}

impl<T: Copy, const ROWS: usize> Column<T> for [T; ROWS] {
    #[inline(always)]
    fn join(rows: &[&[T]], columns: &mut [Self]) {
        let rows: [&[T]; ROWS] = std::array::from_fn(|i| &rows[i][..columns.len()]);
        for (i, column) in columns.iter_mut().enumerate() {
            for (x, row) in column.iter_mut().zip(&rows) {
                *x = row[i];
            }
        }
    }

    #[inline(always)]
    fn part(columns: &[Self], rows: &mut [&mut [T]]) {
        let rows: &mut [&mut [T]; ROWS] = rows.try_into().expect("as many rows as a column has elements");
        let mut rows = rows.each_mut().map(|row| &mut row[..columns.len()]);
        for (i, column) in columns.iter().enumerate() {
            for (row, &x) in rows.iter_mut().zip(column) {
                row[i] = x;
            }
        }
    }
}

#[inline(always)]
fn join_body<T: Copy, A: Column<T>>(rows: &[&[T]], columns: &mut [A]) {
    A::join(rows, columns);
}

#[inline(always)]
fn part_body<T: Copy, A: Column<T>>(columns: &[A], rows: &mut [&mut [T]]) {
    A::part(columns, rows);
}

multiversion! {
    /// Interleaves rows.
    fn join<T: Copy, A: Column<T>>(rows: &[&[T]], columns: &mut [A]) = join_body;
}

multiversion! {
    /// The other way round.
    fn part<T: Copy, A: Column<T>>(columns: &[A], rows: &mut [&mut [T]]) = part_body;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_lie_in_turn_on_either_side() {
        let found = |dims: [(usize, isize, isize); 3]| {
            let found = Interleave::new(&Pairs::over(dims))?;
            Some((found.joins, found.rows, found.row, found.step))
        };
        assert_eq!(found([(5, 300, 300), (100, 1, 3), (3, 100, 1)]), Some((true, 3, 100, 100)));
        assert_eq!(found([(5, 300, 300), (3, 1, 100), (100, 3, 1)]), Some((false, 3, 100, 100)));
        // Rows farther apart than they are long, and elements farther apart than there are rows.
        assert_eq!(found([(5, 400, 300), (100, 1, 3), (3, -130, 1)]), Some((true, 3, 100, -130)));
        assert_eq!(found([(5, 300, 400), (3, 1, 130), (100, 3, 1)]), Some((false, 3, 100, 130)));
        assert_eq!(found([(5, 400, 300), (3, 1, 100), (100, 4, 1)]), None);
        // Too many rows, and too short ones.
        assert_eq!(found([(5, 800, 800), (100, 1, 8), (8, 100, 1)]), None);
        assert_eq!(found([(5, 45, 45), (15, 1, 3), (3, 15, 1)]), None);
    }
}
