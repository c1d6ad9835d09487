//! The right side of a chunk of terms: panels that are read where they lie.
//!
//! Packing them costs about as much as the products of eight rows, which only many rows are worth.

use super::ahead::LINE;
use super::kernel::SILENT;
use super::left::{resident, sets};
use super::real::{Element, same};
use super::tile::Tile;
use super::{Side, Size};

/// Terms of chunks whose panels are read in place though they lie on one set or two of the first-level cache: so many lines of a
/// set the second one keeps, from which each tile takes them again.
pub const SHALLOW: usize = 256;

/// How the terms of a panel lie, and what reads them.
pub struct Panel {
    /// Distance of the terms, in bytes.
    step: usize,
    /// Lines of a term.
    lines: usize,
    /// Tiles, one below the other, up to which it is read in place; see [`Kernels::few`](super::kernel::Kernels::few).
    few: usize,
}

impl Panel {
    /// A panel of elements whose columns are `column` apart and whose terms are `term` apart, if evenly, for tiles and
    /// blocks that are short or not. None if it cannot be read in place at all.
    pub fn new<R: Element>(column: Option<isize>, term: Option<isize>, tile: &Tile, is_short: bool) -> Option<Panel> {
        let (Some(1), Some(term), true) = (column, term, same::<R, R::Real>()) else { return None };
        let step = term.unsigned_abs() * size_of::<R>();
        // Where all lines lie on one set, none is left for the next tile. Nothing is asked for during short blocks.
        let few = match (sets(step), is_short) {
            (1, false) => tile.few / 3,
            (1, true) => tile.few / 5,
            _ => tile.spread,
        };
        Some(Panel { step, lines: (tile.columns * size_of::<R>()).div_ceil(LINE), few })
    }

    /// Whether `tiles` tiles, one below the other, read so many terms in place.
    pub fn in_place(&self, tiles: usize, terms: usize) -> bool {
        tiles <= self.few && terms <= sets(self.step) * SHALLOW || resident(self.step, terms, self.lines)
    }
}

/// Whether tiles for a product of this size will read panels in place that want chunks of no more than [`SHALLOW`] terms: those
/// whose terms lie on one set or two of the first-level cache.
pub fn is_shallow<R: Element>(side: &Side, tile: &Tile, size: &Size) -> bool {
    let panel = Panel::new::<R>(side.lines.stride(), side.terms.stride(), tile, size.block <= SILENT);
    panel.is_some_and(|panel| sets(panel.step) <= 2 && panel.in_place(size.rows.div_ceil(tile.rows), SHALLOW))
}
