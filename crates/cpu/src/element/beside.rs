//! Regions whose rows lie beside each other: the elements of one are far apart, and those of its neighbours are next to them. So
//! many neighbours at once are passed over as a wide row is, some elements of each at a time; a value of rows is one number
//! for each of them, and to spread it is to read it again for every element.

use super::bundle::{Bundle, Bundles};
use super::ops::{self, Held, Tile, held};
use super::rows::by_held;
use super::tile::Room;
use super::wide::{Pass, Wide};
use super::{Place, Plan, Step, native};
use crate::reduce::{Combine, combine};
use meshwork_graph::ops::{Code, ReduceOp};
use smallvec::SmallVec;
use std::ops::Range;

/// What the instructions of a pass combine.
type Combined = SmallVec<[Box<dyn Combine>; 4]>;

/// Where the elements of an operand begin, and bytes from those of one column to those of the next.
#[derive(Clone, Copy)]
struct Columns {
    first: *mut u8,
    step: isize,
}

impl Columns {
    fn column(self, column: usize) -> *mut u8 {
        self.first.wrapping_offset(column as isize * self.step)
    }
}

impl Plan<'_> {
    /// Computes some bundles of rows.
    pub(super) fn bundles(&self, wide: &Wide, cut: Bundles, room: Room, bundles: Range<usize>) {
        let of_pass = |pass: &Pass| pass.combining.iter().map(|&index| self.combined(index, cut)).collect();
        let mut combined: Vec<Combined> = wide.passes.iter().map(of_pass).collect();
        for number in bundles.clone() {
            let next = if number + 1 < bundles.end { number + 1 } else { number };
            self.bundle(wide, cut, room, [number, next].map(|number| cut.bundle(number)), &mut combined);
        }
    }

    /// Room for what an instruction combines.
    fn combined(&self, index: usize, cut: Bundles) -> Box<dyn Combine> {
        let instr = &self.op.code[index];
        let Code::Reduce(op, block) = instr.op else { unreachable!("{} combines nothing", instr.op.name()) };
        by_held!(held(instr.dtype), T => combine::<T>(op, cut.width, [cut.columns, block]))
    }

    /// Computes a bundle, and asks for the next one.
    fn bundle(&self, wide: &Wide, cut: Bundles, room: Room, bundles: [Bundle; 2], combined: &mut [Combined]) {
        let [bundle, _] = bundles;
        let places = &self.placement.places;
        self.values_of(&wide.loads, room, bundle);
        for (pass, combined) in wide.passes.iter().zip(combined) {
            self.values_of(&pass.before, room, bundle);
            combined.iter_mut().for_each(|sums| sums.start(bundle.rows));
            let adds =
                |&index: &usize| matches!(self.op.code[index].op, Code::Reduce(ReduceOp::Sum | ReduceOp::Prod, _));
            for columns in cut.tiles(bundle, pass.combining.iter().any(adds)) {
                self.columns(pass, room, bundles, columns, combined);
            }
            for (&index, sums) in pass.combining.iter().zip(combined.iter_mut()) {
                let out = self.operand(places, room, bundle, 0, self.sources.len() + index).first;
                let tile = Tile { args: [out.cast_const(); 3], out, count: bundle.rows, level: self.level };
                // SAFETY: a value of rows has a slot.
                unsafe {
                    sums.finish(self.level, out);
                    self.round(index, &tile);
                }
            }
        }
        self.values_of(&wide.after, room, bundle);
        for sink in self.sinks.iter().filter(|sink| sink.of_rows) {
            let from = self.operand(places, room, bundle, 0, sink.register).first;
            let out = sink.first.pointer().wrapping_add(bundle.first_row * sink.dtype.size());
            let tile = Tile { args: [from.cast_const(); 3], out, count: bundle.rows, level: self.level };
            // SAFETY: the slot holds the values, for which the output has room.
            unsafe { ops::store(sink.dtype, &tile) };
        }
    }

    /// Loads or computes values of rows.
    fn values_of(&self, steps: &[Step], room: Room, bundle: Bundle) {
        for step in steps {
            match *step {
                Step::Load { input, slot } => {
                    self.load(input, self.slot(room, slot), bundle.first_row, bundle.rows, room);
                }
                Step::Compute { index, to } => {
                    self.instruction(&self.placement.places, room, bundle, 0..1, (index, to))
                }
                Step::Run { native, ref operands, .. } => {
                    let first = |&place: &Place| self.operand_at(room, bundle, 0, (place, 0)).first;
                    let operands: SmallVec<[*mut u8; 16]> = operands.iter().map(first).collect();
                    // SAFETY: the operands hold the values as `place.rs` has said.
                    unsafe { self.placement.natives[native].run(&operands, native::Rows::ONE, bundle.rows) };
                }
                Step::Turn { .. } | Step::Sum { .. } => unreachable!("values of rows are loaded or computed"),
            }
        }
    }

    /// One tile of a pass.
    fn columns(&self, pass: &Pass, room: Room, bundles: [Bundle; 2], columns: Range<usize>, combined: &mut Combined) {
        let [bundle, next] = bundles;
        let places = &pass.tiles.places;
        for step in &pass.tiles.steps {
            match *step {
                Step::Load { input, slot } => {
                    let to =
                        self.operand_at(room, bundle, 0, (Place::Slot(slot), held(self.sources[input].dtype).size()));
                    for (i, column) in columns.clone().enumerate() {
                        self.load(input, to.column(i), bundle.element(column), bundle.rows, room);
                    }
                }
                Step::Compute { index, .. } if matches!(self.op.code[index].op, Code::Reduce(..)) => {
                    let terms = self.operand(places, room, bundle, columns.start, self.op.code[index].args[0].into());
                    let sums = &mut combined[pass.number(index)];
                    // SAFETY: the terms were computed or loaded as their dtype is held.
                    unsafe { sums.take(self.level, terms.first, terms.step, columns.len()) };
                }
                Step::Compute { index, to } => self.instruction(places, room, bundle, columns.clone(), (index, to)),
                Step::Run { native, ref operands, ref asks, ref steps, ref sums, .. } => {
                    let (mut addresses, mut bytes) = (SmallVec::<[*mut u8; 16]>::new(), SmallVec::<[isize; 16]>::new());
                    let operands = operands.iter().map(|&place| (place, bundle));
                    let asked = asks.places.iter().map(|&place| (place, next));
                    for ((place, bundle), &size) in operands.chain(asked).zip(steps) {
                        let (first, step) = match place {
                            Place::Combined(index) => combined[pass.number(index)].lanes(),
                            place => {
                                let operand = self.operand_at(room, bundle, columns.start, (place, size as usize));
                                (operand.first, operand.step)
                            }
                        };
                        addresses.push(first);
                        bytes.push(step);
                    }
                    let rows = native::Rows { count: columns.len(), steps: &bytes };
                    // SAFETY: the operands hold the elements as `place.rs` has said.
                    unsafe { self.placement.natives[native].run(&addresses, rows, bundle.rows) };
                    for &index in &sums.instructions {
                        combined[pass.number(index)].took(self.level, columns.len());
                    }
                }
                Step::Turn { .. } | Step::Sum { .. } => {
                    unreachable!("rows that are passed over are loaded and added up")
                }
            }
        }
        let stored = |&k: &usize| pass.stores && !self.sinks[k].of_rows && self.placement.stored[k];
        for sink in (0..self.sinks.len()).filter(stored).map(|k| &self.sinks[k]) {
            let from = self.operand(places, room, bundle, columns.start, sink.register);
            for (i, column) in columns.clone().enumerate() {
                let out = sink.first.pointer().wrapping_add(bundle.element(column) * sink.dtype.size());
                let args = [from.column(i).cast_const(); 3];
                // SAFETY: the slot holds the elements, for which the output has room.
                unsafe { ops::store(sink.dtype, &Tile { args, out, count: bundle.rows, level: self.level }) };
            }
        }
    }

    /// Runs an instruction on elements of some columns, or on values of rows.
    fn instruction(
        &self,
        places: &[Place],
        room: Room,
        bundle: Bundle,
        columns: Range<usize>,
        (index, to): (usize, Place),
    ) {
        let instr = &self.op.code[index];
        let operand = |register: u16| self.operand(places, room, bundle, columns.start, register.into());
        let first = operand(instr.args[0]);
        let mut args = [first; 3];
        for (arg, &register) in args.iter_mut().zip(instr.reads()) {
            *arg = operand(register);
        }
        let size = if instr.of_rows { 0 } else { held(instr.dtype).size() };
        let out = self.operand_at(room, bundle, columns.start, (to, size));
        for i in 0..columns.len() {
            let args = args.map(|arg| arg.column(i).cast_const());
            let tile = Tile { args, out: out.column(i), count: bundle.rows, level: self.level };
            // SAFETY: the arguments were computed or loaded as their dtypes are held; the result has a place of its own.
            unsafe {
                match instr.op {
                    Code::Element(op) => self.element(op, index, &tile),
                    Code::Spread => tile.args[0].copy_to_nonoverlapping(tile.out, bundle.rows * size),
                    _ => unreachable!("{} is no instruction of elements", instr.op.name()),
                }
            }
        }
    }

    /// Where a register is for a bundle, from a column on.
    fn operand(&self, places: &[Place], room: Room, bundle: Bundle, column: usize, register: usize) -> Columns {
        let number = register as u16;
        let is_one = self.op.of_rows(number) || self.placement.fixed.contains(&number);
        let size = if is_one { 0 } else { held(self.op.dtype_of(number)).size() };
        self.operand_at(room, bundle, column, (places[register], size))
    }

    /// Where elements are for a bundle, from a column on: of so many bytes each in a register's own room, none of what is the same for
    /// all columns.
    fn operand_at(&self, room: Room, bundle: Bundle, column: usize, (place, size): (Place, usize)) -> Columns {
        let together = (bundle.rows * size) as isize;
        match place {
            Place::Slot(slot) => Columns { first: self.slot(room, slot), step: together },
            Place::Kept { at, .. } => {
                let rows = self.slot(room, self.placement.slots);
                Columns { first: rows.wrapping_add(at).wrapping_offset(column as isize * together), step: together }
            }
            Place::Input(i) => {
                let source = &self.sources[i];
                let element = if source.of_rows { bundle.first_row } else { bundle.element(column) };
                let step = if size > 0 { source.step.unwrap_or(0) * source.dtype.size() as isize } else { 0 };
                Columns { first: source.address(element), step }
            }
            Place::Output(k) => {
                let (sink, size) = (&self.sinks[k], self.sinks[k].dtype.size());
                let first = sink.first.pointer().wrapping_add(bundle.element(column) * size);
                Columns { first, step: (bundle.inner * size) as isize }
            }
            Place::Turned(_) | Place::Repeated { .. } | Place::Combined(_) => unreachable!("it is found otherwise"),
        }
    }
}
