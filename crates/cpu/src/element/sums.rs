//! Sums that machine code adds up: along with their terms, which need not lie in memory then, or of an input.

use super::cut::TILE;
use super::ops::held;
use super::place::Placing;
use super::rows::{GROUP, Roots, push_sums};
use super::units::Unit;
use super::wide::{Along, Pass};
use super::{Plan, Step, native};
use crate::element::ops::Held;
use crate::reduce::Lanes;
use meshwork_graph::canonical::LANES;
use meshwork_graph::ops::{Code, ReduceOp};
use smallvec::SmallVec;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Sums that come along, at most.
const MOST: usize = 4;

/// The sums that machine code adds up.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    /// The instructions, whose terms it reads or computes.
    pub instructions: SmallVec<[usize; 2]>,
    /// Terms of a block of each.
    pub block: usize,
}

impl Placing<'_> {
    /// The sums that the machine code of each unit can add up: those of what it computes, or an input's own. Of rows that lie beside
    /// each other it combines terms in any way. None where they are not to come along.
    pub(super) fn sums_of(&self, units: &[Unit], come_along: bool) -> Vec<Sums> {
        let op = self.region.op;
        let has_code = native::has_code(self.region.level);
        let mut sums = vec![Sums::default(); units.len()];
        if !come_along {
            return sums;
        }
        for index in units.iter().filter_map(|unit| if let &Unit::One(index) = unit { Some(index) } else { None }) {
            let Code::Reduce(reduce, block) = op.code[index].op else { continue };
            // Tiles of wide rows are whole blocks anyway.
            let is_beside = op.space.is_beside();
            let is_long = op.space.columns() >= native::least_row(self.region.level);
            let has_lanes = block.is_multiple_of(LANES) || block >= op.space.columns();
            let fits = is_long && has_lanes && op.space.columns().min(TILE) <= GROUP * block;
            let fits = is_beside || fits && reduce == ReduceOp::Sum;
            let block = block.next_multiple_of(LANES);
            let term = usize::from(op.code[index].args[0]).checked_sub(op.inputs.len());
            let computes = |unit: &Unit| match (unit, term) {
                (Unit::Run(run), Some(term)) => run.contains(&term),
                // Loops over wide rows wait for memory less.
                (&Unit::One(own), None) => own == index && has_code && (is_beside || op.space.columns() <= TILE),
                _ => false,
            };
            if let Some(number) = units.iter().position(computes)
                && (sums[number].is_empty() || sums[number].block == block || is_beside)
                && sums[number].instructions.len() < MOST
                && fits
                && held(op.code[index].dtype) == Held::F32
            {
                sums[number].instructions.push(index);
                sums[number].block = block;
            }
        }
        sums
    }
}

impl Unit {
    /// The instructions that are machine code, with these sums; none are needed for the sum of an input.
    pub(super) fn run(&self, sums: &Sums) -> Option<&[usize]> {
        match self {
            Unit::Run(run) => Some(run),
            Unit::One(_) => (!sums.is_empty()).then_some(&[]),
        }
    }
}

/// Whether a unit is a sum that comes along with the code of another one.
pub(super) fn comes_along(units: &[Unit], number: usize, sums: &[Sums]) -> bool {
    let has = |sums: &Sums| matches!(&units[number], Unit::One(index) if sums.instructions.contains(index));
    sums[number].is_empty() && sums.iter().any(has)
}

impl Sums {
    pub fn is_empty(&self) -> bool {
        self.instructions.is_empty()
    }

    /// Columns that are computed at once, at most.
    pub fn tile(&self) -> usize {
        GROUP * self.block
    }
}

impl Step {
    /// The sums that come along with it, if there are any.
    pub fn sums(&self) -> Option<&Sums> {
        match self {
            Step::Run { sums, .. } => Some(sums).filter(|sums| !sums.is_empty()),
            _ => None,
        }
    }
}

impl Plan<'_> {
    /// Runs machine code on some columns of a row, at most [`Sums::tile`], and adds what becomes of the blocks to the roots. Its
    /// operands are those of a range; those of another range are asked for.
    pub(super) fn native_with_sums(
        &self,
        (native, sums, pass): (usize, &Sums, &Pass),
        along: &Along,
        (operands, asks): (Range<usize>, Range<usize>),
        columns: usize,
        roots: &mut [Roots],
    ) {
        let mut lanes = [[MaybeUninit::<Lanes<f32>>::uninit(); GROUP]; MOST];
        let lanes = &mut lanes[..sums.instructions.len()];
        let mut addresses: SmallVec<[*mut u8; 16]> = along.places[operands].into();
        addresses.extend(lanes.iter_mut().map(|lanes| lanes.as_mut_ptr().cast()));
        addresses.extend_from_slice(&along.places[asks]);
        // SAFETY: the operands hold the tile's elements as `place.rs` has said, and there are lanes for as many blocks.
        unsafe { self.placement.natives[native].run(&addresses, native::Rows::ONE, columns) };
        for (&index, lanes) in sums.instructions.iter().zip(lanes) {
            // SAFETY: the code has stored those of all blocks.
            let lanes = unsafe { std::slice::from_raw_parts(lanes.as_ptr().cast(), columns.div_ceil(sums.block)) };
            push_sums(self.level, lanes, &mut roots[pass.number(index)]);
        }
    }
}
