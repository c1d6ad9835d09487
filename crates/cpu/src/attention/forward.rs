//! The output and the normalizer.

use super::BLOCK;
use super::call::{Call, Line};
use super::plan::{Rooms, Task};
use super::softmax::{Input, Number, Online, finish, scale_rows};
use super::tile::{Panels, Side};
use crate::gemm::Real;
use meshwork_graph::ops::AttentionResult;

/// Computes the forward pass.
pub fn run<S: Input>(call: &Call<S>, scratch: &mut [u8]) {
    call.run(scratch, |pass, task, rooms| {
        // SAFETY: the rooms are the task's, as are the rows of the results.
        unsafe {
            let keys = call.keys(pass, task, &rooms).rows.expect("all results need scores");
            let values = call.values(pass, task, &rooms).terms;
            for index in task.lines.clone() {
                let (head, unit) = call.unit(task, index);
                if !unit.queries.is_empty() {
                    let line = call.line(task, head, unit, &rooms);
                    line_of(call, task, &line, keys, values, &rooms);
                }
            }
        }
    });
}

/// A unit by all keys that it computes with.
///
/// # Safety
/// The rooms and the unit must be the task's.
unsafe fn line_of<S: Input>(
    call: &Call<S>,
    task: &Task,
    line: &Line<S::Real>,
    keys: Side<S::Real>,
    values: Option<Side<S::Real>>,
    rooms: &Rooms<S::Real>,
) {
    let level = call.context.level;
    let (softmax, mut online) = (call.softmax(line), Online::new());
    let sums = Panels { first: rooms.result, rows: line.len(), columns: call.plan.sizes.width };
    for first in (0..line.unit.keys).step_by(BLOCK) {
        let count = BLOCK.min(line.unit.keys - first);
        // SAFETY: the caller's promise.
        unsafe {
            let sides = [keys.from(first), line.turned];
            call.tile(line, sides, [count, call.plan.sizes.depth], rooms, rooms.scores);
            let scores = std::slice::from_raw_parts_mut(rooms.scores, count * line.width);
            softmax.soften(scores, line.mask(first, count).as_ref(), &mut online);
            let Some(values) = values else { continue };
            let factors = &online.factor[..line.len()];
            if first > 0 && factors.iter().any(|factor| *factor != S::Real::ONE) {
                sums.parts(&call.engine.kernels).for_each(|(_, own, rows)| scale_rows(level, rows, own, factors));
            }
            call.sum_over_keys(line, rooms.scores, values, [first, count], rooms, (sums, first > 0));
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let [normalizers, shares] = finish(level, &online);
        call.store_normalizers(task, line, &normalizers);
        if values.is_some() {
            if line.unit.keys == 0 {
                sums.parts(&call.engine.kernels).for_each(|(_, _, rows)| rows.fill(S::Real::ZERO));
            }
            let at = [task.sample, line.unit.queries.start, line.head];
            call.store(AttentionResult::Output, at, sums, &shares[..line.len()]);
        }
    }
}
