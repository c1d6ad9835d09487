//! Results of runs of terms, merged by the tree of adjacent pairs.

use super::Offsets;
use super::real::{Element, Real};
use crate::Level;
use meshwork_graph::canonical::in_tree_order;
use meshwork_simd::multiversion;

/// Numbers that are stored at a time.
const PIECE: usize = 256;

/// A row of a result, of which every run of terms has given a part.
pub struct Row<'a, O: Element> {
    /// The part of the first run.
    pub parts: *mut O::Real,
    /// Distance between the parts.
    pub step: usize,
    /// Runs.
    pub runs: usize,
    /// Where the row's offsets count from.
    pub out: *mut O,
    /// Where its columns are.
    pub columns: &'a Offsets,
}

impl<O: Element> Row<'_, O> {
    /// Adds up the parts, in their own place, and stores the sum.
    ///
    /// # Safety
    /// The parts and the result must be there, used by nobody else.
    pub unsafe fn merge(&self, level: Level) {
        let Row { parts, step, runs, out, columns } = *self;
        let mut offsets = [0; PIECE];
        for first in (0..columns.len).step_by(PIECE) {
            let count = PIECE.min(columns.len - first);
            // SAFETY: pieces of parts, which do not overlap, as the distance is at least a row.
            let part = |run: usize| unsafe { std::slice::from_raw_parts_mut(parts.add(run * step + first), count) };
            in_tree_order(runs, |left, right| add(level, part(left), part(right)));
            let dense = columns.fill(first, &mut offsets[..count]) == Some(1);
            let sums: &[O::Real] = part(0);
            // SAFETY: elements of the result.
            unsafe {
                if dense {
                    store(level, sums, std::slice::from_raw_parts_mut(out.offset(offsets[0]), count));
                } else {
                    sums.iter().zip(&offsets).for_each(|(&sum, &offset)| *out.offset(offset) = O::narrow(sum));
                }
            }
        }
    }
}

multiversion! {
    /// Adds numbers to those on their left.
    fn add<T: Real>(left: &mut [T], right: &[T]) = add_of;
}

#[inline(always)]
fn add_of<T: Real>(left: &mut [T], right: &[T]) {
    left.iter_mut().zip(right).for_each(|(left, &right)| *left = *left + right);
}

multiversion! {
    fn store<O: Element>(sums: &[O::Real], out: &mut [O]) = store_of;
}

#[inline(always)]
fn store_of<O: Element>(sums: &[O::Real], out: &mut [O]) {
    out.iter_mut().zip(sums).for_each(|(to, &sum)| *to = O::narrow(sum));
}
