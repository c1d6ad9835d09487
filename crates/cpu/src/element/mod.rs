//! Fused regions, run tile by tile: all instructions on up to 1,024 elements, whole rows of them, whose registers stay in
//! the first cache, then on the next ones; where machine code does all that is done to elements on more, which stay in the
//! second. Rows with more than 1,024 elements take several passes (`wide.rs`).

mod ahead;
pub mod epilogue;
mod joined;
mod native;
mod ops;
mod place;
#[cfg(test)]
mod random_regions;
mod rows;
mod sums;
#[cfg(test)]
mod tests;
mod turned;
mod units;
mod wide;

pub use ops::{extremum_f32, extremum_f64};

use crate::number::{Number, by_dtype};
use crate::operand::Shared;
use crate::stream::{self, Line, Share};
use crate::walk::{Walk, extent};
use crate::{Context, Level, Operand, Output, narrow};
use ahead::Asks;
use half::{bf16, f16};
use meshwork_graph::ops::{Code, Element, Fused, Instr, PartOf, TILE_COLUMNS};
use meshwork_graph::{DType, Scalar};
use ops::{Tile, held};
use place::{Lies, Placement, Written, placement};
use rows::{GROUP, Lanes, Rows};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use sums::Sums;
use turned::{Held, Strip, Turned};

/// Elements of a tile.
const TILE: usize = TILE_COLUMNS;
/// Elements of a tile where machine code does all that is done to elements: they stay in the second cache, and less time is lost
/// between steps.
const LARGE: usize = 8 << 10;
/// Elements of a part of a row that machine code computes in one run.
const RUN: usize = 16 << 10;
/// Elements of rows that are taken one by one, at least.
const LONG: usize = 512;
/// Rows of a band between the one that is computed and the one that is asked for.
const ROWS_AHEAD: usize = 8;
/// Steps of a tile from which the next one is asked for meanwhile.
const SEVERAL: usize = 3;
/// Elements, each counted once for every instruction, that one thread takes before a second one helps.
const GRAIN: usize = 8 << 10;

/// Where the value of a register is while a tile runs.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the memory of an input, of which a tile lies together or is one element.
    Input(usize),
    Slot(usize),
    /// In the memory of an output.
    Output(usize),
    /// In the room of an input that is read by strips, as it is held in a slot; its tiles are parts of a strip's rows.
    Turned(usize),
    /// For a whole row of elements of so many bytes, in a line that begins so many bytes behind the slots.
    Kept {
        at: usize,
        size: usize,
    },
}

#[derive(Debug)]
enum Step {
    /// Brings a tile of an input into a slot.
    Load { input: usize, slot: usize },
    /// Turns the strip of an input that a tile is in, if it is not there, and finds the tile.
    Turn { input: usize },
    /// Runs an instruction.
    Compute { index: usize, to: Place },
    /// Runs machine code, which asks for other operands in what comes next.
    /// Where it spreads values of rows over their elements it goes from row to row, so many bytes in each operand; otherwise
    /// there are no steps, and all rows are computed as one.
    Run { native: usize, operands: Vec<Place>, asks: Asks, of_rows: bool, steps: Vec<isize>, sums: Sums },
    /// Adds up the lanes of a sum's blocks, which machine code has left in a slot.
    Sum { index: usize, lanes: usize, to: Place },
}

struct Source {
    walk: Walk,
    first: Shared<u8>,
    dtype: DType,
    of_rows: bool,
    /// How it is read by strips of rows, and where these are behind the slots and the rows that are kept.
    turned: Option<(Turned, usize)>,
}

/// The memory of one thread.
#[derive(Clone, Copy)]
struct Room<'a> {
    slots: *mut u8,
    /// The rows of every source that are there, where it is read by strips.
    held: &'a [Cell<Held>],
}

/// Where a result goes.
struct Sink {
    register: usize,
    first: Shared<u8>,
    dtype: DType,
    of_rows: bool,
    streams: bool,
    /// Whether it is one of elements, written through the caches where no input lies.
    is_apart: bool,
}

/// A region with its operands.
struct Plan<'a> {
    op: &'a Fused,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
    placement: Arc<Placement>,
    /// Bytes behind the slots and the rows that are kept.
    behind: usize,
    /// How tiles are parts of rows, where some input does not lie together as a whole.
    bands: Option<Bands>,
    /// Whether neighbouring tiles can be computed as one.
    is_whole: bool,
    rows: usize,
    columns: usize,
    /// Rows of a tile.
    tile_rows: usize,
    /// Elements of a slot.
    slot: usize,
    /// Whether machine code does all that is done to elements, row by row.
    by_rows: bool,
    /// Tiles that one thread takes before a second one helps.
    grain: usize,
    level: Level,
    refused: OnceLock<String>,
}

/// The payload of the panic of a region that met an index out of range: what was wrong. All results that depend on no
/// index are there.
pub struct Refused(pub String);

/// How single elements are taken where an input lies together only along rows of many elements, or is one element for each: a
/// tile is a part of a row. A band is so many rows, whose tiles below each other come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bands {
    rows: usize,
    /// Elements of a row.
    columns: usize,
    /// Elements of a part, at most.
    tile: usize,
}

/// The rows of a tile, or the columns of one row.
#[derive(Clone, Copy)]
struct Span {
    start: usize,
    rows: usize,
    /// The first column.
    column: usize,
    columns: usize,
    /// Columns of a row, whether or not they are in the tile.
    width: usize,
}

impl Span {
    /// The first element and their number, of a value of rows or of elements.
    fn elements(self, of_rows: bool) -> (usize, usize) {
        if of_rows {
            return (self.start, self.rows);
        }
        (self.start * self.width + self.column, self.rows * self.columns)
    }
}

/// Computes the region. An input may lie where an output does if it is dense and has elements of the same size.
///
/// # Panics
/// When shapes or dtypes differ from what the region says; with [`Refused`] when an index is out of range.
pub fn run(op: &Fused, inputs: &[Operand], outputs: &[Output], context: Context) {
    assert_eq!((op.inputs.len(), op.outputs.len()), (inputs.len(), outputs.len()), "operands of a fused region");
    for (operand, source) in inputs.iter().zip(&op.inputs) {
        assert_eq!(operand.dtype, source.dtype, "dtype of an input of a fused region");
        let shape = operand.shape();
        let fits = if source.of_rows { op.space.is_of_rows(shape) } else { *shape == op.space.shape };
        assert!(fits, "shape {shape} of an input of a fused region of {}", op.space.shape);
    }
    for (output, &register) in outputs.iter().zip(&op.outputs) {
        assert_eq!(output.dtype, op.dtype_of(register), "dtype of a result of a fused region");
        let rows = op.of_rows(register).then(|| op.space.row_shape());
        assert_eq!(output.shape, rows.as_ref().unwrap_or(&op.space.shape), "shape of a result of a fused region");
    }
    if op.space.shape.numel() == 0 {
        return;
    }
    let plan = Plan::new(op, inputs, outputs, context);
    match plan.bands {
        Some(bands) => {
            let count = (plan.rows / bands.columns).div_ceil(bands.rows) * bands.tiles();
            let grain = (plan.grain * plan.tile_rows).div_ceil(bands.rows * bands.columns.min(bands.tile));
            context.par.ranges(count, grain, &|parts| plan.run(|room| plan.bands(room, parts.clone(), bands)));
        }
        None => {
            let count = plan.rows.div_ceil(plan.tile_rows);
            context.par.ranges(count, plan.grain, &|tiles| plan.run(|room| plan.tiles(room, tiles.clone())));
        }
    }
    if let Some(text) = plan.refused.into_inner() {
        resume_unwind(Box::new(Refused(text)));
    }
}

impl Written {
    /// How an output is written that is a value of rows wider than a tile, or anything else, so many elements a tile and a row.
    /// Machine code may cut rows where lines begin.
    fn new([of_wide_rows, cuts_rows]: [bool; 2], [tile, row]: [usize; 2], output: &Output, sources: &[Source]) -> Self {
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
        let streams = over.is_empty() && !of_wide_rows && bytes >= stream::STREAM_BYTES;
        let is_line = |bytes: usize| bytes.is_multiple_of(size_of::<Line>());
        let by_lines = streams && is_line(first) && is_line(tile * size) && (cuts_rows || is_line(row * size));
        Written { streams, by_lines, over }
    }
}

impl Source {
    /// How a tile of it lies, which is a part of a row of so many elements, if there are such rows; `tile` has so many rows and
    /// columns, if all tiles are whole rows. Machine code that goes by rows can read the same one for each.
    fn lies(&self, row: Option<usize>, tile: Option<[usize; 2]>, by_rows: bool) -> Lies {
        let (inner, stride) = self.walk.inner();
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
            _ if by_rows && !self.of_rows && tile.is_some_and(|[_, columns]| columns == self.walk.period()) => {
                Lies::Row
            }
            _ if elements.is_some_and(|count| count <= TILE && count.is_multiple_of(self.walk.period())) => {
                Lies::Repeated
            }
            _ => Lies::Otherwise,
        }
    }

    /// The address of an element.
    fn address(&self, element: usize) -> *mut u8 {
        let position = if self.walk.is_dense() { element as isize } else { self.walk.position(element) };
        self.first.pointer().wrapping_offset(position * self.dtype.size() as isize)
    }
}

impl<'a> Plan<'a> {
    fn new(op: &'a Fused, inputs: &[Operand], outputs: &[Output], context: Context) -> Self {
        let mut bands = Bands::of(op, inputs, outputs);
        let mut behind = 0;
        let source = |(operand, of_rows): (&Operand, bool)| {
            // SAFETY: the offset is that of an element.
            let first = unsafe { operand.bytes().add(operand.layout.offset * operand.dtype.size()) };
            let walk = Walk::new(operand.layout);
            let window = bands.map_or(usize::MAX, |bands| bands.tile);
            let turned = Turned::new(&walk, operand.dtype, window).map(|turned| {
                let at = behind;
                behind += turned.bytes().next_multiple_of(size_of::<Line>());
                (turned, at)
            });
            Source { walk, first: Shared(first.cast_mut()), dtype: operand.dtype, of_rows, turned }
        };
        let sources: Vec<Source> = inputs.iter().zip(op.inputs.iter().map(|x| x.of_rows)).map(source).collect();
        let (rows, columns) = (op.space.row_shape().numel(), op.space.columns());
        // Tiles are smaller where there would be too few of them for all threads, but have whole groups of rows.
        let parts = (rows * columns * op.code.len() / GRAIN).clamp(1, 4 * context.par.lanes());
        let by_rows = goes_by_rows(op, context.level);
        let most = if by_rows { (LARGE / columns).next_multiple_of(GROUP) } else { TILE / columns };
        let group = GROUP.min(TILE / columns).max(1);
        let tile_rows = rows.div_ceil(parts).next_multiple_of(group).min(most).max(1);
        let is_wide = op.space.columns() > TILE;
        let cuts_rows = by_rows && native::cuts_rows(columns, context.level);
        let written: SmallVec<[Written; 4]> = op
            .outputs
            .iter()
            .zip(outputs)
            .map(|(&register, output)| {
                let of_rows = op.of_rows(register) || columns == 1;
                let tile = if of_rows { [tile_rows; 2] } else { [tile_rows * columns, columns] };
                Written::new([op.of_rows(register) && is_wide, cuts_rows], tile, output, &sources)
            })
            .collect();
        let row = match bands {
            Some(bands) => Some(bands.columns),
            None => (tile_rows == 1 && columns > 1).then_some(columns),
        };
        let tile = bands.is_none().then_some([tile_rows, columns]);
        let lies: SmallVec<[Lies; 8]> = sources.iter().map(|source| source.lies(row, tile, by_rows)).collect();
        let sink = |((&register, output), written): ((&u16, &Output), &Written)| Sink {
            register: register.into(),
            first: Shared(output.bytes()),
            dtype: output.dtype,
            of_rows: op.of_rows(register),
            streams: written.streams,
            is_apart: !op.of_rows(register) && !written.streams && written.over.is_empty(),
        };
        let sinks = op.outputs.iter().zip(outputs).zip(&written).map(sink).collect();
        let level = context.level;
        let placement = placement(place::Region { op, lies: &lies, written: &written, level });
        let is_one_run = placement.is_one_run();
        if let Some(bands) = bands.as_mut().filter(|_| is_one_run) {
            bands.tile = RUN;
        }
        Plan {
            is_whole: is_one_run && sources.iter().all(|source| source.walk.is_dense()),
            op,
            sources,
            sinks,
            placement,
            behind,
            bands,
            rows,
            columns,
            tile_rows,
            slot: (tile_rows * columns.min(TILE)).max(TILE),
            by_rows,
            grain: rows.div_ceil(tile_rows).div_ceil(parts),
            level,
            refused: OnceLock::new(),
        }
    }

    /// Calls `body` with the memory of this thread.
    fn run(&self, body: impl FnOnce(Room)) {
        let mut arena = ARENA.take();
        let bytes = self.placement.slots * self.slot_bytes() + self.placement.kept + self.behind;
        arena.resize(bytes.div_ceil(size_of::<Line>()).max(arena.len()), Line([0; 64]));
        let held: SmallVec<[Cell<Held>; 8]> = self.sources.iter().map(|_| Cell::default()).collect();
        let room = Room { slots: arena.as_mut_ptr().cast(), held: &held };
        self.fill_fixed(room);
        body(room);
        if self.sinks.iter().any(|sink| sink.streams) {
            stream::fence();
        }
        ARENA.set(arena);
    }

    fn tiles(&self, room: Room, tiles: Range<usize>) {
        if self.is_whole {
            let start = tiles.start * self.tile_rows;
            let rows = (tiles.end * self.tile_rows).min(self.rows) - start;
            return self.tile(room, Span { start, rows, column: 0, columns: self.columns, width: self.columns }, None);
        }
        // A tile is a row then.
        if let Some(wide) = &self.placement.wide {
            return self.rows(wide, room, tiles);
        }
        for tile in tiles {
            let start = tile * self.tile_rows;
            let rows = self.tile_rows.min(self.rows - start);
            let span = Span { start, rows, column: 0, columns: self.columns, width: self.columns };
            let start = start + rows;
            self.tile(room, span, Some(Span { start, rows: rows.min(self.rows - start), ..span }));
        }
    }

    /// Some parts of the bands, each a tile of all their rows.
    fn bands(&self, room: Room, parts: Range<usize>, bands: Bands) {
        let all = self.rows / bands.columns;
        let rows_of = |part: usize| bands.rows.min(all - part / bands.tiles() * bands.rows);
        let span = |part: usize, row: usize| {
            let (first, column) = (part / bands.tiles() * bands.rows, part % bands.tiles() * bands.tile);
            let (start, rows) = ((first + row) * bands.columns + column, bands.tile.min(bands.columns - column));
            Span { start, rows, column: 0, columns: 1, width: 1 }
        };
        for part in parts.clone() {
            let (rows, next) = (rows_of(part), part + 1);
            let next_rows = if next < parts.end { rows_of(next) } else { 0 };
            for row in 0..rows {
                if bands.rows > 1 {
                    let ahead = row + ROWS_AHEAD;
                    if ahead < rows {
                        self.ask_for(span(part, ahead), Share::ALL);
                    } else if ahead - rows < next_rows {
                        self.ask_for(span(next, ahead - rows), Share::ALL);
                    }
                    if next_rows > 0 {
                        self.ask_for_blocks(span(next, 0).start, Share { index: row, count: rows });
                    }
                }
                self.tile(room, span(part, row), None);
            }
        }
    }

    /// Bytes from one register to the next; not a power of two, so that registers do not compete for cache lines.
    fn slot_bytes(&self) -> usize {
        (self.slot * 8).next_multiple_of(size_of::<Line>()) + 192
    }

    fn slot(&self, room: Room, slot: usize) -> *mut u8 {
        // SAFETY: slots lie inside the arena.
        unsafe { room.slots.add(slot * self.slot_bytes()) }
    }

    /// The address of a register's elements in a tile.
    fn address(&self, room: Room, place: Place, span: Span) -> *mut u8 {
        match place {
            Place::Slot(slot) => self.slot(room, slot),
            Place::Turned(i) => room.held[i].get().place,
            // SAFETY: the arena has room for the row.
            Place::Kept { at, size } => unsafe { self.slot(room, self.placement.slots).add(at + span.column * size) },
            Place::Input(i) => self.sources[i].address(span.elements(self.sources[i].of_rows).0),
            Place::Output(k) => {
                let sink = &self.sinks[k];
                // SAFETY: the tile's elements are elements of the output.
                unsafe { sink.first.pointer().add(span.elements(sink.of_rows).0 * sink.dtype.size()) }
            }
        }
    }

    /// How an input is read by strips, if it is, and its strip.
    fn turned<'r>(&self, input: usize, room: Room<'r>) -> Option<(&Turned, Strip<'r>)> {
        let (turned, at) = self.sources[input].turned.as_ref()?;
        // SAFETY: the arena has room for the strip.
        let first = unsafe { self.slot(room, self.placement.slots).add(self.placement.kept + *at) };
        Some((turned, Strip { first, held: &room.held[input] }))
    }

    fn fill_fixed(&self, room: Room) {
        for &register in &self.placement.fixed {
            let register = usize::from(register);
            let Place::Slot(slot) = self.placement.places[register] else {
                unreachable!("fixed registers are in slots")
            };
            let to = self.slot(room, slot);
            match self.sources.get(register) {
                Some(source) => {
                    let is_row = self.by_rows && !source.of_rows && source.walk.period() == self.columns;
                    let count = if is_row { self.columns } else { self.slot.min(source.walk.len()) };
                    self.load(register, to, 0, count, room);
                }
                None => {
                    let instr = &self.op.code[register - self.sources.len()];
                    let Code::Const(value) = instr.op else { unreachable!("only constants are fixed") };
                    // SAFETY: a slot has room for a tile of any dtype.
                    unsafe { fill(value, instr.dtype, to, self.slot) };
                }
            }
        }
    }

    fn load(&self, input: usize, to: *mut u8, start: usize, count: usize, room: Room) {
        let source = &self.sources[input];
        let first = source.first.0;
        if let Some((turned, strip)) = self.turned(input, room) {
            // SAFETY: a slot has room for a tile of any dtype, and the arena for the strip; the elements are the source's.
            return unsafe { turned.read(self.level, first, (start, count), to, strip) };
        }
        // SAFETY: a slot has room for a tile of any dtype; the elements are the source's.
        unsafe {
            if source.walk.is_dense() && !source.walk.is_constant() {
                let from = first.add(start * source.dtype.size());
                return ops::widen(source.dtype, &Tile { args: [from; 3], out: to, count, level: self.level });
            }
            let walk = &source.walk;
            match source.dtype {
                DType::F16 => walk.gather(first.cast::<f16>(), start, slice(to, count), narrow::f16_to_f32),
                DType::BF16 => walk.gather(first.cast::<bf16>(), start, slice(to, count), narrow::bf16_to_f32),
                DType::F64 | DType::I64 => walk.gather(first.cast::<u64>(), start, slice(to, count), |x: u64| x),
                DType::F32 | DType::I32 => walk.gather(first.cast::<u32>(), start, slice(to, count), |x: u32| x),
                DType::U8 | DType::Bool => walk.gather(first, start, slice(to, count), |x: u8| x),
            }
        }
    }

    /// Computes a tile, and asks for the next one where there is time for that.
    fn tile(&self, room: Room, span: Span, next: Option<Span>) {
        let (places, steps) = (&self.placement.places, &self.placement.steps);
        let next = next.filter(|_| steps.len() >= SEVERAL);
        let asks = steps.iter().any(Step::asks);
        for (number, step) in steps.iter().enumerate() {
            match step {
                &Step::Load { input, slot } => self.load_tile(input, slot, room, span),
                &Step::Turn { input } => self.turn(input, room, span),
                &Step::Compute { index, to } => self.compute(places, room, span, index, to),
                Step::Run { native, operands, asks, of_rows, steps, .. } => {
                    let own = operands.iter().map(|&place| self.address(room, place, span));
                    let next = next.unwrap_or(span);
                    let asked = asks.places.iter().map(|&place| self.address_of_share(room, place, next, asks.share));
                    let operands: SmallVec<[*mut u8; 8]> = own.chain(asked).collect();
                    self.native_at(*native, &operands, (*of_rows, steps), span);
                }
                &Step::Sum { index, lanes, to } => self.sum(room, span, (index, lanes), to),
            }
            if let Some(next) = next.filter(|_| !asks) {
                self.ask_for(next, Share { index: number, count: steps.len() });
            }
        }
        for k in (0..self.sinks.len()).filter(|&k| self.placement.stored[k]) {
            self.store(places, k, room, span);
        }
    }

    fn native_at(&self, native: usize, operands: &[*mut u8], (of_rows, steps): (bool, &[isize]), span: Span) {
        let (rows, count) = match steps {
            [] => (native::Rows::ONE, span.elements(of_rows).1),
            steps => (native::Rows { count: span.rows, steps }, span.columns),
        };
        // SAFETY: the operands hold the tile's elements as `place.rs` has said.
        unsafe { self.placement.natives[native].run(operands, rows, count) };
    }

    fn load_tile(&self, input: usize, slot: usize, room: Room, span: Span) {
        let source = &self.sources[input];
        let (start, count) = span.elements(source.of_rows);
        self.load(input, self.slot(room, slot), start, count, room);
    }

    fn turn(&self, input: usize, room: Room, span: Span) {
        let (turned, strip) = self.turned(input, room).expect("an input that is read by strips");
        // SAFETY: the arena has room for the strip; the elements are the source's.
        unsafe { turned.hold(self.level, self.sources[input].first.0, span.elements(false).0, strip) };
    }

    /// What an instruction reads and writes in a tile.
    fn rows_of(&self, places: &[Place], room: Room, span: Span, index: usize, to: Place) -> Rows<'_> {
        let args = self.op.code[index].args.map(|arg| self.address(room, places[usize::from(arg)], span).cast_const());
        let (out, level) = (self.address(room, to, span), self.level);
        Rows { args, out, rows: span.rows, columns: span.columns, level, refused: &self.refused }
    }

    /// Which part of the dimension that is indexed the columns of a tile are.
    fn part_of(&self, part_of: Option<PartOf>, span: Span) -> Option<PartOf> {
        if span.columns == span.width {
            return part_of;
        }
        let PartOf { start, size } = part_of.unwrap_or(PartOf { start: 0, size: span.width });
        Some(PartOf { start: start + span.column, size })
    }

    fn compute(&self, places: &[Place], room: Room, span: Span, index: usize, to: Place) {
        let instr = &self.op.code[index];
        let rows = self.rows_of(places, room, span, index, to);
        let (_, count) = span.elements(instr.of_rows);
        let tile = Tile { args: rows.args, out: rows.out, count, level: self.level };
        let dtype = |arg: usize| self.op.dtype_of(instr.args[arg]);
        let (from, result) = (held(dtype(0)), held(instr.dtype));
        // SAFETY: the arguments were computed or loaded as their dtypes are held, for rows or elements as the region
        // says; the result has a place of its own.
        unsafe {
            match instr.op {
                Code::Element(Element::Unary(op)) => ops::unary(op, from, &tile),
                Code::Element(Element::Binary(op)) => ops::binary(op, from, &tile),
                Code::Element(Element::Select) => ops::select(result.size(), &tile),
                Code::Element(Element::Cast(to)) => ops::cast(from, to, &tile),
                Code::Reduce(op, block) => rows::reduce(op, block, result, &rows),
                Code::Spread => rows::spread(result, &rows),
                Code::Gather(dim, part_of) => rows::gather((dim, self.part_of(part_of, span)), result, dtype(1), &rows),
                Code::Scatter(dim, part_of) => {
                    rows::scatter((dim, self.part_of(part_of, span)), result, dtype(0), &rows)
                }
                Code::Const(_) => unreachable!("constants are fixed"),
            }
            self.round(index, &tile);
        }
    }

    /// Rounds what an instruction has computed, where others read it.
    ///
    /// # Safety
    /// As for [`ops::round`].
    unsafe fn round(&self, index: usize, tile: &Tile) {
        if self.placement.rounded[index] {
            // SAFETY: the caller's promise.
            unsafe { ops::round(self.op.code[index].dtype, tile) };
        }
    }

    /// Adds up the lanes of a sum's blocks, which lie in a slot.
    fn sum(&self, room: Room, span: Span, (index, lanes): (usize, usize), to: Place) {
        let Code::Reduce(_, block) = self.op.code[index].op else { unreachable!("a sum") };
        let (lanes, out) = (self.slot(room, lanes), self.address(room, to, span));
        let blocks = span.columns.div_ceil(block);
        // SAFETY: the slot has the lanes of all blocks, and there is room for a value for each row.
        unsafe {
            let lanes: &[Lanes] = std::slice::from_raw_parts(lanes.cast(), span.rows * blocks);
            rows::sum_blocks(lanes, blocks, slice(out, span.rows));
            self.round(index, &Tile { args: [out.cast_const(); 3], out, count: span.rows, level: self.level });
        }
    }

    /// What the dense inputs hold from `start`, as far as results of `size` bytes an element are streamed meanwhile.
    fn ahead(&self, start: usize, size: usize) -> SmallVec<[stream::Ahead; 4]> {
        let dense = self.sources.iter().filter(|source| !source.of_rows && source.walk.is_dense());
        dense
            .map(|source| stream::Ahead {
                from: source.first.pointer().wrapping_add(start * source.dtype.size()),
                lines: source.dtype.size().div_ceil(size),
            })
            .collect()
    }

    /// Moves a result from its slot to the output, rounding it.
    fn store(&self, places: &[Place], k: usize, room: Room, span: Span) {
        let sink = &self.sinks[k];
        let (start, count) = span.elements(sink.of_rows);
        let (dtype, from) = (sink.dtype, self.address(room, places[sink.register], span).cast_const());
        // SAFETY: `start` is an element of the output.
        let output = unsafe { sink.first.pointer().add(start * dtype.size()) };
        let mut tile = Tile { args: [from; 3], out: output, count, level: self.level };
        // SAFETY: the slot holds the result; the output has room for it, and what it overlaps is not read any more in
        // this tile.
        unsafe {
            if sink.streams {
                if is_half(dtype) {
                    tile.out = self.slot(room, self.placement.spare);
                    ops::store(dtype, &tile);
                    tile.args[0] = tile.out;
                }
                let ahead = self.ahead(start + count, dtype.size());
                stream::copy(tile.args[0], output, count * dtype.size(), &ahead);
            } else {
                ops::store(dtype, &tile);
            }
        }
    }
}

impl Bands {
    /// The bands of a region of single elements, if an input lies in rows. One that is read by strips of rows needs them where
    /// its rows are longer than a tile: a strip of a part of the columns stays in the first cache.
    fn of(op: &Fused, inputs: &[Operand], outputs: &[Output]) -> Option<Bands> {
        if op.space.columns() != 1 {
            return None;
        }
        let walks: SmallVec<[Walk; 8]> = inputs.iter().map(|x| Walk::new(x.layout)).collect();
        let turned = |(walk, x): (&Walk, &Operand)| Turned::columns_of(walk, x.dtype);
        let mut turned = walks.iter().zip(inputs).filter_map(turned);
        let bands = match turned.next() {
            Some(columns) if columns <= TILE || turned.any(|other| other != columns) => return None,
            Some(columns) => Bands { rows: turned::ROWS, columns, tile: turned::WINDOW },
            None => {
                let lies_in_rows = |walk: &&Walk| walk.sizes.len() > 1 && matches!(walk.inner().1, 0 | 1);
                let lengths = walks.iter().filter(lies_in_rows).map(|walk| walk.inner().0);
                Bands { rows: 1, columns: lengths.filter(|&columns| columns >= LONG).min()?, tile: TILE }
            }
        };
        // Parts of rows begin with a line of what is written past the caches.
        let by_lines = |output: &Output| (bands.columns * output.dtype.size()).is_multiple_of(size_of::<Line>());
        let fits = |output: &Output| by_lines(output) || bytes_of(output) < stream::STREAM_BYTES;
        outputs.iter().all(fits).then_some(bands)
    }

    /// Tiles of a row.
    fn tiles(self) -> usize {
        self.columns.div_ceil(self.tile)
    }
}

thread_local! {
    /// The registers of this thread.
    static ARENA: RefCell<Vec<Line>> = const { RefCell::new(vec![]) };
}

unsafe fn slice<'a, T>(at: *mut u8, count: usize) -> &'a mut [T] {
    // SAFETY: the caller passes a slot.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), count) }
}

/// Fills a register of so many elements with a constant, rounded to its dtype.
unsafe fn fill(value: Scalar, dtype: DType, to: *mut u8, count: usize) {
    // SAFETY: the caller passes a slot with as many.
    unsafe {
        match dtype {
            DType::F16 => slice(to, count).fill(narrow::f16_to_f32(f16::from_scalar(value))),
            DType::BF16 => slice(to, count).fill(narrow::bf16_to_f32(bf16::from_scalar(value))),
            _ => by_dtype!(dtype, T => slice(to, count).fill(T::from_scalar(value))),
        }
    }
}

/// Whether machine code does all that is done to elements, row by row.
fn goes_by_rows(op: &Fused, level: Level) -> bool {
    let is_simple = |instr: &Instr| match instr.op {
        Code::Element(_) | Code::Spread => instr.of_rows || native::is_simple_in_a_row(op, instr, level),
        _ => true,
    };
    (native::least_row(level)..=TILE).contains(&op.space.columns()) && op.code.iter().all(is_simple)
}

/// Whether a register is a constant of the region.
fn is_constant(op: &Fused, register: u16) -> bool {
    let index = usize::from(register).checked_sub(op.inputs.len());
    index.is_some_and(|index| matches!(op.code[index].op, Code::Const(_)))
}

fn bytes_of(output: &Output) -> usize {
    output.shape.numel() * output.dtype.size()
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}
