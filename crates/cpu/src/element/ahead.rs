//! The lines of the caches that are asked for while a tile is computed: those of the next one. Where a tile takes several
//! steps, most of them find all in the first cache, and memory would be idle.

use super::cut::Span;
use super::operands::Lies;
use super::place::{Placing, Region};
use super::tile::Room;
use super::{Place, Plan, Step, is_costly, native};
use crate::stream::Share;
use meshwork_simd::line::{LINE, prefetch_near, prefetch_to_write};

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
                let space = &self.region.op.space;
                let elements = if space.is_beside() { 1 } else { space.columns() as isize };
                steps.extend(run.asks.iter().map(|&bytes| bytes as isize * elements));
            }
            (self.placement.natives[*native], *asks) = (asking, Asks { places, share });
        }
    }

    /// The run that asks, too, and what for, as far as a vector of it is no more than a line.
    pub(super) fn asking(&self, run: &native::Run, share: Share) -> (Vec<Place>, native::Run) {
        let op = self.region.op;
        let size = |place: Place| match place {
            Place::Input(i) => op.inputs[i].dtype.size(),
            Place::Output(k) => op.dtype_of(op.outputs[k]).size(),
            _ => unreachable!("what is asked for is in memory"),
        };
        let asked = self.placement.asked.iter().map(|&place| (place, size(place))).filter(|&(_, size)| size <= 4);
        // A share lies together, and its lines are asked for more than once each.
        let (places, asks) = asked.map(|(place, size)| (place, (size / share.count).max(1) as u32)).unzip();
        (places, native::Run { asks, ..run.clone() })
    }
}

/// What is asked for before a tile of a region is computed: the operands of elements that lie densely in memory.
pub(super) fn asked_of(Region { op, lies, written, .. }: Region) -> Vec<Place> {
    let is_apart = |k: usize| !op.of_rows(op.outputs[k]) && !written[k].streams() && written[k].over.is_empty();
    let sources = (0..lies.len()).filter(|&i| !op.inputs[i].of_rows && lies[i] == Lies::Dense).map(Place::Input);
    sources.chain((0..written.len()).filter(|&k| is_apart(k)).map(Place::Output)).collect()
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
        let first = share.range(span.elements(false).1).start;
        self.address(room, place, span).wrapping_add(first * self.size(place))
    }

    /// Bytes of an element in memory.
    fn size(&self, place: Place) -> usize {
        match place {
            Place::Input(i) => self.sources[i].dtype.size(),
            Place::Output(k) => self.sinks[k].dtype.size(),
            _ => unreachable!("what is asked for is in memory"),
        }
    }

    /// Asks for a share of a tile that comes next, if there is one.
    pub(super) fn ask_for(&self, room: Room, span: Span, share: Share) {
        if span.start >= self.cut.rows {
            return;
        }
        for &place in &self.placement.asked {
            let from = self.address(room, place, span);
            let lines = (span.elements(false).1 * self.size(place)).div_ceil(LINE);
            share.range(lines).for_each(|line| prefetch_near(from.wrapping_add(line * LINE)));
        }
    }

    /// Asks for the lines with which parts of rows end: what is written past the caches does not wait for them then.
    pub(super) fn ask_for_end(&self, span: Span) {
        for sink in self.sinks.iter().filter(|sink| sink.streams) {
            let end = sink.first.pointer().wrapping_add((span.start + span.rows) * sink.dtype.size() - 1);
            prefetch_to_write(end, 1);
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
