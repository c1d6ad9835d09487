//! Tiles of few terms, beside each other.
//!
//! The fewer terms sums have, the more of a product's time is what their stores take. Along the rows of the result lines follow
//! each other, and come and go faster than those of tiles below each other, which lie on as many pages as there are rows. The
//! panels of all columns are read once for each row of tiles: of few terms they stay in the second-level cache.

use super::left::Panels;
use super::real::{Element, Real};
use super::right;
use super::store::Store;
use super::tile::Tile;
use crate::Level;
use meshwork_simd::microkernel::{Access, Call, Table, WORTH_ASKING};
use std::ops::Range;

/// Bytes of a result's rows from which tiles lie beside each other.
const LONG: usize = 3 << 10;
/// Columns for each row from which they do: there are fewer rows of tiles than columns of them, and fewer calls of kernels.
const FLAT: usize = 16;
/// Bytes of panels that stay in the second-level cache.
const HELD: usize = 512 << 10;

/// Whether the tiles of so many rows and columns, and of sums of so many terms, lie beside each other.
pub fn are_beside<T>([rows, columns]: [usize; 2], terms: usize) -> bool {
    terms < WORTH_ASKING && (columns * size_of::<T>() >= LONG || columns >= FLAT * rows)
}

/// What rows of tiles need.
pub struct Beside<'a, R: Element, O> {
    /// The level.
    pub level: Level,
    /// The right side.
    pub right: &'a right::Chunk<'a, R>,
    /// Numbers of a vector.
    pub lanes: usize,
    /// The highest and widest tile.
    pub tile: Tile,
    /// All columns.
    pub columns: usize,
    /// The kernels.
    pub table: Table<R::Real>,
    /// Where results go: rows whose columns lie side by side.
    pub store: &'a Store<'a, O>,
    /// Room for a tile.
    pub spare: *mut R::Real,
}

impl<T: Real, R: Element<Real = T>, O: Element<Real = T>> Beside<'_, R, O> {
    /// Computes a block of rows, whose operand is `left`; `call` says what all its tiles have in common.
    ///
    /// # Safety
    /// As for [`super::block::compute`]; the panels of all columns must have come.
    pub unsafe fn compute(&self, call: &mut Call<T>, left: &Panels<T>, rows: Range<usize>) {
        let Tile { rows: height, columns: width, .. } = self.tile;
        let span = HELD / (call.terms * size_of::<T>()) / width * width;
        for start in (0..self.columns).step_by(span) {
            let end = self.columns.min(start + span);
            for first in (0..rows.len()).step_by(height) {
                let (row, high) = (rows.start + first, height.min(rows.len() - first));
                call.a = left.data.wrapping_offset((first / height) as isize * left.panel);
                // SAFETY: the caller's promise.
                unsafe { self.row(call, left.access, row..row + high, start..end) };
            }
        }
    }

    /// Computes a row of tiles.
    ///
    /// # Safety
    /// As for [`Beside::compute`].
    unsafe fn row(&self, call: &mut Call<T>, access: Access, rows: Range<usize>, columns: Range<usize>) {
        let (width, high) = (self.tile.columns, rows.len());
        let whole = columns.start + columns.len() / width * width;
        // Panels of whole tiles, and a last one that is narrower.
        for (columns, width) in [(columns.start..whole, width), (whole..columns.end, columns.end - whole)] {
            if columns.is_empty() {
                continue;
            }
            let (row, column) = (rows.start, columns.start);
            let panel = self.right.panel(column);
            let origin = if row == 0 { self.right.origin(column) } else { None };
            let (table, reads) = origin.map_or((self.table, panel), |origin| (origin.copying, origin.panel));
            let vectors = width.div_ceil(self.lanes);
            let across = vectors * self.lanes;
            call.tiles = columns.len() / width;
            (call.b, call.b_term, call.b_tile) = (reads.data, reads.term, reads.next);
            (call.copy, call.copy_tile) = (panel.data.cast_mut(), panel.next);
            (call.out, call.out_row, call.out_tile) = match self.store.place(row, column) {
                Some((out, step)) if across == width => (out, step, across as isize),
                _ => (self.spare, across as isize, 0),
            };
            // SAFETY: the caller's promise.
            unsafe {
                table[high - 1][vectors - 1][access as usize](call);
                if call.out == self.spare {
                    self.store.tile(self.level, self.spare, across, rows.clone(), columns);
                }
            }
        }
    }
}
