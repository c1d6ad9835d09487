//! Storing a tile that its kernel cannot store itself.

use super::offsets::evenly;
use super::real::{Element, same};
use crate::Level;
use meshwork_simd::multiversion;
use std::ops::Range;

/// Where finished tiles go when a kernel cannot store them itself.
pub struct Store<'a, O> {
    pub out: *mut O,
    /// Offsets of the rows and of the columns.
    pub rows: &'a [isize],
    pub columns: &'a [isize],
    /// How far apart these are, if evenly.
    pub row: Option<isize>,
    pub column: Option<isize>,
}

impl<O: Element> Store<'_, O> {
    /// The result at a row and a column as a number, and the distance of the rows, if kernels can store tiles there themselves.
    pub fn place(&self, row: usize, column: usize) -> Option<(*mut O::Real, isize)> {
        let (Some(step), Some(1), true) = (self.row, self.column, same::<O, O::Real>()) else { return None };
        Some((self.out.wrapping_offset(self.rows[row] + self.columns[column]).cast(), step))
    }

    /// Stores a part of a tile whose rows are `across` apart.
    ///
    /// # Safety
    /// The tile must be readable and its part of the result writable, the processor able to run `level`.
    pub unsafe fn tile(
        &self,
        level: Level,
        tile: *const O::Real,
        across: usize,
        rows: Range<usize>,
        columns: Range<usize>,
    ) {
        let (rows, columns) = (&self.rows[rows], &self.columns[columns]);
        if self.column.or_else(|| evenly(columns)) == Some(1) && columns.len() > 1 {
            return store_rows(
                level,
                &Rows { tile, across, out: self.out, rows, first: columns[0], width: columns.len() },
            );
        }
        // SAFETY: the caller's promise.
        unsafe {
            if self.row.or_else(|| evenly(rows)) == Some(1) && rows.len() > 1 {
                return store_columns(
                    level,
                    &Columns { tile, across, out: self.out.wrapping_offset(rows[0]), columns, height: rows.len() },
                );
            }
            for (i, &row) in rows.iter().enumerate() {
                let out = self.out.offset(row);
                for (j, &column) in columns.iter().enumerate() {
                    *out.offset(column) = O::narrow(*tile.add(i * across + j));
                }
            }
        }
    }
}

/// A part of a tile whose columns lie side by side in the result.
struct Rows<'a, O: Element> {
    tile: *const O::Real,
    across: usize,
    out: *mut O,
    rows: &'a [isize],
    /// The first column, and their number.
    first: isize,
    width: usize,
}

multiversion! {
    /// Stores a part of a tile.
    fn store_rows<O: Element>(part: &Rows<'_, O>) = store_rows_of;
}

#[inline(always)]
fn store_rows_of<O: Element>(part: &Rows<'_, O>) {
    match part.width {
        16 => store_rows_as::<O, 16>(part),
        8 => store_rows_as::<O, 8>(part),
        _ => store_rows_as::<O, 1>(part),
    }
}

#[inline(always)]
fn store_rows_as<O: Element, const LANES: usize>(part: &Rows<'_, O>) {
    for (i, &row) in part.rows.iter().enumerate() {
        for j in (0..part.width).step_by(LANES) {
            // SAFETY: who made the part promised that it can be read and written; an array has the alignment of its
            // elements.
            unsafe {
                let numbers: [O::Real; LANES] = *part.tile.add(i * part.across + j).cast();
                let out: *mut [O; LANES] = part.out.offset(row + part.first + j as isize).cast();
                *out = numbers.map(O::narrow);
            }
        }
    }
}

/// A part of a tile whose rows lie side by side in the result.
struct Columns<'a, O: Element> {
    tile: *const O::Real,
    across: usize,
    /// The first row.
    out: *mut O,
    columns: &'a [isize],
    height: usize,
}

multiversion! {
    /// Stores a part of a tile, transposed.
    fn store_columns<O: Element>(part: &Columns<'_, O>) = store_columns_of;
}

#[inline(always)]
fn store_columns_of<O: Element>(part: &Columns<'_, O>) {
    match part.height {
        4 => store_columns_as::<O, 4>(part),
        6 => store_columns_as::<O, 6>(part),
        8 => store_columns_as::<O, 8>(part),
        12 => store_columns_as::<O, 12>(part),
        _ => store_columns_as::<O, 1>(part),
    }
}

#[inline(always)]
fn store_columns_as<O: Element, const ROWS: usize>(part: &Columns<'_, O>) {
    for (j, &column) in part.columns.iter().enumerate() {
        for i in (0..part.height).step_by(ROWS) {
            // SAFETY: as above.
            unsafe {
                let numbers: [O::Real; ROWS] = std::array::from_fn(|row| *part.tile.add((i + row) * part.across + j));
                let out: *mut [O; ROWS] = part.out.wrapping_offset(column).add(i).cast();
                *out = numbers.map(O::narrow);
            }
        }
    }
}
