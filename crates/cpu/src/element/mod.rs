//! Fused regions, run tile by tile: all instructions on up to 1,024 elements, whole rows of them, whose registers stay in
//! the first cache, then on the next ones; where machine code does all that is done to elements on more, which stay in the
//! second. Rows with more than 1,024 elements take several passes (`wide.rs`), and so do those that lie beside
//! each other (`beside.rs`).

mod ahead;
mod beside;
mod bundle;
mod by_rows;
mod cut;
pub mod epilogue;
mod joined;
mod native;
mod operands;
mod ops;
mod place;
#[cfg(test)]
mod placed_regions;
#[cfg(test)]
mod random_regions;
mod rows;
mod sums;
#[cfg(test)]
mod tests;
mod tile;
mod turned;
mod units;
mod wide;

pub use ops::{extremum_f32, extremum_f64};

use crate::operand::Shared;
use crate::stream::Share;
use crate::{Context, Level, Operand, Output};
use ahead::Asks;
use by_rows::ByRows;
use cut::{Bands, Cut, Span};
use meshwork_graph::canonical::LANES;
use meshwork_graph::ops::{Code, Fused, Instr};
use operands::{Lies, Sink, Source, Written};
use place::{Placement, Region, placement};
use smallvec::SmallVec;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use sums::Sums;
use tile::Room;

/// Rows of a band between the one that is computed and the one that is asked for.
const ROWS_AHEAD: usize = 8;
/// Steps of a tile from which the next one is asked for meanwhile.
const SEVERAL: usize = 3;
/// What an operation costs at least in whose time the second cache takes its results and gives them back, or memory brings a
/// tile.
const COSTLY: u64 = 16;

/// Where the value of a register is while a tile runs.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In the memory of an input, of which a tile lies together or is one element.
    Input(usize),
    Slot(usize),
    /// In a slot with elements of an input that come again and again: a tile begins with any of the first ones.
    Repeated {
        input: usize,
        slot: usize,
    },
    /// In the memory of an output.
    Output(usize),
    /// In the room of an input that is read by strips, as it is held in a slot; its tiles are parts of a strip's rows.
    Turned(usize),
    /// In what the terms of an instruction are combined with, of rows that lie beside each other.
    Combined(usize),
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
    /// there are no steps, and all rows are computed as one. Of rows that lie beside each other steps are bytes of an element, and
    /// none for what all columns have in common.
    Run { native: usize, operands: Vec<Place>, asks: Asks, of_rows: bool, steps: Vec<isize>, sums: Sums },
    /// Adds up the lanes of a sum's blocks, which machine code has left in a slot.
    Sum { index: usize, lanes: usize, to: Place },
}

/// A region with its operands.
struct Plan<'a> {
    op: &'a Fused,
    cut: Cut,
    sources: Vec<Source>,
    sinks: Vec<Sink>,
    placement: Arc<Placement>,
    /// Bytes behind the slots and the rows that are kept.
    behind: usize,
    /// Whether neighbouring tiles can be computed as one.
    is_whole: bool,
    level: Level,
    refused: OnceLock<String>,
}

/// The payload of the panic of a region that met an index out of range: what was wrong. All results that depend on no
/// index are there.
pub struct Refused(pub String);

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
    match ByRows::new(op, inputs, context.level) {
        Some(ByRows { op, layouts }) => {
            let operands = inputs.iter().zip(&layouts);
            // SAFETY: the same elements, of which the layouts have some once that come again.
            let operands = operands.map(|(x, layout)| unsafe { Operand::new(x.bytes(), x.dtype, layout) });
            let inputs: SmallVec<[Operand; 8]> = operands.collect();
            compute(&op, &inputs, outputs, context);
        }
        None => compute(op, inputs, outputs, context),
    }
}

fn compute(op: &Fused, inputs: &[Operand], outputs: &[Output], context: Context) {
    let plan = Plan::new(op, inputs, outputs, context);
    let (count, grain) = plan.cut.count_and_grain();
    context.par.ranges(count, grain, &|parts| plan.run(|room| plan.parts(room, parts.clone())));
    if let Some(text) = plan.refused.into_inner() {
        resume_unwind(Box::new(Refused(text)));
    }
}

impl<'a> Plan<'a> {
    fn new(op: &'a Fused, inputs: &[Operand], outputs: &[Output], context: Context) -> Self {
        let mut cut = Cut::new(op, inputs, outputs, context);
        let mut behind = 0;
        let source = |(operand, of_rows): (&Operand, bool)| {
            Source::new(operand, of_rows, op.space.column_dims(), &cut, &mut behind)
        };
        let sources: Vec<Source> = inputs.iter().zip(op.inputs.iter().map(|x| x.of_rows)).map(source).collect();
        let lies: SmallVec<[Lies; 8]> = sources.iter().map(|source| source.lies(&cut)).collect();
        let written = |(&register, output): (&u16, &Output)| Written::new(op.of_rows(register), output, &cut, &sources);
        let written: SmallVec<[Written; 4]> = op.outputs.iter().zip(outputs).map(written).collect();
        let sink = |((&register, output), written): ((&u16, &Output), &Written)| Sink {
            register: register.into(),
            first: Shared(output.bytes()),
            dtype: output.dtype,
            of_rows: op.of_rows(register),
            streams: written.streams(),
        };
        let sinks = op.outputs.iter().zip(outputs).zip(&written).map(sink).collect();
        let level = context.level;
        let placement = placement(Region { op, lies: &lies, written: &written, level });
        let is_one_run = placement.is_one_run();
        let is_whole = is_one_run && sources.iter().all(|source| source.walk.is_dense());
        if is_one_run {
            cut.in_one_run();
            if sources.iter().all(|source| source.is_there(cut::REPEATED)) {
                cut.in_long_tiles();
            }
        }
        Plan { op, cut, sources, sinks, placement, behind, is_whole, level, refused: OnceLock::new() }
    }

    /// Computes some tiles, or parts of bands.
    fn parts(&self, room: Room, parts: Range<usize>) {
        match (&self.placement.wide, self.cut.beside, self.cut.bands) {
            (Some(wide), Some(beside), _) => self.bundles(wide, beside, room, parts),
            (_, _, Some(bands)) => self.bands(room, parts, bands),
            _ => self.tiles(room, parts),
        }
    }

    fn tiles(&self, room: Room, tiles: Range<usize>) {
        if self.is_whole {
            return self.tile(room, self.cut.span(tiles), None);
        }
        // A tile is a row then.
        if let Some(wide) = &self.placement.wide {
            return self.rows(wide, room, tiles);
        }
        for tile in tiles {
            self.tile(room, self.cut.span(tile..tile + 1), Some(self.cut.span(tile + 1..tile + 2)));
        }
    }

    /// Some parts of the bands, each a tile of all their rows.
    fn bands(&self, room: Room, parts: Range<usize>, bands: Bands) {
        let all = self.cut.rows / bands.columns;
        let rows_of = |part: usize| bands.rows.min(all - part / bands.tiles() * bands.rows);
        let span = |part: usize, row: usize| {
            let elements = bands.part(part / bands.tiles() * bands.rows + row, part % bands.tiles());
            Span { start: elements.start, rows: elements.len(), column: 0, columns: 1, width: 1 }
        };
        for part in parts.clone() {
            let (rows, next) = (rows_of(part), part + 1);
            let next_rows = if next < parts.end { rows_of(next) } else { 0 };
            for row in 0..rows {
                if bands.rows > 1 {
                    let ahead = row + ROWS_AHEAD;
                    if ahead < rows {
                        self.ask_for(room, span(part, ahead), Share::ALL);
                    } else if ahead - rows < next_rows {
                        self.ask_for(room, span(next, ahead - rows), Share::ALL);
                    }
                    if next_rows > 0 {
                        self.ask_for_blocks(span(next, 0).start, Share { index: row, count: rows });
                    }
                }
                let mut rest = span(part, row);
                let to_line = rest.start.next_multiple_of(LANES) - rest.start;
                if bands.by_lines && to_line > 0 {
                    let head = Span { rows: to_line.min(rest.rows), ..rest };
                    self.tile(room, head, None);
                    rest = Span { start: rest.start + head.rows, rows: rest.rows - head.rows, ..rest };
                }
                if rest.rows > 0 {
                    if bands.by_lines {
                        self.ask_for_end(rest);
                    }
                    self.tile(room, rest, None);
                }
            }
        }
    }
}

/// Whether an instruction takes longer than it takes the second cache to keep its results, or memory to bring a tile.
fn is_costly(instr: &Instr) -> bool {
    matches!(instr.op, Code::Element(element) if element.cost(instr.dtype) >= COSTLY)
}

/// Whether a register is a constant of the region.
fn is_constant(op: &Fused, register: u16) -> bool {
    let index = usize::from(register).checked_sub(op.inputs.len());
    index.is_some_and(|index| matches!(op.code[index].op, Code::Const(_)))
}
