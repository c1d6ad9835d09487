//! How a region is cut into tiles: some rows as a whole, or parts of one.

use super::bundle::{self, Bundles};
use super::native;
use super::operands::bytes_of;
use super::rows::GROUP;
use super::turned::{self, Turned};
use crate::stream;
use crate::walk::Walk;
use crate::{Context, Level, Operand, Output};
use meshwork_graph::canonical::LANES;
use meshwork_graph::ops::{Code, Fused, Instr, TILE_COLUMNS};
use meshwork_simd::line::Line;
use smallvec::SmallVec;
use std::ops::Range;

/// Elements of a tile.
pub const TILE: usize = TILE_COLUMNS;
/// Elements of a tile where machine code does all that is done to elements: they stay in the second cache, and less time is lost
/// between steps.
const LARGE: usize = 8 << 10;
/// Elements of a part of a row that machine code computes in one run.
pub const RUN: usize = 16 << 10;
/// Elements of a tile that machine code computes in one run with elements that come again and again: those and what they
/// are computed with stay in the first cache.
pub const REPEATED: usize = 4 << 10;
/// Elements of rows that are taken one by one, at least.
const LONG: usize = 512;
/// Elements, each counted once for every instruction, that one thread takes before a second one helps.
const GRAIN: usize = 8 << 10;

/// The tiles of a region.
pub struct Cut {
    /// Rows of the region.
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Rows of a tile.
    pub tile_rows: usize,
    /// Whether machine code does all that is done to elements, row by row.
    pub by_rows: bool,
    /// Whether it can cut rows where lines of the caches begin.
    pub cuts_rows: bool,
    /// How tiles are parts of rows, where some input does not lie together as a whole.
    pub bands: Option<Bands>,
    /// How rows are taken together that lie beside each other.
    pub beside: Option<Bundles>,
    /// Parts that are worth a thread.
    parts: usize,
}

/// How single elements are taken where an input lies together only along rows of many elements, or is one element for each: a
/// tile is a part of a row. A band is so many rows, whose tiles below each other come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    pub rows: usize,
    /// Elements of a row.
    pub columns: usize,
    /// Elements of a part, at most.
    pub tile: usize,
    /// Whether parts begin with lines of the caches, but for the first ones of rows that do not.
    pub by_lines: bool,
}

/// The rows of a tile, or the columns of one row.
#[derive(Clone, Copy)]
pub struct Span {
    pub start: usize,
    pub rows: usize,
    /// The first column.
    pub column: usize,
    pub columns: usize,
    /// Columns of a row, whether or not they are in the tile.
    pub width: usize,
}

impl Span {
    /// The first element and their number, of a value of rows or of elements.
    pub fn elements(self, of_rows: bool) -> (usize, usize) {
        if of_rows {
            return (self.start, self.rows);
        }
        (self.start * self.width + self.column, self.rows * self.columns)
    }
}

impl Cut {
    pub fn new(op: &Fused, inputs: &[Operand], outputs: &[Output], context: Context) -> Self {
        let (rows, columns) = (op.space.row_shape().numel(), op.space.columns());
        // Tiles are smaller where there would be too few of them for all threads, but have whole groups of rows.
        let parts = (rows * columns * op.code.len() / GRAIN).clamp(1, 4 * context.par.lanes());
        let by_rows = goes_by_rows(op, context.level);
        let most = if by_rows { (LARGE / columns).next_multiple_of(GROUP) } else { TILE / columns };
        let group = GROUP.min(TILE / columns).max(1);
        Cut {
            rows,
            columns,
            tile_rows: rows.div_ceil(parts).next_multiple_of(group).min(most).max(1),
            by_rows,
            cuts_rows: by_rows && native::cuts_rows(columns, context.level),
            bands: Bands::of(op, inputs, outputs, context.level),
            beside: op.space.is_beside().then(|| Bundles::new(op)),
            parts,
        }
    }

    /// Elements of a slot.
    pub fn slot(&self) -> usize {
        let least = if self.beside.is_some() { bundle::TILE } else { TILE };
        (self.tile_rows * self.columns.min(TILE)).max(least)
    }

    /// Elements of the row of which a tile is a part, or all, if it is of one.
    pub fn row(&self) -> Option<usize> {
        match self.bands {
            Some(bands) => Some(bands.columns),
            None => (self.tile_rows == 1 && self.columns > 1).then_some(self.columns),
        }
    }

    /// Rows and columns of a tile, if all tiles are whole rows.
    pub fn whole_rows(&self) -> Option<[usize; 2]> {
        self.bands.is_none().then_some([self.tile_rows, self.columns])
    }

    /// Makes parts of rows as long as one run of machine code computes at once.
    pub fn in_one_run(&mut self) {
        self.bands.iter_mut().for_each(|bands| bands.tile = RUN);
    }

    /// Makes tiles of single elements as long as one run computes at once with what comes again and again.
    pub fn in_long_tiles(&mut self) {
        if self.columns == 1 && self.bands.is_none() {
            let rows = self.rows.div_ceil(self.parts).next_multiple_of(GROUP);
            self.tile_rows = self.tile_rows.max(rows.min(REPEATED));
        }
    }

    /// The number of tiles, or of parts of bands, and how many of them one thread takes before a second one helps.
    pub fn count_and_grain(&self) -> (usize, usize) {
        if let Some(beside) = self.beside {
            let count = beside.count(self.rows);
            return (count, count.div_ceil(self.parts));
        }
        let tiles = self.rows.div_ceil(self.tile_rows);
        let grain = tiles.div_ceil(self.parts);
        match self.bands {
            Some(bands) => {
                let count = (self.rows / bands.columns).div_ceil(bands.rows) * bands.tiles();
                (count, (grain * self.tile_rows).div_ceil(bands.rows * bands.columns.min(bands.tile)))
            }
            None => (tiles, grain),
        }
    }

    /// The rows of some tiles, of which those behind the last one have none.
    pub fn span(&self, tiles: Range<usize>) -> Span {
        let [start, end] = [tiles.start, tiles.end].map(|tile| (tile * self.tile_rows).min(self.rows));
        Span { start, rows: end - start, column: 0, columns: self.columns, width: self.columns }
    }
}

impl Bands {
    /// The bands of a region of single elements, if an input lies in rows. One that is read by strips of rows needs them where
    /// its rows are longer than a tile: a strip of a part of the columns stays in the first cache.
    fn of(op: &Fused, inputs: &[Operand], outputs: &[Output], level: Level) -> Option<Bands> {
        if op.space.columns() != 1 {
            return None;
        }
        let walks: SmallVec<[Walk; 8]> = inputs.iter().map(|x| Walk::new(x.layout)).collect();
        let turned = |(walk, x): (&Walk, &Operand)| Turned::columns_of(walk, x.dtype);
        let mut turned = walks.iter().zip(inputs).filter_map(turned);
        let bands = match turned.next() {
            Some(columns) if columns <= TILE || turned.any(|other| other != columns) => return None,
            Some(columns) => Bands { rows: turned::ROWS, columns, tile: turned::WINDOW, by_lines: false },
            None => {
                let lies_in_rows = |walk: &&Walk| walk.sizes.len() > 1 && matches!(walk.inner().1, 0 | 1);
                let lengths = walks.iter().filter(lies_in_rows).map(|walk| walk.inner().0);
                let columns = lengths.filter(|&columns| columns >= LONG).min()?;
                Bands { rows: 1, columns, tile: TILE, by_lines: false }
            }
        };
        // Parts of rows begin with a line of what is written past the caches, or are so short that masks take them.
        let is_of_lines = |output: &Output| (bands.columns * output.dtype.size()).is_multiple_of(size_of::<Line>());
        let fits = |output: &Output| is_of_lines(output) || bytes_of(output) < stream::STREAM_BYTES;
        match outputs.iter().all(fits) {
            true => Some(bands),
            false if bands.rows == 1 && native::cuts_rows(bands.columns, level) => {
                Some(Bands { by_lines: true, ..bands })
            }
            false => None,
        }
    }

    /// The elements of a part of a row.
    pub fn part(self, row: usize, part: usize) -> Range<usize> {
        let first = row * self.columns;
        let head = if self.by_lines { first.next_multiple_of(LANES) - first } else { 0 };
        let [start, end] = [part, part + 1].map(|part| if part == 0 { 0 } else { head + part * self.tile });
        first + start.min(self.columns)..first + end.min(self.columns)
    }

    /// Tiles of a row.
    pub fn tiles(self) -> usize {
        self.columns.div_ceil(self.tile)
    }
}

/// Whether machine code does all that is done to elements, row by row.
pub fn goes_by_rows(op: &Fused, level: Level) -> bool {
    let is_simple = |instr: &Instr| match instr.op {
        Code::Element(_) | Code::Spread => instr.of_rows || native::is_simple_in_a_row(op, instr, level),
        _ => true,
    };
    !op.space.is_beside()
        && (native::least_row(level)..=TILE).contains(&op.space.columns())
        && op.code.iter().all(is_simple)
}
