//! A block of wide rows, each the terms of so many neighbouring outputs.
//!
//! Lanes of such rows fit into no first cache, and to add a row to one that lies elsewhere takes longer than to read it.
//! So the rows of two lanes that the lane tree joins are read side by side, up to [`ROWS`] each; only what becomes of both is
//! stored, joined with what the tree has for it already.

use super::monoid::{Monoid, Term};
use crate::Level;
use meshwork_graph::canonical::LANES;
use meshwork_simd::multiversion;
use std::marker::PhantomData;

/// Rows of a lane that are read side by side, at most. With those of two lanes a processor follows all of them.
const ROWS: usize = 4;
/// Rows of all lanes that are read one after the other.
pub const ROUND: usize = ROWS * LANES;
/// Columns that are joined at once.
const COLUMNS: usize = 64;
/// Rows of results that the lane tree holds besides the first one.
const HELD: usize = LANES.ilog2() as usize - 2;

/// Columns from which rows are wide.
pub const WIDE: usize = 256;

/// Numbers that a block of so many terms needs room for: what the tree holds, and all lanes where there are rounds.
pub fn room(columns: usize, terms: usize) -> usize {
    (HELD + if terms > ROUND { LANES } else { 0 }) * columns
}

/// The rows of a block, from which its results come.
pub struct Block<'a, T: Term> {
    level: Level,
    columns: usize,
    /// Rows of the round, by lanes.
    rows: [[*const T; ROWS]; LANES],
    count: usize,
    /// What the tree holds, and the lanes where there are rounds before this one: [`room()`] numbers.
    room: *mut T::Sum,
    numbers: PhantomData<&'a mut [T::Sum]>,
    /// There were.
    goes_on: bool,
}

/// A lane: what it has so far, and rows that follow.
struct Lane<'a, T: Term> {
    start: Option<*const T::Sum>,
    rows: &'a [*const T],
}

/// One or two lanes, and what they are joined with.
struct Joined<'a, T: Term> {
    columns: usize,
    lanes: &'a [Lane<'a, T>],
    /// Results that come before theirs, the nearest first.
    left: &'a [*const T::Sum],
    /// May be one of them or the start of a lane.
    out: *mut T::Sum,
}

impl<'a, T: Term> Block<'a, T> {
    /// Up to so many rows of so many columns, none so far.
    ///
    /// # Panics
    /// When `room` is smaller than [`room()`] says.
    pub fn new(level: Level, [columns, terms]: [usize; 2], room: &'a mut [T::Sum]) -> Self {
        assert!(room.len() >= self::room(columns, terms), "room for a block of {terms} rows of {columns}");
        let (rows, room) = ([[std::ptr::null(); ROWS]; LANES], room.as_mut_ptr());
        Block { level, columns, rows, count: 0, room, numbers: PhantomData, goes_on: false }
    }

    /// The next row.
    ///
    /// # Safety
    /// It must be readable until the block is finished, and there be no more rows than were told.
    pub unsafe fn push<M: Monoid<T::Sum>>(&mut self, op: M, row: *const T) {
        if self.count == ROUND {
            for lane in 0..LANES {
                self.join(op, &[self.so_far(lane)], &[], self.row(HELD + lane));
            }
            (self.count, self.goes_on) = (0, true);
        }
        self.rows[self.count % LANES][self.count / LANES] = row;
        self.count += 1;
    }

    /// The results of at least one row.
    pub fn finish<M: Monoid<T::Sum>>(self, op: M, out: &mut [T::Sum]) {
        assert_eq!(out.len(), self.columns, "results of a block");
        self.tree(op, [0, 1], [0, 0], out.as_mut_ptr());
    }

    /// Joins every `step`th lane from `lane` on, and these with the last of `held` rows, of which `out` is the first. What becomes
    /// of all takes the place of the first of them.
    fn tree<M: Monoid<T::Sum>>(&self, op: M, [lane, step]: [usize; 2], [held, last]: [usize; 2], out: *mut T::Sum) {
        let used = if self.goes_on { LANES } else { self.count.min(LANES) };
        if step < used.next_power_of_two() / 2 {
            // Lanes without terms change nothing.
            if lane + step >= used {
                return self.tree(op, [lane, 2 * step], [held, last], out);
            }
            self.tree(op, [lane, 2 * step], [held, 0], out);
            return self.tree(op, [lane + step, 2 * step], [held + 1, last + 1], out);
        }
        let row = |i: usize| if i == 0 { out } else { self.row(i - 1) };
        let mut left = [std::ptr::null::<T::Sum>(); HELD + 1];
        for (i, left) in left[..last].iter_mut().enumerate() {
            *left = row(held - 1 - i);
        }
        self.join(op, &[self.so_far(lane), self.so_far(lane + step)], &left[..last], row(held - last));
    }

    /// A row of the room.
    fn row(&self, row: usize) -> *mut T::Sum {
        self.room.wrapping_add(row * self.columns)
    }

    /// What a lane has, and its rows of this round.
    fn so_far(&self, lane: usize) -> Lane<'_, T> {
        let start = self.goes_on.then(|| self.row(HELD + lane).cast_const());
        Lane { start, rows: &self.rows[lane][..(self.count + LANES - 1 - lane) / LANES] }
    }

    fn join<M: Monoid<T::Sum>>(&self, op: M, lanes: &[Lane<T>], left: &[*const T::Sum], out: *mut T::Sum) {
        join(self.level, op, &Joined { columns: self.columns, lanes, left, out });
    }
}

multiversion! {
    /// Joins one or two lanes and what comes before them.
    fn join<T: Term, M: Monoid<T::Sum>>(op: M, joined: &Joined<'_, T>) = join_body;
}

#[inline(always)]
fn join_body<T: Term, M: Monoid<T::Sum>>(op: M, joined: &Joined<'_, T>) {
    match joined.lanes {
        [Lane { start: None, rows: left }, Lane { start: None, rows: right }] if left.len() == right.len() => {
            // The compiler is told the usual numbers of rows.
            let is_usual = join_rows::<T, M, ROWS>(op, joined, [left, right])
                || join_rows::<T, M, 2>(op, joined, [left, right])
                || join_rows::<T, M, 1>(op, joined, [left, right]);
            if !is_usual {
                join_columns::<T, M>(op, joined, joined.lanes);
            }
        }
        lanes => join_columns::<T, M>(op, joined, lanes),
    }
}

/// Joins two lanes of `N` rows, and says whether they are such.
#[inline(always)]
fn join_rows<T: Term, M: Monoid<T::Sum>, const N: usize>(
    op: M,
    joined: &Joined<'_, T>,
    lanes: [&[*const T]; 2],
) -> bool {
    let [Ok(left), Ok(right)] = lanes.map(<[*const T; N]>::try_from) else { return false };
    join_columns::<T, M>(op, joined, &[left, right]);
    true
}

/// Two lanes; one that is not there changes nothing.
trait Lanes<T: Term> {
    /// Some columns of both, joined.
    fn join<M: Monoid<T::Sum>>(&self, op: M, column: usize, sums: &mut [T::Sum; COLUMNS]);
}

impl<T: Term, const N: usize> Lanes<T> for [[*const T; N]; 2] {
    #[inline(always)]
    fn join<M: Monoid<T::Sum>>(&self, _: M, column: usize, sums: &mut [T::Sum; COLUMNS]) {
        let [left, right] = self.map(|rows| rows.map(|row| numbers(row, column)));
        for i in 0..COLUMNS {
            let [mut sum, mut other] = [M::identity(); 2];
            for row in 0..N {
                sum = M::combine(sum, left[row][i].widen());
                other = M::combine(other, right[row][i].widen());
            }
            sums[i] = M::combine(sum, other);
        }
    }
}

impl<T: Term> Lanes<T> for [Lane<'_, T>] {
    #[inline(always)]
    fn join<M: Monoid<T::Sum>>(&self, _: M, column: usize, sums: &mut [T::Sum; COLUMNS]) {
        let mut both = [[M::identity(); COLUMNS]; 2];
        for (sums, lane) in both.iter_mut().zip(self) {
            if let Some(start) = lane.start {
                *sums = *numbers(start, column);
            }
            for &row in lane.rows {
                let row = numbers(row, column);
                for i in 0..COLUMNS {
                    sums[i] = M::combine(sums[i], row[i].widen());
                }
            }
        }
        for i in 0..COLUMNS {
            sums[i] = M::combine(both[0][i], both[1][i]);
        }
    }
}

/// Joins two lanes, and these with what comes before them.
#[inline(always)]
fn join_columns<T: Term, M: Monoid<T::Sum>>(op: M, joined: &Joined<'_, T>, lanes: &(impl Lanes<T> + ?Sized)) {
    // SAFETY: rows have these columns, and nobody else uses this one.
    let store = |column: usize, sums| unsafe { *joined.out.add(column).cast::<[T::Sum; COLUMNS]>() = sums };
    // The last columns overlap others, which must not be joined twice: they are computed first and stored in the end.
    let last = joined.columns - COLUMNS;
    let (mut column, mut of_last) = (last, [M::identity(); COLUMNS]);
    loop {
        let mut sums = [M::identity(); COLUMNS];
        lanes.join(op, column, &mut sums);
        for &left in joined.left {
            let left = numbers(left, column);
            for i in 0..COLUMNS {
                sums[i] = M::combine(left[i], sums[i]);
            }
        }
        if column == last {
            (column, of_last) = (0, sums);
        } else {
            store(column, sums);
            column += COLUMNS;
        }
        if column >= last {
            return store(last, of_last);
        }
    }
}

/// Some columns of a row.
#[inline(always)]
fn numbers<'a, A>(row: *const A, column: usize) -> &'a [A; COLUMNS] {
    // SAFETY: who names a row promises that it has these columns; an array has the alignment of its elements.
    unsafe { &*row.add(column).cast() }
}
