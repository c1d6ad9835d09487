//! The lines of the caches that are asked for while a tile is computed: those of the next one. Where a tile takes several
//! steps, most of them find all in the first cache, and memory would be idle.

use super::place::{Lies, Placing, Region};
use super::{Place, Plan, Room, Span, Step, native};
use crate::stream::{LINE, Share, prefetch_near};
use meshwork_graph::ops::{Code, Instr};

/// What an operation costs at least in whose time memory brings a tile.
const COSTLY: u64 = 16;

/// What machine code asks for while it computes, line by line.
#[derive(Debug)]
pub(super) struct Asks {
    /// Operands of what comes next.
    pub places: Vec<Place>,
    /// Of their elements.
    pub share: Share,
}

impl Asks {
    pub const NOTHING: Asks = Asks { places: vec![], share: Share::ALL };
}

impl Placing<'_> {
    /// Has machine code of elements, each with the number of its step, ask for the next tile: what takes longest, or the last two
    /// if that is not long.
    pub(super) fn ask_for_tiles(&mut self, runs: &[(usize, native::Run)]) {
        let is_costly = |instr: &Instr| matches!(instr.op, Code::Element(op) if op.cost(instr.dtype) >= COSTLY);
        let longest = runs.iter().enumerate().max_by_key(|(_, (_, run))| run.code.len());
        let (first, count) = match longest {
            Some((longest, (_, run))) if runs.len() == 1 || run.code.iter().any(is_costly) => (longest, 1),
            Some(_) => (runs.len() - 2, 2),
            None => return,
        };
        let mut steps = std::mem::take(&mut self.placement.steps);
        for (index, (step, run)) in runs[first..first + count].iter().enumerate() {
            self.ask_meanwhile(&mut steps[*step], run, Share { index, count });
        }
        self.placement.steps = steps;
    }

    /// Has the machine code of a step ask for a share of what comes next, line by line: memory is neither idle then nor has more
    /// to bring than it can at a time.
    pub(super) fn ask_meanwhile(&mut self, step: &mut Step, run: &native::Run, share: Share) {
        let Step::Run { native, asks, steps, .. } = step else { unreachable!("machine code asks") };
        let (places, run) = self.asking(run, share);
        if let Ok(asking) = native::compile(&run, self.region.level) {
            if !steps.is_empty() {
                steps.extend(run.asks.iter().map(|&bytes| bytes as isize * self.region.op.space.columns() as isize));
            }
            (self.placement.natives[*native], *asks) = (asking, Asks { places, share });
        }
    }

    /// The run that asks, too, and what for: what lies densely in memory, as far as a vector of it is no more than a line.
    pub(super) fn asking(&self, run: &native::Run, share: Share) -> (Vec<Place>, native::Run) {
        let Region { op, lies, written, .. } = self.region;
        let is_apart = |k: usize| !op.of_rows(op.outputs[k]) && !written[k].streams && written[k].over.is_empty();
        let sources = (0..op.inputs.len()).filter(|&i| !op.inputs[i].of_rows && lies[i] == Lies::Dense);
        let sinks = (0..op.outputs.len()).filter(|&k| is_apart(k));
        let sources = sources.map(|i| (Place::Input(i), op.inputs[i].dtype));
        let sinks = sinks.map(|k| (Place::Output(k), op.dtype_of(op.outputs[k])));
        let asks = sources.chain(sinks).map(|(place, dtype)| (place, dtype.size() as u32));
        let asks = asks.filter(|&(_, size)| size <= 4);
        // A share lies together, and its lines are asked for more than once each.
        let (places, asks) = asks.map(|(place, size)| (place, (size / share.count as u32).max(1))).unzip();
        (places, native::Run { asks, ..run.clone() })
    }
}

impl Step {
    /// Whether it asks for what comes next.
    pub fn asks(&self) -> bool {
        matches!(self, Step::Run { asks, .. } if !asks.places.is_empty())
    }
}

impl Plan<'_> {
    /// Where a share of an operand's elements begins in a tile.
    pub(super) fn address_of_share(&self, room: Room, place: Place, span: Span, share: Share) -> *mut u8 {
        let size = match place {
            Place::Input(i) => self.sources[i].dtype.size(),
            Place::Output(k) => self.sinks[k].dtype.size(),
            _ => unreachable!("what is asked for is in memory"),
        };
        let first = share.range(span.elements(false).1).start;
        self.address(room, place, span).wrapping_add(first * size)
    }

    /// Asks for a share of a tile that comes next, if there is one: of what lies densely in memory.
    pub(super) fn ask_for(&self, span: Span, share: Share) {
        if span.start >= self.rows {
            return;
        }
        let (first, count) = span.elements(false);
        let ask = |from: *mut u8, size: usize| {
            let from = from.wrapping_add(first * size);
            share.range((count * size).div_ceil(LINE)).for_each(|line| prefetch_near(from.wrapping_add(line * LINE)));
        };
        for source in self.sources.iter().filter(|source| !source.of_rows && source.walk.is_dense()) {
            ask(source.first.pointer(), source.dtype.size());
        }
        for sink in self.sinks.iter().filter(|sink| sink.is_apart) {
            ask(sink.first.pointer(), sink.dtype.size());
        }
    }

    /// Asks for a share of the blocks that begin with an element, of what is read by strips.
    pub(super) fn ask_for_blocks(&self, element: usize, share: Share) {
        for source in &self.sources {
            if let Some((turned, _)) = &source.turned {
                turned.ask_for(source.first.pointer(), element, share);
            }
        }
    }
}
