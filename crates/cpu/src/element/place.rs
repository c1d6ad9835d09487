//! Places for the registers of a region, and the order of its steps. They are found once for every region.

use super::ahead::{Asks, asked_of};
use super::cut::{TILE, goes_by_rows};
use super::native::{self, Native, Refused, Run, Stored};
use super::operands::{Goes, Lies, Written, is_half};
use super::ops::held;
use super::sums::{Sums, comes_along};
use super::units::{Unit, halve, repeat_cheap, units_of_region};
use super::wide::Wide;
use super::{Place, SEVERAL, Step, is_constant};
use crate::Level;
use crossbeam_utils::CachePadded;
use meshwork_graph::DType;
use meshwork_graph::ops::{BinaryOp, Code, Element, Fused, Instr, ReduceOp, UnaryOp};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, PoisonError, RwLock};

/// Where everything is while a tile runs, and what is done.
#[derive(Debug)]
pub(super) struct Placement {
    pub places: Vec<Place>,
    /// Instructions whose result is rounded at once, since others read it. Machine code does so by itself.
    pub rounded: Vec<bool>,
    /// Registers that are the same in every tile.
    pub fixed: Vec<u16>,
    pub steps: Vec<Step>,
    /// Machine code of runs.
    pub natives: Vec<Native>,
    /// For each output whether it is copied from its register's slot when a tile has been computed.
    pub stored: Vec<bool>,
    pub slots: usize,
    /// Bytes of the rows that are kept, behind the slots.
    pub kept: usize,
    /// Slot for the narrowed result where it is streamed.
    pub spare: usize,
    /// What is asked for before a tile is computed.
    pub asked: Vec<Place>,
    /// How rows are computed that are wider than a tile or lie beside each other.
    pub wide: Option<Wide>,
}

impl Placement {
    /// Whether machine code does everything in one run, from the inputs' memory, or what comes again and again of it, to that of the
    /// outputs: no register keeps tiles small then, between which memory would have nothing to do.
    pub fn is_one_run(&self) -> bool {
        let is_in_memory = |place: &Place| matches!(place, Place::Input(_) | Place::Output(_) | Place::Repeated { .. });
        let is_run = |step: &Step| matches!(step, Step::Run { operands, .. } if operands.iter().all(is_in_memory));
        self.wide.is_none() && self.steps.len() == 1 && is_run(&self.steps[0]) && !self.stored.contains(&true)
    }
}

/// A region as it is run.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Region<'a> {
    pub op: &'a Fused,
    pub lies: &'a [Lies],
    pub written: &'a [Written],
    pub level: Level,
}

/// A region that has been placed.
struct Known {
    op: Fused,
    lies: Vec<Lies>,
    written: Vec<Written>,
    level: Level,
    placement: Arc<Placement>,
}

/// Regions that are remembered, at most; when there are more, all are forgotten.
const MOST: usize = 4096;
/// Every kernel of a region writes to the lock: other statics, which all threads read, must not lie in its line.
static KNOWN: CachePadded<RwLock<Option<FxHashMap<u64, Known>>>> = CachePadded::new(RwLock::new(None));

/// The placement of a region.
pub(super) fn placement(region: Region) -> Arc<Placement> {
    let mut hasher = FxHasher::default();
    region.hash(&mut hasher);
    let hash = hasher.finish();
    let find = |known: &Option<FxHashMap<u64, Known>>| {
        let known = known.as_ref()?.get(&hash)?;
        (known.region() == region).then(|| known.placement.clone())
    };
    if let Some(placement) = find(&KNOWN.read().unwrap_or_else(PoisonError::into_inner)) {
        return placement;
    }
    let placement = Arc::new(Placing::new(region).place());
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(hash, Known::new(region, placement.clone()));
    placement
}

impl Known {
    fn new(region: Region, placement: Arc<Placement>) -> Self {
        let Region { op, lies, written, level } = region;
        Known { op: op.clone(), lies: lies.into(), written: written.into(), level, placement }
    }

    fn region(&self) -> Region<'_> {
        Region { op: &self.op, lies: &self.lies, written: &self.written, level: self.level }
    }
}

/// Gives out slots.
#[derive(Default)]
pub(super) struct Slots {
    pub count: usize,
    pub free: Vec<usize>,
}

impl Slots {
    pub fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }
}

/// Finds the placement of a region.
pub(super) struct Placing<'a> {
    pub region: Region<'a>,
    pub placement: Placement,
}

impl<'a> Placing<'a> {
    fn new(region: Region<'a>) -> Self {
        let op = region.op;
        let mut is_read = vec![false; op.code.len()];
        let reads = op.code.iter().flat_map(|instr| instr.reads());
        reads.filter_map(|&arg| usize::from(arg).checked_sub(op.inputs.len())).for_each(|index| is_read[index] = true);
        let rounded = |(index, read): (usize, bool)| {
            let instr = &op.code[index];
            read && is_half(instr.dtype) && !is_exact(instr.op)
        };
        let placement = Placement {
            places: vec![Place::Slot(0); op.inputs.len() + op.code.len()],
            rounded: is_read.into_iter().enumerate().map(rounded).collect(),
            fixed: vec![],
            steps: vec![],
            natives: vec![],
            stored: vec![],
            slots: 0,
            kept: 0,
            spare: 0,
            asked: asked_of(region),
            wide: None,
        };
        Placing { region, placement }
    }

    fn place(mut self) -> Placement {
        let space = &self.region.op.space;
        if space.columns() > TILE || space.is_beside() {
            self.placement.wide = Some(self.place_wide());
            return self.placement;
        }
        let (mut units, mut with_sums) = (self.units(true), true);
        loop {
            let mut attempt = Placing::new(self.region);
            match attempt.place_units(&units, with_sums) {
                Ok(()) => return attempt.placement,
                // What loops add up is in memory then, and not computed again.
                Err((_, Refused::Registers)) if with_sums => (units, with_sums) = (self.units(false), false),
                Err((number, Refused::Registers)) => halve(&mut units, number),
                // Loops for everything.
                Err((_, Refused::Memory)) => {
                    (units, with_sums) = (units_of_region(self.region.op, Level::Portable), false)
                }
            }
        }
    }

    /// The units of the region, with sums that come along with machine code or without.
    fn units(&self, with_sums: bool) -> Vec<Unit> {
        let Region { op, level, .. } = self.region;
        let mut units = units_of_region(op, level);
        if goes_by_rows(op, level) {
            let sums = self.sums_of(&units, with_sums);
            repeat_cheap(&mut units, op, &sums);
        }
        units
    }

    /// Whether a register is an input that machine code can read and loops must have widened.
    fn is_narrow(&self, register: usize) -> bool {
        let input = self.region.op.inputs.get(register);
        input.is_some_and(|input| self.region.lies[register] == Lies::Dense && is_half(input.dtype))
    }

    /// Whether a register is an input of one element for every tile that machine code can read there.
    fn is_one(&self, register: usize) -> bool {
        let is_one = |lies: &Lies| matches!(lies, Lies::One | Lies::Constant);
        self.region.lies.get(register).is_some_and(is_one) && self.region.op.inputs[register].dtype == DType::F32
    }

    /// Gives every register a place. A slot is used again after the last unit that reads it. On failure the number of
    /// the unit that could not be compiled.
    fn place_units(&mut self, units: &[Unit], with_sums: bool) -> Result<(), (usize, Refused)> {
        let Region { op, lies, written, .. } = self.region;
        let (inputs, count) = (op.inputs.len(), self.placement.places.len());
        let sums = self.sums_of(units, with_sums);
        let reads = |number: usize| if comes_along(units, number, &sums) { vec![] } else { units[number].reads(op) };
        let reads: Vec<Vec<u16>> = (0..units.len()).map(reads).collect();
        // The slots of the lanes of sums.
        let mut lanes: SmallVec<[(usize, usize); 4]> = SmallVec::new();
        // Machine code of elements, by its step.
        let mut runs: Vec<(usize, Run)> = vec![];
        let mut last_use = vec![None; count];
        // Whether something reads it as it is held in a slot: loops, and machine code that spreads it over rows.
        let mut as_held = vec![false; count];
        for (number, unit) in units.iter().enumerate() {
            for &register in &reads[number] {
                last_use[usize::from(register)] = Some(number);
                as_held[usize::from(register)] |= match unit.run(&sums[number]) {
                    None => true,
                    Some(run) => op.of_rows(register) && !self.are_of_rows(run),
                };
            }
        }
        let mut slots = Slots::default();
        let mut loaded = vec![false; count];
        // Slots of fixed registers are never given to others, so they come first.
        for register in 0..count {
            let is_output = op.outputs.contains(&(register as u16));
            let is_one = self.is_one(register) && !as_held[register] && !is_output;
            let is_same = match lies.get(register) {
                Some(Lies::Constant) => !is_one,
                Some(Lies::Repeated) => true,
                Some(Lies::Row) => !as_held[register] && !is_output,
                _ => false,
            };
            let is_fixed = is_same || is_constant(op, register as u16);
            if is_fixed && (last_use[register].is_some() || is_output) {
                let slot = slots.take();
                self.placement.places[register] = match lies.get(register) {
                    Some(Lies::Repeated) => Place::Repeated { input: register, slot },
                    _ => Place::Slot(slot),
                };
                self.placement.fixed.push(register as u16);
                last_use[register] = None;
            }
            let is_input = lies.get(register) == Some(&Lies::Dense);
            let is_here = is_input && !(self.is_narrow(register) && as_held[register]) || is_one;
            if is_here {
                self.placement.places[register] = Place::Input(register);
            }
            loaded[register] = is_fixed || is_here;
        }
        self.placement.stored = vec![true; written.len()];
        for (number, unit) in units.iter().enumerate() {
            for &register in &reads[number] {
                let register = usize::from(register);
                if loaded[register] {
                    continue;
                }
                loaded[register] = true;
                if lies[register] == Lies::Turned {
                    self.placement.places[register] = Place::Turned(register);
                    self.placement.steps.push(Step::Turn { input: register });
                } else {
                    let slot = slots.take();
                    self.placement.places[register] = Place::Slot(slot);
                    self.placement.steps.push(Step::Load { input: register, slot });
                }
            }
            let mut results: SmallVec<[u16; 4]> = SmallVec::new();
            for &index in unit.instructions() {
                let register = (inputs + index) as u16;
                let sink = op.outputs.iter().position(|&output| output == register);
                let is_read = last_use[usize::from(register)].is_some();
                if !is_read && sink.is_none() && matches!(unit, Unit::Run(_)) {
                    continue;
                }
                let direct = sink.filter(|&k| self.is_direct(k, unit, number, &last_use));
                // Sums are of rows that are not cut.
                let direct = direct.filter(|&k| written[k].goes != Goes::CutRows || sums[number].is_empty());
                self.placement.places[usize::from(register)] = match direct {
                    Some(k) => Place::Output(k),
                    None => Place::Slot(slots.take()),
                };
                if let Some(k) = sink {
                    self.placement.stored[k] = direct.is_none();
                }
                loaded[usize::from(register)] = true;
                results.push(register);
            }
            if let Some(run) = unit.run(&sums[number]) {
                let results = if run.is_empty() { &[] } else { &results[..] };
                let (places, operands) = (&self.placement.places, (&reads[number][..], results));
                let compiled = self.compiled(places, run, operands, &sums[number]);
                let (native, mut step) = compiled.map_err(|refused| (number, refused))?;
                if !self.are_of_rows(run) {
                    runs.push((self.placement.steps.len(), self.run(places, run, operands, &sums[number])));
                }
                if let Step::Run { operands, steps, .. } = &mut step {
                    for &index in &sums[number].instructions {
                        let slot = slots.take();
                        lanes.push((index, slot));
                        operands.push(Place::Slot(slot));
                        steps.push(0);
                    }
                }
                self.placement.natives.push(native);
                self.placement.steps.push(step);
            }
            if let &Unit::One(index) = unit {
                debug_assert!(
                    reads[number].iter().all(|&r| units.iter().filter(|unit| unit.computes(op, r)).count() < 2),
                    "a loop reads what the last run leaves"
                );
                let to = self.placement.places[inputs + index];
                self.placement.steps.push(match lanes.iter().find(|(sum, _)| *sum == index) {
                    Some(&(_, lanes)) => {
                        slots.free.push(lanes);
                        Step::Sum { index, lanes, to }
                    }
                    None => Step::Compute { index, to },
                });
            }
            let is_kept = |register: u16| {
                let sink = op.outputs.iter().position(|&output| output == register);
                sink.is_some_and(|k| self.placement.stored[k])
            };
            for &register in reads[number].iter().chain(&results) {
                let ends = last_use[usize::from(register)].is_none_or(|last| last == number);
                if let Place::Slot(slot) = self.placement.places[usize::from(register)]
                    && ends
                    && !self.placement.fixed.contains(&register)
                    && !is_kept(register)
                {
                    slots.free.push(slot);
                }
            }
        }
        self.placement.spare = slots.take();
        self.placement.slots = slots.count;
        if op.space.columns() > 1 && self.placement.steps.len() >= SEVERAL {
            self.ask_for_tiles(&runs);
        }
        Ok(())
    }

    /// Whether a unit writes output number `k` where it belongs. Machine code has read all its inputs' elements by then.
    pub(super) fn is_direct(&self, k: usize, unit: &Unit, number: usize, last_use: &[Option<usize>]) -> bool {
        let Region { op, written, .. } = self.region;
        let register = op.outputs[k];
        let is_over_by = |input: &u16| last_use[usize::from(*input)].is_none_or(|last| last <= number);
        let is_narrow = is_half(op.dtype_of(register));
        let is_read = last_use[usize::from(register)].is_some();
        match unit {
            Unit::One(_) => written[k].over.is_empty() && !written[k].streams() && !is_narrow,
            Unit::Run(_) if written[k].streams() => {
                written[k].goes != Goes::Streamed && op.dtype_of(register) == DType::F32 && !is_read
            }
            Unit::Run(_) => written[k].over.iter().all(is_over_by) && !(is_narrow && is_read),
        }
    }

    /// Whether the instructions of a run compute values of rows.
    fn are_of_rows(&self, run: &[usize]) -> bool {
        run.iter().any(|&index| self.region.op.code[index].of_rows)
    }

    /// Machine code of a run, the next of the placement, and the step that runs it.
    pub(super) fn compiled(
        &self,
        places: &[Place],
        run: &[usize],
        (reads, results): (&[u16], &[u16]),
        sums: &Sums,
    ) -> Result<(Native, Step), Refused> {
        let native = native::compile(&self.run(places, run, (reads, results), sums), self.region.level)?;
        let (Region { op, lies, .. }, placement) = (self.region, &self.placement);
        let registers = || reads.iter().chain(results);
        let of_rows = self.are_of_rows(run);
        let is_spread = |register: u16| op.of_rows(register) && !of_rows;
        let size = |register: u16| match (places[usize::from(register)], op.dtype_of(register)) {
            (Place::Input(_) | Place::Output(_), dtype) => dtype.size(),
            (_, dtype) => held(dtype).size(),
        };
        let is_row =
            |register: u16| lies.get(usize::from(register)) == Some(&Lies::Row) && placement.fixed.contains(&register);
        let step = |&register: &u16| match register {
            _ if is_spread(register) => size(register) as isize,
            _ if is_row(register) || self.is_one(register.into()) => 0,
            _ => (size(register) * op.space.columns()) as isize,
        };
        let by_rows = !sums.is_empty() || registers().any(|&register| is_spread(register) || is_row(register));
        let place = |&register: &u16| places[usize::from(register)];
        let (operands, steps): (Vec<Place>, Vec<isize>) = if op.space.is_beside() {
            let is_one = |register: u16| op.of_rows(register) || placement.fixed.contains(&register);
            let step = |&register: &u16| if is_one(register) { 0 } else { size(register) as isize };
            // What terms are combined with is read and written.
            let combined = || sums.instructions.iter().map(|&index| (Place::Combined(index), 0));
            let of = |registers: &[u16]| registers.iter().map(|r| (place(r), step(r))).collect::<Vec<_>>();
            of(reads).into_iter().chain(combined()).chain(of(results)).chain(combined()).unzip()
        } else {
            (registers().map(place).collect(), registers().filter(|_| by_rows).map(step).collect())
        };
        let (number, sums) = (placement.natives.len(), sums.clone());
        Ok((native, Step::Run { native: number, operands, asks: Asks::NOTHING, of_rows, steps, sums }))
    }

    /// What is compiled: registers are numbered anew.
    pub(super) fn run(&self, places: &[Place], run: &[usize], (reads, results): (&[u16], &[u16]), sums: &Sums) -> Run {
        let op = self.region.op;
        let inputs = op.inputs.len();
        let of_rows = self.are_of_rows(run);
        let stored = |register: u16| match places[usize::from(register)] {
            _ if op.of_rows(register) && !of_rows && !op.space.is_beside() => Some(Stored::One),
            Place::Input(i) if self.is_one(i) => Some(Stored::One),
            Place::Output(k) if self.region.written[k].streams() => Some(Stored::F32PastCaches),
            Place::Input(_) | Place::Output(_) => Stored::of(op.dtype_of(register)),
            _ => Stored::held(op.dtype_of(register)),
        };
        let cuts_rows = |&register: &u16| match places[usize::from(register)] {
            Place::Output(k) => self.region.written[k].goes == Goes::CutRows,
            _ => false,
        };
        let mut numbers: Vec<u16> = reads.to_vec();
        // What terms are combined with has no registers in the region.
        let is_beside = op.space.is_beside();
        let combined = if is_beside { &sums.instructions[..] } else { &[] };
        numbers.extend(combined.iter().map(|_| u16::MAX));
        let mut code = vec![];
        for &index in run {
            let mut instr = op.code[index].clone();
            for i in 0..instr.op.arity() {
                let register = instr.args[i];
                if !numbers.contains(&register) {
                    // A constant, since everything else has been read or computed.
                    code.push(op.code[usize::from(register) - inputs].clone());
                    numbers.push(register);
                }
                instr.args[i] = numbers.iter().position(|&known| known == register).expect("it is there") as u16;
            }
            code.push(instr);
            numbers.push((inputs + index) as u16);
        }
        let number = |register: u16| numbers.iter().position(|&known| known == register).expect("it is there") as u16;
        let inputs = reads.iter().map(|&register| stored(register).expect("a simple operand"));
        let inputs: Vec<Stored> = inputs.chain(combined.iter().map(|_| Stored::F32)).collect();
        let outputs = results.iter().map(|&register| (number(register), stored(register).expect("a simple result")));
        let mut outputs: Vec<(u16, Stored)> = outputs.collect();
        for (i, &index) in combined.iter().enumerate() {
            let Code::Reduce(reduce, _) = op.code[index].op else { unreachable!("it combines terms") };
            outputs.push(((inputs.len() + code.len()) as u16, Stored::F32));
            let args = [(reads.len() + i) as u16, number(op.code[index].args[0]), 0];
            code.push(Instr { op: Element::Binary(binary(reduce)).into(), args, of_rows: false, dtype: DType::F32 });
        }
        let sums_of = if is_beside { &[] } else { &sums.instructions[..] };
        Run {
            inputs,
            code,
            outputs,
            sums: sums_of.iter().map(|&index| number(op.code[index].args[0])).collect(),
            block: sums.block,
            asks: vec![],
            cuts_rows: results.iter().any(cuts_rows),
        }
    }
}

/// How a reduction combines two terms.
fn binary(op: ReduceOp) -> BinaryOp {
    match op {
        ReduceOp::Sum => BinaryOp::Add,
        ReduceOp::Prod => BinaryOp::Mul,
        ReduceOp::Max => BinaryOp::Max,
        ReduceOp::Min => BinaryOp::Min,
    }
}

/// Whether the result of narrow floats needs no rounding.
pub(super) fn is_exact(op: Code) -> bool {
    use UnaryOp::*;
    matches!(
        op,
        Code::Element(
            Element::Select
                | Element::Unary(Neg | Abs | Sign | Floor | Ceil | Round | Relu)
                | Element::Binary(BinaryOp::Max | BinaryOp::Min)
        ) | Code::Reduce(ReduceOp::Max | ReduceOp::Min, _)
            | Code::Spread
            | Code::Gather(..)
            | Code::Scatter(..)
    )
}
