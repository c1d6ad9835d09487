//! The output and the normalizer.

use super::BLOCK;
use super::call::{Call, Line};
use super::plan::{Rooms, Task};
use super::rows::Matrix;
use super::softmax::{Number, Online, UNIT, scale_rows, soften_block};
use super::tile::Panels;
use crate::gemm::{Element, Real};
use meshwork_graph::ops::AttentionResult;

/// Computes the forward pass.
pub fn run<S: Element<Real: Number>>(call: &Call<S>, scratch: &mut [u8]) {
    call.run(scratch, |pass, task, rooms| {
        // SAFETY: the rooms are the task's, as are the rows of the results.
        unsafe {
            let keys = call.keys(task, &rooms);
            let values = pass.has(AttentionResult::Output).then(|| call.values(task, &rooms));
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
unsafe fn line_of<S: Element<Real: Number>>(
    call: &Call<S>,
    task: &Task,
    line: &Line<S::Real>,
    keys: Matrix<S::Real>,
    values: Option<Matrix<S::Real>>,
    rooms: &Rooms<S::Real>,
) {
    let level = call.context.level;
    let (zero, one) = (S::Real::ZERO, S::Real::ONE);
    let mut online = Online::new();
    let sums = Panels { first: rooms.result, rows: line.len(), columns: call.plan.sizes.width };
    for first in (0..line.unit.keys).step_by(BLOCK) {
        let count = BLOCK.min(line.unit.keys - first);
        // SAFETY: the caller's promise.
        unsafe {
            let sides = [keys.from(first), line.turned];
            call.tile(line, sides, [count, call.plan.sizes.depth], rooms, rooms.scores);
            let scores = std::slice::from_raw_parts_mut(rooms.scores, count * line.width);
            soften_block(level, line.width, scores, line.mask(first, count).as_ref(), &mut online);
            let Some(values) = values else { continue };
            let factors = &online.factor[..line.len()];
            if first > 0 && factors.iter().any(|factor| *factor != one) {
                sums.parts(&call.kernels).for_each(|(_, own, rows)| scale_rows(level, rows, own, factors));
            }
            call.sum_over_keys(line, rooms.scores, values.from(first), count, rooms, (sums, first > 0));
        }
    }
    // SAFETY: the caller's promise.
    unsafe {
        let normalizer = |i: usize| {
            let (highest, sum) = (online.highest[i], online.sum[i]);
            if sum == zero { S::Real::LEAST } else { highest + sum.log() }
        };
        call.store_normalizers(task, line, &std::array::from_fn(normalizer));
        if values.is_some() {
            if line.unit.keys == 0 {
                sums.parts(&call.kernels).for_each(|(_, _, rows)| rows.fill(zero));
            }
            let share = |sum: S::Real| if sum == zero { zero } else { one / sum };
            let factors = online.sum.map(share);
            debug_assert!(line.len() <= UNIT);
            let at = [task.sample, line.unit.queries.start, line.head];
            call.store(AttentionResult::Output, at, sums, &factors[..line.len()]);
        }
    }
}
