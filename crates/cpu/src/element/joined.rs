//! The last pass over a wide row, which mostly waits for memory to take results, along with the pass before it over the next
//! row, which reads and computes: one machine code does both, column by column. What the last pass reads of the row that
//! is kept has been read when the other one writes there.

use super::cut::{Span, TILE};
use super::native;
use super::place::Placing;
use super::rows::Roots;
use super::sums::Sums;
use super::tile::Room;
use super::wide::{Along, Pass, Runs, Wide, share_of};
use super::{Place, Plan, Step};
use crate::stream::Share;
use meshwork_graph::ops::Code;
use smallvec::SmallVec;
use std::ops::Range;

/// The last two passes as one.
#[derive(Debug)]
pub(super) struct Joined {
    native: usize,
    /// The operands of the machine code, and whether they are those of the last pass.
    operands: Vec<(bool, Place)>,
    sums: Sums,
    /// What it asks for of the row that comes next.
    asks: Vec<Place>,
}

impl Placing<'_> {
    /// The last two passes as one, if each is one machine code whose operands are in memory, and the last one needs no more
    /// of its row than what the one before it has left.
    pub(super) fn joined(
        &mut self,
        passes: &[Pass],
        runs: &[Runs],
        stages: &[usize],
        kept: &[Option<usize>],
    ) -> Option<Joined> {
        let op = self.region.op;
        let ([.., before, last], [.., runs_before, runs_last]) = (passes, runs) else { return None };
        let ([(read_before, run_before)], [(read_last, run_last)]) = (&runs_before[..], &runs_last[..]) else {
            return None;
        };
        let are_in_place = before.tiles.in_place && last.tiles.in_place && last.combining.is_empty();
        let [Step::Run { operands: of_last, .. }] = &last.tiles.steps[..] else { return None };
        let [Step::Run { operands: of_before, sums, .. }, others @ ..] = &before.tiles.steps[..] else { return None };
        let reduces =
            |step: &Step| matches!(step, Step::Compute { index, .. } if matches!(op.code[*index].op, Code::Reduce(..)));
        let stays = |&register: &u16| match last.tiles.places[usize::from(register)] {
            Place::Input(_) => true,
            Place::Kept { .. } => kept[usize::from(register)] == Some(passes.len() - 2),
            _ => self.placement.fixed.contains(&register) || stages[usize::from(register)] == passes.len() - 1,
        };
        let gives_rows = op.outputs.iter().any(|&register| op.of_rows(register));
        if !are_in_place || !others.iter().all(reduces) || !read_last.iter().all(stays) || gives_rows {
            return None;
        }
        let sums = sums.clone();
        let (asks, run) = self.asking(&run_last.beside(run_before), Share::ALL);
        self.placement.natives.push(native::compile(&run, self.region.level).ok()?);
        let (read_of_last, written_by_last) = of_last.split_at(read_last.len());
        let (read_of_before, written_by_before) = of_before.split_at(read_before.len());
        let of =
            |is_last: bool, places: &[Place]| places.iter().map(move |&place| (is_last, place)).collect::<Vec<_>>();
        let operands = [
            of(true, read_of_last),
            of(false, read_of_before),
            of(true, written_by_last),
            of(false, written_by_before),
        ]
        .concat();
        Some(Joined { native: self.placement.natives.len() - 1, operands, sums, asks })
    }
}

impl Plan<'_> {
    /// Computes rows one after the other.
    pub(super) fn rows(&self, wide: &Wide, room: Room, rows: Range<usize>) {
        let (Some(joined), [first @ .., before, last]) = (&wide.joined, &wide.passes[..]) else {
            return rows.for_each(|row| self.row(wide, room, row));
        };
        let whole = |row: usize| Span { start: row, rows: 1, column: 0, columns: 1, width: self.cut.columns };
        let share = |number: usize| share_of(number, wide.passes.len());
        for row in rows.clone().map(whole) {
            self.values(&wide.loads, room, row);
            for (number, pass) in first.iter().enumerate() {
                self.pass(pass, room, row, share(number));
            }
            // What the row before has left to do comes with this pass.
            if row.start == rows.start {
                self.pass(before, room, row, share(first.len()));
            } else {
                self.values(&before.before, room, row);
                self.pass_over_both((joined, before), room, row);
            }
            self.values(&last.before, room, row);
        }
        self.pass_over(last, room, whole(rows.end - 1), None);
    }

    /// The last pass over the row before, and the one before it over this one. Asks for the next row.
    fn pass_over_both(&self, (joined, before): (&Joined, &Pass), room: Room, row: Span) {
        let previous = Span { start: row.start - 1, ..row };
        let mut along = Along::default();
        for &(is_last, place) in &joined.operands {
            along.push(self, room, place, if is_last { previous } else { row });
        }
        along.push_asks(self, room, &joined.asks, row);
        let reductions = &before.tiles.steps[1..];
        for step in reductions {
            let Step::Compute { index, .. } = step else { unreachable!("only reductions") };
            along.push(self, room, before.tiles.places[usize::from(self.op.code[*index].args[0])], row);
        }
        let mut roots: SmallVec<[Roots; 4]> = before.combining.iter().map(|_| Roots::new()).collect();
        let operands = joined.operands.len();
        let asked = operands + joined.asks.len();
        let tile = if reductions.is_empty() { joined.sums.tile() } else { TILE };
        for column in (0..row.width).step_by(tile) {
            if column > 0 {
                along.advance(tile);
            }
            let span = Span { column, columns: tile.min(row.width - column), ..row };
            if joined.sums.is_empty() {
                self.native_at(joined.native, &along.places[..asked], (false, &[]), span);
            } else {
                let code = (joined.native, &joined.sums, before);
                let operands = (0..operands, operands..asked);
                self.native_with_sums(code, &along, operands, span.columns, &mut roots);
            }
            for (step, &elements) in reductions.iter().zip(&along.places[asked..]) {
                self.reduce_step(before, step, elements, span, &mut roots);
            }
        }
        self.finish_combining(before, roots, room, row);
    }
}
