//! The right side of a chunk of terms: its panels as the kernels read them.
//!
//! Packing panels costs about as much as the products of eight rows, which only many rows are worth. Those of few rows are read
//! where they lie. Where that is slow, tiles are so high that they have enough to do meanwhile ([`Tile::tall`]), or the first tile of
//! each panel alone reads it there: its kernel leaves a copy for the tiles below.

use super::ahead::Source;
use super::left::{resident, sets};
use super::pack::{dense, pack, pack_columns};
use super::pairs::{Factor, Operand, Pairs};
use super::real::{Element, same};
use super::tile::Tile;
use super::{Side, Size};
use crate::Level;
use meshwork_simd::line::LINE;
use meshwork_simd::microkernel::{Kernels, SILENT, Table};
use std::ops::{Range, RangeInclusive};

/// Terms of chunks whose panels are read in place though they lie on one set or two of the first-level cache: so many lines of a
/// set the second one keeps, from which each tile takes them again.
pub const SHALLOW: usize = 256;

/// Panels that are packed at once just before their tiles, with AVX-512: each piece of a row is on another page, and a core knows
/// few pages by heart.
const TURN: usize = 4;
/// Terms from which panels that lie on more than two sets of the first-level cache are copied by first tiles: with 32 of them a
/// product was 4 % faster with several packed at a time.
const DEEP: usize = 64;
/// Bytes of right operands that caches do not keep, about: the fewer tiles read their panels, the better.
const BEYOND: usize = 8 << 20;
/// Rows that one tall tile has, and that two others would have.
const ALONE: RangeInclusive<usize> = 13..=16;
/// Rows from which panels are packed one by one just before their tiles at other levels.
const OFTEN: usize = 64;

/// How the terms of a panel lie, and what reads them.
struct Lie {
    /// Distance of the terms, in elements.
    term: isize,
    /// That distance in bytes.
    step: usize,
    /// Lines of a term.
    lines: usize,
    /// Lines of a set that they may take; see [`Kernels::ways`](meshwork_simd::microkernel::Kernels::ways).
    ways: usize,
    /// Tiles, one below the other, up to which it is read in place; see [`Kernels::few`](meshwork_simd::microkernel::Kernels::few).
    few: usize,
    /// Terms up to which it is.
    deep: usize,
}

impl Lie {
    /// A panel of elements whose columns and whose terms are so far apart, if evenly, for tiles and blocks that are short or
    /// not. None if kernels cannot read it where it lies.
    fn new<R: Element>(
        kernels: &Kernels<R::Real>,
        steps: [Option<isize>; 2],
        tile: &Tile,
        is_short: bool,
    ) -> Option<Self> {
        let ([Some(1), Some(term)], true) = (steps, same::<R, R::Real>()) else { return None };
        let step = term.unsigned_abs() * size_of::<R>();
        // Where all lines lie on one set, none is left for the next tile. Nothing is asked for during short blocks.
        let few = match (sets(step), is_short) {
            _ if tile.is_tall => tile.few,
            (1, _) if tile.copies => 1,
            (1, false) => tile.few / 3,
            (1, true) => tile.few / 5,
            _ => tile.spread,
        };
        let deep = if tile.is_tall { usize::MAX } else { sets(step) * SHALLOW };
        Some(Lie { term, step, lines: (tile.columns * size_of::<R>()).div_ceil(LINE), ways: kernels.ways, few, deep })
    }

    /// Whether `tiles` tiles, one below the other, read so many terms in place.
    fn in_place(&self, tiles: usize, terms: usize) -> bool {
        tiles <= self.few && terms <= self.deep || resident(self.step, terms, self.lines, self.ways)
    }

    /// Whether a first tile that copies so many terms costs less than to pack several panels at a time.
    fn is_worth_copying(&self, terms: usize) -> bool {
        sets(self.step) <= 2 || terms >= DEEP
    }
}

/// What panels that are read in place want of tiles and chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// Nothing, or they are not read in place.
    Nothing,
    /// Chunks of no more than [`SHALLOW`] terms: their terms lie on one set or two of the first-level cache.
    Shallow,
    /// [Tall tiles](Tile::tall): all terms lie on one set, or come from beyond the caches.
    Tall,
}

impl Want {
    /// All that there may be.
    pub const ALL: [Want; 3] = [Want::Nothing, Want::Shallow, Want::Tall];

    /// What the panels of a right operand want, for a product of this size and the tile that it has otherwise.
    pub fn of<R: Element>(kernels: &Kernels<R::Real>, side: &Side, tile: &Tile, size: &Size) -> Self {
        let lie = Lie::new::<R>(kernels, [side.lines.stride(), side.terms.stride()], tile, size.block <= SILENT);
        let Some(lie) = lie else { return Want::Nothing };
        let is_beyond = ALONE.contains(&size.rows) && size.columns * size.terms * size_of::<R>() >= BEYOND;
        match sets(lie.step) {
            sets if (sets == 1 || is_beyond) && Tile::tall(kernels, size).is_some() => Want::Tall,
            1 | 2 if lie.in_place(size.rows.div_ceil(tile.rows), SHALLOW) => Want::Shallow,
            _ => Want::Nothing,
        }
    }
}

/// Columns and terms of the right operand: element (column, term) is at `data[columns[column] + terms[term]]`.
#[derive(Clone, Copy)]
pub struct Elements<'a, R> {
    /// Where the offsets begin.
    pub data: *const R,
    /// Offsets of the columns.
    pub columns: &'a [isize],
    /// Offsets of the terms.
    pub terms: &'a [isize],
    /// How far apart columns and terms are, if evenly.
    pub steps: [Option<isize>; 2],
}

/// What reads the panels of a chunk.
pub struct Readers<T: 'static> {
    /// The tiles.
    pub tile: Tile,
    /// The level's kernels.
    pub kernels: Kernels<T>,
    /// Rows of the left side.
    pub rows: usize,
    /// Whether all of them stay in the second-level cache: then each panel is needed once.
    pub stay: bool,
    /// Whether blocks of terms are short.
    pub is_short: bool,
    /// Whether panels of all columns are needed at a time.
    pub at_once: bool,
}

/// A panel as a kernel reads it.
#[derive(Clone, Copy)]
pub struct Panel<T> {
    /// Its first term.
    pub data: *const T,
    /// Distance of the terms.
    pub term: isize,
    /// Distance to the panel of the next columns, where all of them have come or none needs to.
    pub next: isize,
}

/// What a first tile copies.
pub struct Origin<T: 'static> {
    /// The panel where it lies.
    pub panel: Panel<T>,
    /// Kernels that copy.
    pub copying: Table<T>,
}

/// How the panels of a chunk come about.
enum How<T: 'static> {
    /// They are packed, for all tasks.
    Shared,
    /// Tiles read them where they lie, terms so far apart.
    There(isize),
    /// The first tile of each reads it where it lies, terms so far apart, and its kernel copies it.
    Copied(isize, Table<T>),
    /// They are packed.
    Packed,
}

/// Columns and terms of the right operand, and the room for their panels.
pub struct Chunk<'a, R: Element> {
    level: Level,
    elements: Elements<'a, R>,
    width: usize,
    how: How<R::Real>,
    /// Columns from here on are a last panel that ends within a vector, which is packed all the same: nothing may be there to read.
    whole: usize,
    /// Columns whose panels come just before their tiles, where not all of them come at once.
    turn: Option<usize>,
    /// Terms of a packed panel, and how many there are to the next one.
    terms: [usize; 2],
    /// The first packed panel.
    packed: *const R::Real,
    room: *mut R::Real,
}

impl<'a, R: Element> Chunk<'a, R> {
    /// The panels of some elements. They are packed into the room as so many `terms` (fewer, if they become pairs), or `packed` is
    /// the first one, and how many terms later the next one begins.
    ///
    /// # Safety
    /// The elements must be readable, the room writable as long as this lives: for all terms and whole panels of columns, and
    /// [`SLACK`](super::pack::SLACK) more.
    pub unsafe fn new(
        level: Level,
        elements: Elements<'a, R>,
        readers: &Readers<R::Real>,
        terms: usize,
        packed: Option<(*const R::Real, usize)>,
        room: *mut R::Real,
    ) -> Self {
        let Readers { tile, ref kernels, rows, stay, is_short, at_once } = *readers;
        let (width, count) = (tile.columns, elements.columns.len());
        let rest = count % width;
        let whole = if rest.is_multiple_of(kernels.lanes) { count } else { count - rest };
        let tiles = rows.div_ceil(tile.rows);
        let how = match Lie::new::<R>(kernels, elements.steps, &tile, is_short) {
            _ if packed.is_some() => How::Shared,
            Some(lie) if whole > 0 && lie.in_place(tiles, elements.terms.len()) => How::There(lie.term),
            Some(lie)
                if whole > 0
                    && tiles > 1
                    && lie.is_worth_copying(elements.terms.len())
                    && let Some(table) = kernels.copying =>
            {
                How::Copied(lie.term, table)
            }
            _ => How::Packed,
        };
        let turn = match how {
            How::Copied(..) => Some(width),
            How::Packed if level >= Level::Avx512 => Some(TURN * width),
            How::Packed if rows >= OFTEN => Some(width),
            _ => None,
        };
        let (data, next) = packed.unwrap_or((room.cast_const(), terms));
        let turn = turn.filter(|_| stay && !at_once);
        Chunk { level, elements, width, how, whole, turn, terms: [terms, next], packed: data, room }
    }

    /// Whether tiles read panels where they lie.
    pub fn is_there(&self) -> bool {
        matches!(self.how, How::There(_))
    }

    /// Whether each panel comes just before its tiles, which are those of all rows.
    pub fn comes_in_turn(&self) -> bool {
        self.turn.is_some()
    }

    /// Where in the room the panel of a column begins.
    fn place(&self, column: usize) -> usize {
        match (&self.how, self.turn) {
            (How::There(_), _) => 0,
            (_, Some(turn)) => column % turn * self.terms[1],
            _ => column * self.terms[1],
        }
    }

    /// Packs what the tiles of a column's panel read, if that comes now: all of it while the first block of rows is computed.
    ///
    /// # Safety
    /// As for [`Chunk::new`].
    pub unsafe fn come(&self, column: usize, pairs: &mut Option<Pairs<R::Real>>) {
        let count = self.elements.columns.len();
        let columns = match self.how {
            How::There(_) | How::Copied(..) if column >= self.whole => column..count,
            How::Packed => match self.turn {
                Some(turn) if column.is_multiple_of(turn) => column..count.min(column + turn),
                None if column == 0 => 0..count,
                _ => return,
            },
            _ => return,
        };
        // SAFETY: the caller's promise.
        unsafe { self.pack(columns, pairs) };
    }

    /// Packs columns.
    ///
    /// # Safety
    /// As for [`Chunk::new`].
    unsafe fn pack(&self, columns: Range<usize>, pairs: &mut Option<Pairs<R::Real>>) {
        let Elements { data, terms, steps, .. } = self.elements;
        let (lines, width) = (&self.elements.columns[columns.clone()], self.width);
        // SAFETY: the caller's promise.
        unsafe {
            let room = self.room.add(self.place(columns.start));
            match pairs {
                None if steps[0] == Some(1) && lines.len() == width => {
                    pack_columns(self.level, data.offset(lines[0]), terms, width, room);
                }
                None => pack(self.level, data, lines, terms, dense(width, terms.len()), room),
                Some(pairs) => {
                    let operand = Operand { factor: Factor::Right, data: data.cast(), lines, terms };
                    pairs.meet(Factor::Right, operand.pack(self.level, width, room.cast()));
                }
            }
        }
    }

    /// The panel of a column.
    pub fn panel(&self, column: usize) -> Panel<R::Real> {
        match self.how {
            How::There(term) if column < self.whole => self.there(column, term),
            // Kernels copy what they read.
            How::Copied(..) if column < self.whole => {
                self.packed(column, self.width.min(self.elements.columns.len() - column))
            }
            _ => self.packed(column, self.width),
        }
    }

    /// A packed panel whose terms are so far apart.
    fn packed(&self, column: usize, term: usize) -> Panel<R::Real> {
        let next = (self.terms[1] * self.width) as isize;
        Panel { data: self.packed.wrapping_add(self.place(column)), term: term as isize, next }
    }

    /// A panel where it lies, whose terms are so far apart.
    fn there(&self, column: usize, term: isize) -> Panel<R::Real> {
        Panel { data: self.first(column).cast(), term, next: self.width as isize }
    }

    /// Where the panel of a column comes from, if the kernel of its first tile copies it.
    pub fn origin(&self, column: usize) -> Option<Origin<R::Real>> {
        match self.how {
            How::Copied(term, copying) if column < self.whole => {
                Some(Origin { panel: self.there(column, term), copying })
            }
            _ => None,
        }
    }

    /// The first element of a column.
    fn first(&self, column: usize) -> *const R {
        self.elements.data.wrapping_offset(self.elements.columns[column] + self.elements.terms[0])
    }

    /// What will be read next of the right side while a column's panel is used, in the first block of rows or the last one.
    pub fn source(&self, column: usize, [is_first, is_last]: [bool; 2]) -> Source<'a> {
        let count = self.elements.columns.len();
        let next = column + self.turn.unwrap_or(self.width);
        let is_end = next >= count;
        let from_elements = match self.how {
            How::There(_) => true,
            How::Copied(..) => is_first && !is_end,
            How::Packed => self.turn.is_some(),
            How::Shared => false,
        };
        if is_end && (is_last || from_elements) {
            return Source::none();
        }
        let next = if is_end { 0 } else { next };
        match self.elements.steps {
            [Some(1), Some(step)] if from_elements => {
                Source::even(self.first(next), step, self.elements.terms.len(), self.width.min(count - next))
            }
            _ if from_elements => Source::none(),
            _ => {
                let bytes = self.terms[0] * self.width * size_of::<R::Real>();
                let first: *const u8 = self.packed.wrapping_add(self.place(next)).cast();
                Source::even(first, LINE as isize, bytes.div_ceil(LINE), LINE)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Offsets, Real};
    use super::*;

    #[test]
    fn tiles_are_tall_where_panels_lie_on_one_set_or_come_from_memory() {
        for kernels in Level::available().into_iter().map(f32::kernels) {
            let is_tall = |rows: usize, [columns, terms, step]: [usize; 3], block: usize| {
                let size = Size { rows, columns, terms, block, run: 1 };
                let [lines, offsets] =
                    [(columns, 1), (terms, step as isize)].map(|(len, step)| Offsets::new().axis(len, step));
                let tile = Tile::of(&kernels, &size, false);
                Want::of::<f32>(&kernels, &Side { lines, terms: offsets }, &tile, &size) == Want::Tall
            };
            let there_are = kernels.tall.is_some();
            for rows in [9, 16, 100] {
                assert_eq!(is_tall(rows, [1024, 1024, 1024], 128), there_are, "{rows} rows");
                assert!(!is_tall(rows, [1024, 1024, 1024], 8), "{rows} rows, short blocks");
                assert!(!is_tall(rows, [1024, 1024, 1040], 128), "{rows} rows, all sets");
            }
            for (rows, is_one) in [(12, false), (13, true), (16, true), (17, false)] {
                assert_eq!(is_tall(rows, [2048, 2048, 2064], 128), there_are && is_one, "{rows} rows from memory");
            }
            assert!(
                !is_tall(8, [1024, 1024, 1024], 128) && !is_tall(129, [1024, 1024, 1024], 128),
                "few rows, and many"
            );
        }
    }
}
