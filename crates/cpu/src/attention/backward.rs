//! The gradients by queries, keys and values.

use super::BLOCK;
use super::call::{Call, Line, Sides};
use super::plan::{Pass, Rooms, Task};
use super::softmax::{Input, Number};
use super::tile::Panels;
use crate::gemm::Real;
use meshwork_graph::ops::AttentionResult;

/// Computes the backward pass.
pub fn run<S: Input>(call: &Call<S>, scratch: &mut [u8]) {
    let sizes = &call.plan.sizes;
    call.run(scratch, |pass, task, rooms| {
        let count = task.keys.len();
        let sums = [
            (AttentionResult::Key, Panels { first: rooms.by_key, rows: count, columns: sizes.depth }),
            (AttentionResult::Value, Panels { first: rooms.by_value, rows: count, columns: sizes.width }),
        ];
        let sums = sums.into_iter().filter(|(result, _)| pass.has(*result));
        // SAFETY: the rooms are the task's, as are the rows of the results.
        unsafe {
            for (_, sums) in sums.clone() {
                sums.parts(&call.engine.kernels).for_each(|(_, _, rows)| rows.fill(S::Real::ZERO));
            }
            let (keys, values) = (call.keys(pass, task, &rooms), call.values(pass, task, &rooms));
            for index in task.lines.clone() {
                let (head, unit) = call.unit(task, index);
                let matters = unit.keys > task.keys.start || pass.has(AttentionResult::Query);
                if matters && !unit.queries.is_empty() {
                    let line = call.line(task, head, unit, &rooms);
                    line_of(call, (pass, task), &line, keys, values, &rooms);
                }
            }
            for (result, sums) in sums {
                let factor = if result == AttentionResult::Key { call.scale } else { S::Real::ONE };
                call.store(result, [task.sample, task.keys.start, task.group], sums, &vec![factor; count]);
            }
        }
    });
}

/// A unit by the keys of a task that it computes with.
///
/// # Safety
/// The rooms and the unit must be the task's.
unsafe fn line_of<S: Input>(
    call: &Call<S>,
    (pass, task): (&Pass, &Task),
    line: &Line<S::Real>,
    keys: Sides<S::Real>,
    values: Sides<S::Real>,
    rooms: &Rooms<S::Real>,
) {
    let (softmax, sizes) = (call.softmax(line), &call.plan.sizes);
    let scored = keys.rows.expect("all results need scores");
    let [normalizers, deltas] = call.numbers(task, line);
    let of_keys = |first, columns| Panels { first, rows: task.keys.len(), columns };
    let by_query = Panels { first: rooms.result, rows: line.len(), columns: sizes.depth };
    let end = line.unit.keys.min(task.keys.end);
    // SAFETY: the caller's promise.
    unsafe {
        let (gradients, turned) = call.gradients(task, line, rooms);
        for first in (task.keys.start..end).step_by(BLOCK) {
            let (count, from) = (BLOCK.min(end - first), first - task.keys.start);
            let mask = line.mask(first, count);
            call.tile(line, [scored.from(from), line.turned], [count, sizes.depth], rooms, rooms.scores);
            let tile = |numbers| std::slice::from_raw_parts_mut(numbers, count * line.width);
            match values.rows {
                None => softmax.weigh(tile(rooms.scores), mask.as_ref(), &normalizers),
                Some(values) => {
                    call.tile(line, [values.from(from), turned], [count, sizes.width], rooms, rooms.slopes);
                    softmax.slope(tile(rooms.scores), tile(rooms.slopes), mask.as_ref(), [&normalizers, &deltas]);
                }
            }
            if pass.has(AttentionResult::Value) {
                let out = (of_keys(rooms.by_value, sizes.width), from);
                call.sum_over_queries(line, rooms.scores, gradients, count, rooms, out);
            }
            if pass.has(AttentionResult::Key) {
                let out = (of_keys(rooms.by_key, sizes.depth), from);
                call.sum_over_queries(line, rooms.slopes, line.queries, count, rooms, out);
            }
            if let Some(keys) = keys.terms {
                call.sum_over_keys(line, rooms.slopes, keys, [from, count], rooms, (by_query, first > 0));
            }
        }
        if pass.has(AttentionResult::Query) {
            if end == 0 {
                by_query.parts(&call.engine.kernels).for_each(|(_, _, rows)| rows.fill(S::Real::ZERO));
            }
            let at = [task.sample, line.unit.queries.start, line.head];
            call.store(AttentionResult::Query, at, by_query, &[call.scale; super::UNIT][..line.len()]);
        }
    }
}
