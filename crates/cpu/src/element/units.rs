//! The order of a region's instructions: what machine code can do comes together.

use super::sums::{Sums, comes_along};
use super::{COSTLY, is_constant, native};
use crate::Level;
use meshwork_graph::ops::{Code, Fused};

/// What is done at once.
#[derive(Debug)]
pub(super) enum Unit {
    /// An instruction, by its loop.
    One(usize),
    /// Instructions on the same elements, as machine code.
    Run(Vec<usize>),
}

impl Unit {
    pub fn instructions(&self) -> &[usize] {
        match self {
            Unit::One(index) => std::slice::from_ref(index),
            Unit::Run(run) => run,
        }
    }

    /// Whether a register is the result of one of its instructions.
    pub fn computes(&self, op: &Fused, register: u16) -> bool {
        let index = usize::from(register).checked_sub(op.inputs.len());
        index.is_some_and(|index| self.instructions().contains(&index))
    }

    /// The registers that it reads and does not compute itself, each once. Machine code has constants in itself.
    pub fn reads(&self, op: &Fused) -> Vec<u16> {
        let mut reads = vec![];
        for &arg in self.instructions().iter().flat_map(|&index| op.code[index].reads()) {
            let is_own = self.computes(op, arg) || matches!(self, Unit::Run(_)) && is_constant(op, arg);
            if !is_own && !reads.contains(&arg) {
                reads.push(arg);
            }
        }
        reads
    }
}

/// The units of a region. Constants belong to none.
pub(super) fn units_of_region(op: &Fused, level: Level) -> Vec<Unit> {
    let inputs = op.inputs.len();
    let known: Vec<bool> = (0..inputs + op.code.len()).map(|r| r < inputs || is_constant(op, r as u16)).collect();
    let waiting = (0..op.code.len()).filter(|&index| !known[inputs + index]).collect();
    // Machine code that goes from row to row reads the value of each.
    let is_simple = match op.space.columns() >= native::least_row(level) {
        true => native::is_simple_in_a_row,
        false => native::is_simple,
    };
    units_of(op, waiting, known, &|index| is_simple(op, &op.code[index], level))
}

/// The units of some instructions of a region, of which some registers are known; `is_simple` says which can be part of a run.
pub(super) fn units_of(
    op: &Fused,
    mut waiting: Vec<usize>,
    mut known: Vec<bool>,
    is_simple: &dyn Fn(usize) -> bool,
) -> Vec<Unit> {
    let mut units = vec![];
    while !waiting.is_empty() {
        for of_rows in [true, false] {
            let run = take(&mut waiting, &mut known, op, |index| op.code[index].of_rows == of_rows && is_simple(index));
            units.extend((!run.is_empty()).then_some(Unit::Run(run)));
        }
        let others = take(&mut waiting, &mut known, op, |index| !is_simple(index));
        units.extend(others.into_iter().map(Unit::One));
    }
    units
}

/// Has each run of elements compute by itself what another one has computed, where that costs less than moving a tile to the second
/// cache and back; there are these sums that machine code adds up.
pub(super) fn repeat_cheap(units: &mut Vec<Unit>, op: &Fused, sums: &[Sums]) {
    let computed = |register: &u16| usize::from(*register).checked_sub(op.inputs.len());
    // Whether it is in memory anyway: results, and what loops read and compute.
    let mut in_memory = vec![false; op.code.len()];
    op.outputs.iter().filter_map(computed).for_each(|index| in_memory[index] = true);
    let is_loop = |&number: &usize| matches!(units[number], Unit::One(_)) && !comes_along(units, number, sums);
    for unit in (0..units.len()).filter(is_loop).map(|number| &units[number]) {
        unit.reads(op).iter().filter_map(computed).for_each(|index| in_memory[index] = true);
        unit.instructions().iter().for_each(|&index| in_memory[index] = true);
    }
    // What has to be computed for a value of elements that is not in memory, if that is cheap.
    let cheap = |index: usize| {
        let (mut chain, mut cost) = (vec![index], 0);
        let mut next = 0;
        while let Some(&index) = chain.get(next) {
            let instr = &op.code[index];
            cost += match instr.op {
                Code::Element(element) => element.cost(op.dtype_of(instr.args[0])),
                Code::Spread => 0,
                _ => return None,
            };
            let others =
                instr.reads().iter().filter(|&&arg| !op.of_rows(arg) && !is_constant(op, arg)).filter_map(computed);
            let others: Vec<usize> = others.filter(|&other| !in_memory[other] && !chain.contains(&other)).collect();
            chain.extend(others);
            next += 1;
        }
        (cost < COSTLY).then_some(chain)
    };
    for unit in units.iter_mut() {
        let reads = unit.reads(op);
        let Unit::Run(run) = unit else { continue };
        if op.code[run[0]].of_rows {
            continue;
        }
        let of_elements = reads.iter().filter(|&&register| !op.of_rows(register)).filter_map(computed);
        run.extend(of_elements.filter(|&index| !in_memory[index]).filter_map(cheap).flatten());
        run.sort_unstable();
        run.dedup();
    }
    // What nobody needs any more.
    let mut wanted = in_memory;
    for unit in units.iter_mut().rev() {
        let is_loop = matches!(unit, Unit::One(_));
        for &index in unit.instructions().iter().rev() {
            if is_loop || wanted[index] {
                op.code[index].reads().iter().filter_map(computed).for_each(|arg| wanted[arg] = true);
            }
        }
        if let Unit::Run(run) = unit {
            run.retain(|&index| wanted[index]);
        }
    }
    units.retain(|unit| !unit.instructions().is_empty());
}

/// Makes two runs of one that has too many values.
pub(super) fn halve(units: &mut Vec<Unit>, number: usize) {
    let Unit::Run(run) = &mut units[number] else { unreachable!("only runs are compiled") };
    let rest = run.split_off(run.len() / 2);
    units.insert(number + 1, Unit::Run(rest));
}

/// Takes all instructions of a kind whose operands are known, and those that are known by then.
fn take(waiting: &mut Vec<usize>, known: &mut [bool], op: &Fused, kind: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut taken = vec![];
    waiting.retain(|&index| {
        let is_ready = op.code[index].reads().iter().all(|&arg| known[usize::from(arg)]);
        let takes = is_ready && kind(index);
        if takes {
            known[op.inputs.len() + index] = true;
            taken.push(index);
        }
        !takes
    });
    taken
}
