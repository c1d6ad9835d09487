//! Regions whose rows are wider than a tile. A row is passed over several times, tile by tile, while it is in the second
//! cache: what combines its elements is known when a pass has ended, and what is computed with that comes in the next one.
//! Elements are computed again in every pass that needs them, unless that costs more than keeping the row; results are
//! stored in the last, so that they may lie where operands do (`joined.rs` does it along with the next row). What is simple is
//! machine code here too, for which values of the row are one for all elements.

use super::bundle::Bundles;
use super::cut::{Span, TILE};
use super::joined::Joined;
use super::native::{self, Native, Refused, is_simple_in_a_row};
use super::operands::{Lies, is_half};
use super::ops::{self, Tile, held};
use super::place::{Placing, Slots};
use super::rows::{self, Roots, Rows};
use super::sums::{Sums, comes_along};
use super::tile::Room;
use super::units::{Unit, halve, units_of};
use super::{Place, Plan, Step, is_constant, is_costly};
use crate::Level;
use crate::stream::Share;
use meshwork_graph::DType;
use meshwork_graph::ops::{Code, Fused};
use meshwork_simd::line::LINE;
use smallvec::SmallVec;

/// Bytes of rows that are kept from one pass to the next, at most: they stay in the second cache, beside the operands.
const MOST_KEPT: usize = 256 << 10;

/// What is done to each row.
#[derive(Debug)]
pub(super) struct Wide {
    /// Brings values of rows into their slots.
    pub loads: Vec<Step>,
    pub passes: Vec<Pass>,
    /// The last pass along with the one before it over the next row.
    pub joined: Option<Joined>,
    /// What is computed of rows when all passes have ended.
    pub after: Vec<Step>,
}

#[derive(Debug)]
pub(super) struct Pass {
    /// What is computed of rows before.
    pub before: Vec<Step>,
    pub tiles: Tiles,
    /// Instructions that combine the elements of the row.
    pub combining: SmallVec<[usize; 4]>,
    /// Whether results are stored.
    pub stores: bool,
}

/// What is computed of each tile in a pass.
#[derive(Debug)]
pub(super) struct Tiles {
    pub steps: Vec<Step>,
    /// Where the registers are meanwhile.
    pub places: Vec<Place>,
    /// Whether elements are neither in slots, which have room for those of a tile, nor copied from there: a row can be one tile.
    pub in_place: bool,
}

impl Pass {
    /// Which of the pass's combining instructions this is.
    pub fn number(&self, index: usize) -> usize {
        self.combining.iter().position(|&other| other == index).expect("a reduction of the pass")
    }
}

impl Tiles {
    /// Columns that are computed at once of a row that can be one tile.
    fn columns(&self, width: usize) -> usize {
        self.steps.iter().filter_map(|step| step.sums().map(Sums::tile)).min().unwrap_or(width)
    }
}

/// How rows can be passed over.
struct Attempt {
    passes: Vec<Pass>,
    joined: Option<Joined>,
    natives: Vec<Native>,
    stored: Vec<bool>,
    slots: usize,
}

/// Runs of instructions that became machine code, with the registers that they read.
pub(super) type Runs = Vec<(Vec<u16>, native::Run)>;

/// What a pass over a row asks for of the next one. The first waits for memory itself, and the last for memory to take
/// results, unless there is no other.
pub(super) fn share_of(pass: usize, passes: usize) -> Option<Share> {
    let (first, count) = match passes {
        1 => (0, 1),
        2 => (1, 1),
        _ => (1, passes - 2),
    };
    let index = pass.checked_sub(first).filter(|index| *index < count)?;
    Some(Share { index, count })
}

/// Whether an instruction makes a value of a row from its elements.
fn combines(op: Code) -> bool {
    matches!(op, Code::Reduce(..) | Code::Gather(..))
}

/// For each register the pass in which its elements can be computed, or before which a value of rows is known.
fn stages(op: &Fused) -> Vec<usize> {
    let mut stages = vec![0; op.inputs.len()];
    for instr in &op.code {
        let known = instr.reads().iter().map(|&arg| stages[usize::from(arg)]).max().unwrap_or(0);
        stages.push(known + usize::from(combines(instr.op)));
    }
    stages
}

impl Placing<'_> {
    /// Gives every register a place for each pass. Values of rows and constants have slots of their own.
    pub(super) fn place_wide(&mut self) -> Wide {
        let op = self.region.op;
        let (inputs, count) = (op.inputs.len(), self.placement.places.len());
        self.placement.stored = vec![true; op.outputs.len()];
        let mut slots = Slots::default();
        let mut loads = Vec::new();
        for register in 0..count {
            let of_rows = op.of_rows(register as u16);
            let lies = self.region.lies.get(register);
            let fixed = lies == Some(&Lies::Constant) || is_constant(op, register as u16);
            let in_place = lies == Some(&Lies::Dense) && !is_half(op.dtype_of(register as u16));
            if fixed {
                self.placement.places[register] = Place::Slot(slots.take());
                self.placement.fixed.push(register as u16);
            } else if in_place {
                self.placement.places[register] = Place::Input(register);
            } else if of_rows {
                let slot = slots.take();
                self.placement.places[register] = Place::Slot(slot);
                loads.extend((register < inputs).then_some(Step::Load { input: register, slot }));
            }
        }
        let stages = stages(op);
        let of_outputs = op.outputs.iter().filter(|&&register| !op.of_rows(register));
        let of_outputs = of_outputs.map(|&register| stages[usize::from(register)]);
        let of_rows = op.code.iter().zip(&stages[inputs..]).filter(|(instr, _)| combines(instr.op));
        let last = of_outputs.chain(of_rows.map(|(_, stage)| stage - 1)).max().unwrap_or(0);
        let own = slots.count;
        let kept = self.kept(&stages, last);
        let after = self.of_rows(last + 1, &stages);
        let is_beside = op.space.is_beside();
        let mut attempt = |with_sums: bool| {
            let mut count = slots.count;
            let pass = |pass| {
                let asks = share_of(pass, last + 1).is_some_and(|share| share.count == 1);
                self.pass((pass, pass == last), (&stages, &kept), (with_sums, asks), own, &mut count)
            };
            let (passes, runs): (Vec<Pass>, Vec<Runs>) = (0..=last).map(pass).unzip();
            let joined = if is_beside { None } else { self.joined(&passes, &runs, &stages, &kept) };
            let (natives, stored) = (std::mem::take(&mut self.placement.natives), self.placement.stored.clone());
            Attempt { passes, joined, natives, stored, slots: count }
        };
        let with_sums = attempt(true);
        // Passes that come together gain more than sums that come along, where there are not registers for both.
        let has_sums = |pass: &Pass| pass.tiles.steps.iter().any(|step| step.sums().is_some());
        let may_gain = !is_beside && with_sums.joined.is_none() && with_sums.passes.iter().any(has_sums);
        let without_sums = may_gain.then(|| attempt(false)).filter(|attempt| attempt.joined.is_some());
        let Attempt { passes, joined, natives, stored, slots } = without_sums.unwrap_or(with_sums);
        (self.placement.natives, self.placement.stored) = (natives, stored);
        (self.placement.spare, self.placement.slots) = (slots, slots + 1);
        Wide { loads, passes, joined, after }
    }

    /// The steps that compute values of rows from other ones that are known before a pass. Of rows that lie beside each other there are
    /// enough for machine code.
    fn of_rows(&mut self, pass: usize, stages: &[usize]) -> Vec<Step> {
        let op = self.region.op;
        let inputs = op.inputs.len();
        let is_due = |&index: &usize| {
            let instr = &op.code[index];
            instr.of_rows && !combines(instr.op) && stages[inputs + index] == pass
        };
        let due: Vec<usize> = (0..op.code.len()).filter(is_due).collect();
        let has_code = |index: usize| op.space.is_beside() && native::is_simple(op, &op.code[index], self.region.level);
        let known = (0..inputs + op.code.len()).map(|r| r < inputs || !due.contains(&(r - inputs))).collect();
        let mut steps = vec![];
        for unit in units_of(op, due, known, &has_code) {
            if let Unit::Run(run) = &unit {
                let results: Vec<u16> = run.iter().map(|&index| (inputs + index) as u16).collect();
                let operands = (&unit.reads(op)[..], &results[..]);
                if let Ok((native, step)) = self.compiled(&self.placement.places, run, operands, &Sums::default()) {
                    self.placement.natives.push(native);
                    steps.push(step);
                    continue;
                }
            }
            let places = &self.placement.places;
            steps.extend(unit.instructions().iter().map(|&index| Step::Compute { index, to: places[inputs + index] }));
        }
        steps
    }

    /// Gives rows that are kept their places, and says for each register from which pass on it is, if so.
    fn kept(&mut self, stages: &[usize], last: usize) -> Vec<Option<usize>> {
        let op = self.region.op;
        let mut kept = vec![None; self.placement.places.len()];
        let mut passes: Vec<Vec<usize>> = vec![];
        for pass in 0..=last {
            // What an earlier pass keeps is not computed in this one, and neither is what only that needs.
            let due = loop {
                let due = self.due((pass, pass == last), stages, &kept);
                let computed_before = |&&index: &&usize| passes.iter().any(|due| due.contains(&index));
                let fits = |&&index: &&usize| self.placement.kept + self.kept_bytes(index) <= MOST_KEPT;
                let costly = due.iter().rev().filter(|&&index| is_costly(&op.code[index]));
                let Some(&index) = costly.filter(computed_before).find(fits) else { break due };
                let register = op.inputs.len() + index;
                kept[register] = passes.iter().position(|due| due.contains(&index));
                let size = held(op.dtype_of(register as u16)).size();
                self.placement.places[register] = Place::Kept { at: self.placement.kept, size };
                self.placement.kept += self.kept_bytes(index);
            };
            passes.push(due);
        }
        kept
    }

    /// Bytes of the row of an instruction's results, or of all rows that are taken at once.
    fn kept_bytes(&self, index: usize) -> usize {
        let op = self.region.op;
        let rows = if op.space.is_beside() { Bundles::new(op).width } else { 1 };
        (rows * op.space.columns() * held(op.code[index].dtype).size()).next_multiple_of(LINE)
    }

    /// The instructions that a pass, the last or not, has to compute of each tile.
    fn due(&self, (pass, is_last): (usize, bool), stages: &[usize], kept: &[Option<usize>]) -> Vec<usize> {
        let op = self.region.op;
        let (inputs, code) = (op.inputs.len(), &op.code);
        let is_computed = |index: usize| self.is_computed(index, pass, kept);
        let ends = |index: usize| combines(code[index].op) && stages[inputs + index] == pass + 1;
        let mut needed = vec![false; self.placement.places.len()];
        let results = op.outputs.iter().filter(|&&register| is_last && !op.of_rows(register));
        results.for_each(|&register| needed[usize::from(register)] = true);
        for index in (0..code.len()).rev() {
            if ends(index) || is_computed(index) && needed[inputs + index] {
                code[index].reads().iter().for_each(|&arg| needed[usize::from(arg)] |= !op.of_rows(arg));
            }
        }
        (0..code.len()).filter(|&index| ends(index) || is_computed(index) && needed[inputs + index]).collect()
    }

    /// Whether an instruction gives elements that are computed in every pass that needs them, this one too.
    fn is_computed(&self, index: usize, pass: usize, kept: &[Option<usize>]) -> bool {
        let register = self.region.op.inputs.len() + index;
        let is_known = kept[register].is_some_and(|first| first < pass);
        !self.region.op.of_rows(register as u16) && !is_constant(self.region.op, register as u16) && !is_known
    }

    /// A pass, the last or not. Slots from `own` on are free for what it computes; `slots` is their number.
    fn pass(
        &mut self,
        (pass, is_last): (usize, bool),
        (stages, kept): (&[usize], &[Option<usize>]),
        (mut with_sums, asks): (bool, bool),
        own: usize,
        slots: &mut usize,
    ) -> (Pass, Runs) {
        let op = self.region.op;
        let (inputs, code) = (op.inputs.len(), &op.code);
        let is_computed = |index: usize| self.is_computed(index, pass, kept);
        let ends = |index: usize| combines(code[index].op) && stages[inputs + index] == pass + 1;
        let results = op.outputs.iter().filter(|&&register| is_last && !op.of_rows(register));
        let due = self.due((pass, is_last), stages, kept);
        let known: Vec<bool> = (0..kept.len()).map(|r| r < inputs || !is_computed(r - inputs)).collect();
        let keeps: Vec<bool> = kept.iter().map(|&first| first == Some(pass)).collect();
        let in_units = |level: Level| {
            units_of(op, due.clone(), known.clone(), &|index| is_simple_in_a_row(op, &code[index], level))
        };
        let mut units = in_units(self.region.level);
        let natives = self.placement.natives.len();
        let (tiles, runs) = loop {
            match self.tiles_of(&units, (is_last, &keeps, with_sums), own, slots) {
                Ok(made) => break made,
                Err((_, Refused::Registers)) if with_sums => with_sums = false,
                Err((number, Refused::Registers)) => halve(&mut units, number),
                Err((_, Refused::Memory)) => (units, with_sums) = (in_units(Level::Portable), false),
            }
            self.placement.natives.truncate(natives);
        };
        let combining = due.into_iter().filter(|&index| ends(index)).collect();
        let before = self.of_rows(pass, stages);
        let mut pass = Pass { before, tiles, combining, stores: results.count() > 0 };
        if asks {
            self.ask_in_pass(&mut pass, &runs);
        }
        (pass, runs)
    }

    /// Has the machine code of a pass ask for the next row, if it does all of it.
    fn ask_in_pass(&mut self, pass: &mut Pass, runs: &Runs) {
        let can = pass.tiles.in_place || self.region.op.space.is_beside();
        if let ([step @ Step::Run { .. }], [(_, run)], true) = (&mut pass.tiles.steps[..], &runs[..], can) {
            self.ask_meanwhile(step, run, Share::ALL);
        }
    }

    /// The steps that compute a tile in a pass, the last or not, that keeps rows of some registers, and where the registers are
    /// meanwhile. On failure the number of the unit that could not be compiled.
    fn tiles_of(
        &mut self,
        units: &[Unit],
        (is_last, keeps, with_sums): (bool, &[bool], bool),
        own: usize,
        count: &mut usize,
    ) -> Result<(Tiles, Runs), (usize, Refused)> {
        let op = self.region.op;
        let inputs = op.inputs.len();
        let sums = self.sums_of(units, with_sums);
        let reads = |number: usize| if comes_along(units, number, &sums) { vec![] } else { units[number].reads(op) };
        let reads: Vec<Vec<u16>> = (0..units.len()).map(reads).collect();
        let mut last_use = vec![None; self.placement.places.len()];
        for (number, reads) in reads.iter().enumerate() {
            reads.iter().for_each(|&register| last_use[usize::from(register)] = Some(number));
        }
        let mut places = self.placement.places.clone();
        // Whether it has a place for all passes.
        let is_placed = |register: usize| {
            op.of_rows(register as u16)
                || self.placement.fixed.contains(&(register as u16))
                || matches!(self.placement.places[register], Place::Input(_))
                || matches!(self.placement.places[register], Place::Kept { .. }) && !keeps[register]
        };
        let is_placed: Vec<bool> = (0..places.len()).map(is_placed).collect();
        let mut loaded = is_placed.clone();
        let mut slots = Slots { count: own, free: Vec::new() };
        let (mut tiles, mut runs, mut in_place) = (Vec::new(), Runs::new(), true);
        for (number, unit) in units.iter().enumerate().filter(|(number, _)| !comes_along(units, *number, &sums)) {
            for register in reads[number].iter().map(|&register| usize::from(register)) {
                if !loaded[register] {
                    let slot = slots.take();
                    (places[register], loaded[register]) = (Place::Slot(slot), true);
                    tiles.push(Step::Load { input: register, slot });
                }
            }
            let sink = |register: usize| op.outputs.iter().position(|&k| is_last && usize::from(k) == register);
            let mut results: SmallVec<[u16; 4]> = SmallVec::new();
            for register in unit.instructions().iter().map(|&index| inputs + index).filter(|&r| !is_placed[r]) {
                let sink = sink(register);
                if keeps[register] {
                    loaded[register] = true;
                    results.push(register as u16);
                    continue;
                }
                if last_use[register].is_none() && sink.is_none() {
                    continue;
                }
                let direct = sink.filter(|&k| self.is_direct(k, unit, number, &last_use));
                places[register] = direct.map_or_else(|| Place::Slot(slots.take()), Place::Output);
                loaded[register] = true;
                sink.into_iter().for_each(|k| self.placement.stored[k] = direct.is_none());
                results.push(register as u16);
            }
            // A constant operand lies there as well, a tile of it.
            let is_in_slot =
                |&register: &u16| !op.of_rows(register) && matches!(places[usize::from(register)], Place::Slot(_));
            let is_simple = match unit {
                Unit::Run(_) => true,
                &Unit::One(index) => matches!(op.code[index].op, Code::Reduce(..)),
            };
            in_place &= is_simple && !reads[number].iter().chain(&results).any(is_in_slot);
            match unit.run(&sums[number]) {
                None => {
                    let compute = |&index: &usize| Step::Compute { index, to: places[inputs + index] };
                    tiles.extend(unit.instructions().iter().map(compute));
                }
                Some(run) => {
                    let (operands, sums) = ((&reads[number][..], &results[..]), &sums[number]);
                    let compiled = self.compiled(&places, run, operands, sums);
                    let (native, step) = compiled.map_err(|refused| (number, refused))?;
                    runs.push((reads[number].clone(), self.run(&places, run, operands, sums)));
                    self.placement.natives.push(native);
                    tiles.push(step);
                }
            }
            for register in reads[number].iter().chain(&results).map(|&register| usize::from(register)) {
                let ends = last_use[register].is_none_or(|last| last == number);
                if let Place::Slot(slot) = places[register]
                    && ends
                    && !is_placed[register]
                    && sink(register).is_none_or(|k| !self.placement.stored[k])
                {
                    slots.free.push(slot);
                }
            }
        }
        *count = slots.count.max(*count);
        let is_copied = |(&register, &stored): (&u16, &bool)| stored && !op.of_rows(register);
        in_place &= !(is_last && op.outputs.iter().zip(&self.placement.stored).any(is_copied));
        Ok((Tiles { steps: tiles, places, in_place }, runs))
    }
}

/// Where the operands of a pass's machine code and reductions are in a tile, step by step.
#[derive(Default)]
pub(super) struct Along {
    pub places: SmallVec<[*mut u8; 16]>,
    /// Bytes from one column to the next of each; none for what is in the same place for every tile.
    pub columns: SmallVec<[usize; 16]>,
}

impl Along {
    /// Adds an operand in a row.
    pub fn push(&mut self, plan: &Plan, room: Room, place: Place, row: Span) {
        let size = |of_rows: bool, dtype: DType| if of_rows { 0 } else { dtype.size() };
        self.places.push(plan.address(room, place, row));
        self.columns.push(match place {
            Place::Slot(_) => 0,
            Place::Kept { size, .. } => size,
            Place::Turned(_) | Place::Repeated { .. } | Place::Combined(_) => {
                unreachable!("rows that are passed over one by one are loaded")
            }
            Place::Input(i) => size(plan.sources[i].of_rows, plan.sources[i].dtype),
            Place::Output(k) => size(plan.sinks[k].of_rows, plan.sinks[k].dtype),
        });
    }

    /// Adds what is asked for while a row is passed over; of the last one nothing comes that is not there.
    pub fn push_asks(&mut self, plan: &Plan, room: Room, asks: &[Place], row: Span) {
        let next = Span { start: (row.start + 1).min(plan.cut.rows - 1), ..row };
        asks.iter().for_each(|&place| self.push(plan, room, place, next));
    }

    /// Goes on by so many columns.
    pub fn advance(&mut self, columns: usize) {
        for (place, column) in self.places.iter_mut().zip(&self.columns) {
            *place = place.wrapping_add(columns * column);
        }
    }
}

impl Plan<'_> {
    /// Computes one row.
    pub(super) fn row(&self, wide: &Wide, room: Room, row: usize) {
        let whole = Span { start: row, rows: 1, column: 0, columns: 1, width: self.cut.columns };
        self.values(&wide.loads, room, whole);
        for (number, pass) in wide.passes.iter().enumerate() {
            self.pass(pass, room, whole, share_of(number, wide.passes.len()));
        }
        self.values(&wide.after, room, whole);
        for k in (0..self.sinks.len()).filter(|&k| self.sinks[k].of_rows) {
            self.store(&self.placement.places, k, room, whole);
        }
    }

    /// One pass with what is computed before.
    pub(super) fn pass(&self, pass: &Pass, room: Room, row: Span, asks: Option<Share>) {
        self.values(&pass.before, room, row);
        self.pass_over(pass, room, row, asks);
    }

    /// Loads or computes values of a row.
    pub(super) fn values(&self, steps: &[Step], room: Room, row: Span) {
        for step in steps {
            match *step {
                Step::Load { input, slot } => self.load_tile(input, slot, room, row),
                Step::Compute { index, to } => self.compute(&self.placement.places, room, row, index, to),
                Step::Run { .. } | Step::Sum { .. } => unreachable!("values of rows are computed by loops"),
                Step::Turn { .. } => unreachable!("rows that are passed over are loaded"),
            }
        }
    }

    pub(super) fn pass_over(&self, pass: &Pass, room: Room, whole: Span, asks: Option<Share>) {
        let inputs = self.sources.len();
        let mut roots: SmallVec<[Roots; 4]> = pass.combining.iter().map(|_| Roots::new()).collect();
        let only_picks =
            !pass.stores && pass.combining.iter().all(|&index| matches!(self.op.code[index].op, Code::Gather(..)));
        for &index in &pass.combining {
            let instr = &self.op.code[index];
            if let Code::Gather(..) = instr.op {
                let rows =
                    self.rows_of(&self.placement.places, room, whole, index, self.placement.places[inputs + index]);
                // SAFETY: a value of rows has a slot.
                unsafe { rows::nothing(held(instr.dtype), &rows) };
            }
        }
        let mut along = self.along(pass, room, whole);
        let asks = asks.filter(|_| !pass.tiles.steps.iter().any(Step::asks));
        let tile = if pass.tiles.in_place && asks.is_none() { pass.tiles.columns(whole.width) } else { TILE };
        for column in (0..whole.width).step_by(tile) {
            if column > 0 {
                along.advance(tile);
            }
            let mut operands = 0..0;
            let mut next = |count: usize| {
                operands = operands.end..operands.end + count;
                operands.clone()
            };
            let span = Span { column, columns: tile.min(whole.width - column), ..whole };
            if only_picks && !pass.combining.iter().any(|&index| self.picks_from(room, span, index)) {
                continue;
            }
            for (number, step) in pass.tiles.steps.iter().enumerate() {
                match *step {
                    Step::Load { input, slot } => self.load_tile(input, slot, room, span),
                    Step::Turn { .. } => unreachable!("rows that are passed over are loaded"),
                    Step::Compute { index, .. } if matches!(self.op.code[index].op, Code::Reduce(..)) => {
                        self.reduce_step(pass, step, along.places[next(1).start], span, &mut roots);
                    }
                    Step::Compute { index, .. } if pass.combining.contains(&index) => {
                        self.pick(&pass.tiles.places, room, span, index);
                    }
                    Step::Compute { index, to } => self.compute(&pass.tiles.places, room, span, index, to),
                    Step::Sum { .. } => unreachable!("sums of tiles are added up as those of rows"),
                    Step::Run { native, operands: ref places, ref asks, of_rows, ref steps, ref sums } => {
                        let (own, asked) = (next(places.len()), next(asks.places.len()));
                        if sums.is_empty() {
                            self.native_at(native, &along.places[own.start..asked.end], (of_rows, steps), span);
                        } else {
                            let code = (native, sums, pass);
                            self.native_with_sums(code, &along, (own, asked), span.columns, &mut roots);
                        }
                    }
                }
                if let Some(share) = asks {
                    self.ask_for(
                        room,
                        Span { start: whole.start + 1, ..span },
                        share.part(number, pass.tiles.steps.len()),
                    );
                }
            }
            if pass.stores {
                for k in (0..self.sinks.len()).filter(|&k| !self.sinks[k].of_rows && self.placement.stored[k]) {
                    self.store(&pass.tiles.places, k, room, span);
                }
            }
        }
        self.finish_combining(pass, roots, room, whole);
    }

    /// Stores what a pass has combined.
    pub(super) fn finish_combining(&self, pass: &Pass, roots: SmallVec<[Roots; 4]>, room: Room, row: Span) {
        for (&index, roots) in pass.combining.iter().zip(roots) {
            let instr = &self.op.code[index];
            let to = self.placement.places[self.sources.len() + index];
            let rows = self.rows_of(&self.placement.places, room, row, index, to);
            // SAFETY: a value of rows has a slot.
            unsafe {
                if let Code::Reduce(op, _) = instr.op {
                    rows::finish(op, held(instr.dtype), roots, rows.out);
                }
                if self.placement.rounded[index] {
                    ops::round(instr.dtype, &Tile { args: rows.args, out: rows.out, count: 1, level: self.level });
                }
            }
        }
    }

    /// The operands of the first tile of a row.
    fn along(&self, pass: &Pass, room: Room, row: Span) -> Along {
        let mut along = Along::default();
        for step in &pass.tiles.steps {
            match *step {
                Step::Run { ref operands, ref asks, .. } => {
                    operands.iter().for_each(|&place| along.push(self, room, place, row));
                    along.push_asks(self, room, &asks.places, row);
                }
                Step::Compute { index, .. } if matches!(self.op.code[index].op, Code::Reduce(..)) => {
                    along.push(self, room, pass.tiles.places[usize::from(self.op.code[index].args[0])], row);
                }
                _ => {}
            }
        }
        along
    }

    /// Combines the elements of a tile with those before.
    pub(super) fn reduce_step(&self, pass: &Pass, step: &Step, elements: *mut u8, span: Span, roots: &mut [Roots]) {
        let &Step::Compute { index, .. } = step else { unreachable!("a reduction") };
        let Code::Reduce(op, block) = self.op.code[index].op else { unreachable!("a reduction") };
        let args = [elements.cast_const(); 3];
        let out = std::ptr::null_mut();
        let rows = Rows { args, out, rows: 1, columns: span.columns, level: self.level, refused: &self.refused };
        // SAFETY: the elements were computed or loaded as their dtype is held.
        unsafe { rows::reduce_tile(op, block, held(self.op.code[index].dtype), &rows, &mut roots[pass.number(index)]) };
    }

    /// Takes the element of a tile that an index names, if it has it.
    fn pick(&self, places: &[Place], room: Room, span: Span, index: usize) {
        let instr = &self.op.code[index];
        let Code::Gather(dim, part_of) = instr.op else { unreachable!("{} picks nothing", instr.op.name()) };
        let rows = self.rows_of(places, room, span, index, self.placement.places[self.sources.len() + index]);
        let dtype: DType = self.op.dtype_of(instr.args[1]);
        // SAFETY: the arguments were computed or loaded as their dtypes are held.
        unsafe { rows::pick((dim, self.part_of(part_of, span)), held(instr.dtype), dtype, &rows) };
    }

    /// Whether a tile has the element that an instruction takes from the row.
    fn picks_from(&self, room: Room, span: Span, index: usize) -> bool {
        let instr = &self.op.code[index];
        let Code::Gather(dim, part_of) = instr.op else { return true };
        let rows =
            self.rows_of(&self.placement.places, room, span, index, self.placement.places[self.sources.len() + index]);
        // SAFETY: the index is a value of the row, and known.
        unsafe { rows.column(1, self.op.dtype_of(instr.args[1]), 0, dim, self.part_of(part_of, span)) }.is_some()
    }
}
