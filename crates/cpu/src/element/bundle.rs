//! How rows are cut that lie beside each other: a bundle is some neighbours, of which some elements each are a tile.

use super::rows::GROUP;
use meshwork_graph::canonical::LANES;
use meshwork_graph::ops::{Code, Fused, Instr, ReduceOp};
use std::ops::Range;

/// Elements of a tile, at most.
pub const TILE: usize = 2 << 10;
/// And at least, where there are so many: less time is lost between tiles then.
const LEAST: usize = 1 << 10;
/// Elements of a bundle that make long pieces in memory, and stay in the second cache with what is known of them.
const ELEMENTS: usize = 16 << 10;
/// Rows of a bundle that are long pieces.
const LONG: usize = 512;
/// Bundles for all threads, at least, unless they would be smaller than tiles.
const BUNDLES: usize = 32;

/// The bundles of a region, for any number of threads the same.
#[derive(Clone, Copy, Debug)]
pub struct Bundles {
    /// Elements of a row.
    pub columns: usize,
    /// Rows beside each other.
    pub inner: usize,
    /// Rows of a bundle, at most.
    pub width: usize,
    /// Columns of a tile in which terms are added up, at most: a power of two, so that none goes over the end of a block of terms or
    /// of its lanes.
    terms: usize,
}

/// Rows that lie beside each other.
#[derive(Clone, Copy)]
pub struct Bundle {
    pub rows: usize,
    pub first_row: usize,
    first_element: usize,
    /// Elements from column to column.
    pub inner: usize,
}

impl Bundles {
    pub fn new(op: &Fused) -> Bundles {
        let (columns, inner) = (op.space.columns(), op.space.inner());
        let whole = |instr: &Instr| match instr.op {
            Code::Reduce(ReduceOp::Sum | ReduceOp::Prod, block) if block < columns => 1 << block.trailing_zeros(),
            _ => LANES,
        };
        let terms = op.code.iter().map(whole).fold(LANES, usize::min);
        let mut width = 1 << (ELEMENTS / columns).clamp(LONG, TILE).ilog2();
        while width > LEAST / terms && op.space.outer() * inner.div_ceil(width) < BUNDLES {
            width /= 2;
        }
        // As equal as lines of the caches allow.
        let bundles = inner.div_ceil(width);
        let width = inner.div_ceil(bundles).next_multiple_of(GROUP).min(inner);
        Bundles { columns, inner, width, terms }
    }

    /// The bundles of so many rows.
    pub fn count(self, rows: usize) -> usize {
        rows / self.inner * self.inner.div_ceil(self.width)
    }

    pub fn bundle(self, number: usize) -> Bundle {
        let Bundles { columns, inner, width, .. } = self;
        let bundles = inner.div_ceil(width);
        let (outer, at) = (number / bundles, number % bundles * width);
        let (first_row, first_element) = (outer * inner + at, outer * columns * inner + at);
        Bundle { rows: width.min(inner - at), first_row, first_element, inner }
    }

    /// The columns of a bundle's tiles, in which terms are added up or not.
    pub fn tiles(self, bundle: Bundle, adds: bool) -> impl Iterator<Item = Range<usize>> {
        let most = if adds { self.terms } else { LANES };
        let step = 1 << (TILE / bundle.rows).clamp(1, most).ilog2();
        (0..self.columns).step_by(step).map(move |start| start..(start + step).min(self.columns))
    }
}

impl Bundle {
    /// The first row's element in a column.
    pub fn element(self, column: usize) -> usize {
        self.first_element + column * self.inner
    }
}
