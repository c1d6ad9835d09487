//! How the operands of a region lie in memory.

use super::cut::{Cut, TILE};
use super::ops::held;
use super::turned::Turned;
use crate::copy::Pairs;
use crate::operand::Shared;
use crate::stream;
use crate::walk::{Walk, extent};
use crate::{Operand, Output};
use meshwork_graph::DType;
use meshwork_simd::line::Line;
use smallvec::SmallVec;
use std::ops::Range;

/// How an input lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lies {
    /// Element after element, in every tile; of rows that lie beside each other, in every column of them.
    Dense,
    /// One element for every tile.
    One,
    /// One element for all.
    Constant,
    /// The same elements again and again, so few that a slot has them and a tile more.
    Repeated,
    /// The same elements for every row.
    Row,
    /// In a strip of rows that are turned, of which every tile is a part of one.
    Turned,
    Otherwise,
}

/// How an output is written.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Written {
    pub goes: Goes,
    /// Inputs that lie in the same place.
    pub over: SmallVec<[u16; 2]>,
}

/// The way of a result to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Goes {
    /// Through the caches.
    Cached,
    /// Past them.
    Streamed,
    /// Past them, where a line of them begins at every tile and every row.
    Lines,
    /// Past them, where a line of them begins at every tile: code cuts rows where lines begin.
    CutRows,
}

/// An input.
pub struct Source {
    pub walk: Walk,
    /// How it is copied to slots.
    pub pairs: Pairs,
    /// Elements after which the same ones follow again.
    pub period: usize,
    pub first: Shared<u8>,
    pub dtype: DType,
    pub of_rows: bool,
    /// Elements from column to column of rows that lie beside each other, if it is as far everywhere.
    pub step: Option<isize>,
    /// How it is read by strips of rows, and where these are behind the slots and the rows that are kept.
    pub turned: Option<(Turned, usize)>,
}

/// Bytes of a row that stays in the second-level cache from one pass to the next.
const NEAR: usize = 128 << 10;

/// Where a result goes.
pub struct Sink {
    pub register: usize,
    pub first: Shared<u8>,
    pub dtype: DType,
    pub of_rows: bool,
    pub streams: bool,
}

impl Written {
    /// How an output is written, of rows or of elements.
    pub fn new(of_rows: bool, output: &Output, cut: &Cut, sources: &[Source]) -> Self {
        let (first, bytes, size) = (output.bytes() as usize, bytes_of(output), output.dtype.size());
        let written = first..first + bytes;
        let mut over = SmallVec::new();
        for (i, source) in sources.iter().enumerate() {
            let read = extent(&source.walk, source.first.0 as usize, source.dtype.size());
            if read.start < written.end && written.start < read.end {
                assert!(
                    read == written && source.walk.is_dense(),
                    "an input overlaps the output without being the same dense elements"
                );
                over.push(i as u16);
            }
        }
        let [tile, row] = match cut.beside {
            Some(beside) => [beside.width, beside.inner],
            None if of_rows || cut.columns == 1 => [cut.tile_rows; 2],
            None => [cut.tile_rows * cut.columns, cut.columns],
        };
        let is_line = |bytes: usize| bytes.is_multiple_of(size_of::<Line>());
        let goes = match () {
            _ if !over.is_empty() || bytes < stream::STREAM_BYTES => Goes::Cached,
            // A tile is one row then.
            _ if of_rows && cut.columns > TILE => Goes::Cached,
            _ if cut.beside.is_some()
                && (of_rows || !is_line(first) || !is_line(tile * size) || !is_line(row * size)) =>
            {
                Goes::Cached
            }
            // Wide rows that begin within lines would be copied past the caches from slots; their code writes them at once.
            _ if (TILE + 1..=NEAR / size).contains(&cut.columns) && !is_line(row * size) => Goes::Cached,
            _ if !is_line(first) || !is_line(tile * size) => Goes::Streamed,
            _ if is_line(row * size) => Goes::Lines,
            _ if cut.cuts_rows => Goes::CutRows,
            _ => Goes::Streamed,
        };
        Written { goes, over }
    }

    /// Whether it goes past the caches.
    pub fn streams(&self) -> bool {
        self.goes != Goes::Cached
    }
}

impl Source {
    /// An operand of rows or of elements, whose columns have these dimensions.
    ///
    /// What it needs behind the slots and the rows that are kept comes behind so many bytes.
    pub fn new(operand: &Operand, of_rows: bool, columns: Range<usize>, cut: &Cut, behind: &mut usize) -> Self {
        // SAFETY: the offset is that of an element.
        let first = unsafe { operand.bytes().add(operand.layout.offset * operand.dtype.size()) };
        let walk = Walk::new(operand.layout);
        let window = cut.bands.map_or(usize::MAX, |bands| bands.tile);
        let turned = if cut.beside.is_some() { None } else { Turned::new(&walk, operand.dtype, window) };
        let turned = turned.map(|turned| {
            let at = *behind;
            *behind += turned.bytes().next_multiple_of(size_of::<Line>());
            (turned, at)
        });
        let period = walk.period();
        let pairs = Pairs::of(&walk);
        let step = match of_rows || cut.beside.is_none() {
            true => Some(0),
            false => {
                let columns = Walk::over(columns.map(|d| (operand.layout.shape[d], operand.layout.strides[d])));
                (columns.sizes.len() == 1).then_some(columns.strides[0])
            }
        };
        Source { walk, pairs, period, first: Shared(first.cast_mut()), dtype: operand.dtype, of_rows, step, turned }
    }

    /// How its tiles lie. Machine code that goes by rows can read the same one for each.
    pub fn lies(&self, cut: &Cut) -> Lies {
        let (inner, stride) = self.walk.inner();
        if let Some(beside) = cut.beside {
            let is_together = stride == 1 && inner.is_multiple_of(beside.inner) && self.step.is_some();
            return match self.walk.is_constant() {
                true => Lies::Constant,
                false if is_together => Lies::Dense,
                false => Lies::Otherwise,
            };
        }
        let (row, tile) = (cut.row(), cut.whole_rows());
        let is_row = row.is_some_and(|row| !self.of_rows && inner.is_multiple_of(row));
        let elements = tile.map(|[rows, columns]| if self.of_rows { rows } else { rows * columns });
        match stride {
            _ if self.walk.is_constant() => Lies::Constant,
            _ if self.walk.is_dense() => Lies::Dense,
            // A tile is then a part of a row, and of a strip.
            _ if !self.of_rows && row.is_some() && self.turned.as_ref().map(|(turned, _)| turned.columns()) == row => {
                Lies::Turned
            }
            1 if is_row => Lies::Dense,
            0 if is_row => Lies::One,
            _ if cut.by_rows && !self.of_rows && tile.is_some_and(|[_, columns]| columns == self.period) => Lies::Row,
            _ if elements.is_some_and(|tile| tile <= TILE && self.room_for_repeats(tile) <= cut.slot()) => {
                Lies::Repeated
            }
            _ => Lies::Otherwise,
        }
    }

    /// Whether tiles of up to so many single elements find all they need, wherever they begin: where it lies, or in a slot of as
    /// many of the widest type.
    pub fn is_there(&self, tile: usize) -> bool {
        self.walk.is_dense() || self.walk.is_constant() || self.room_for(tile + self.period) <= tile
    }

    /// How many elements of the widest type take as much room in a slot as what comes again and again does for tiles of so many elements.
    fn room_for_repeats(&self, tile: usize) -> usize {
        self.room_for(if tile.is_multiple_of(self.period) { tile } else { tile + self.period })
    }

    /// How many elements of the widest type take as much room as so many of these.
    fn room_for(&self, count: usize) -> usize {
        (count * held(self.dtype).size()).div_ceil(size_of::<u64>())
    }

    /// The address of an element.
    pub fn address(&self, element: usize) -> *mut u8 {
        let position = if self.walk.is_dense() { element as isize } else { self.walk.position(element) };
        self.first.pointer().wrapping_offset(position * self.dtype.size() as isize)
    }
}

pub fn bytes_of(output: &Output) -> usize {
    output.shape.numel() * output.dtype.size()
}

pub fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}
