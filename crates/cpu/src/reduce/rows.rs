//! Reductions along rows: the terms of one output lie behind each other and fill the lanes.

use super::matrix::{Tree, reduce_rows};
use super::monoid::{Accumulate, Monoid, Term};
use super::{GATHER, GRAIN, Job, LONG, MANY, Plan};
use crate::copy::{Pairs, gather, room};
use crate::gemm::real::same;
use crate::walk::Walk;
use meshwork_graph::canonical::{LANES, in_tree_order, lane_tree};
use meshwork_simd::line::prefetch_all;
use meshwork_simd::multiversion;
use std::ops::Range;

/// Terms of a run from which the next one is asked for: processors do not see it coming.
const FAR: usize = 64;

impl<T: Term> Job<'_, T> {
    pub(super) fn matrix<M: Monoid<T::Sum>>(&self, op: M) {
        let terms = self.plan.terms.len();
        self.context.par.ranges(self.plan.kept.len(), GRAIN / terms + 1, &|range| {
            // SAFETY: the plan says that the terms lie behind each other; this task owns these outputs.
            let (rows, out) = unsafe {
                let rows = self.first.pointer().add(range.start * terms);
                (std::slice::from_raw_parts(rows, range.len() * terms), self.output.slice(range.start, range.len()))
            };
            reduce_rows(self.context.level, op, rows, [terms, self.plan.block(0).1], out);
        });
    }

    pub(super) fn rows<M: Monoid<T::Sum>>(&self, op: M) {
        let (outputs, blocks) = (self.plan.kept.len(), self.plan.blocks.count());
        let par = self.context.par;
        let pairs = Pairs::of(&self.plan.terms);
        if !self.plan.by_block {
            let grain = GRAIN / self.plan.terms.len() + 1;
            if self.plan.terms.len() <= GATHER {
                return par.ranges(outputs, grain, &|range| self.gathered(op, range));
            }
            return par.ranges(outputs, grain, &|range| {
                let mut buffer = [M::identity(); GATHER];
                for output in range {
                    if blocks == 1 {
                        let root = self.row_block(op, &pairs, [output, 0], &mut buffer);
                        // SAFETY: this task owns the output.
                        unsafe { *self.output.pointer().add(output) = T::narrow(root) };
                        continue;
                    }
                    let mut tree = Tree::<T::Sum>::new();
                    for block in 0..blocks {
                        tree.push(self.row_block(op, &pairs, [output, block], &mut buffer), M::combine);
                    }
                    // SAFETY: this task owns the output.
                    unsafe { *self.output.pointer().add(output) = T::narrow(tree.finish(M::combine)) };
                }
            });
        }
        let grain = GRAIN / self.plan.block(0).1 + 1;
        par.ranges(outputs * blocks, grain, &|range| {
            let mut buffer = [M::identity(); GATHER];
            for item in range {
                let root = self.row_block(op, &pairs, [item / blocks, item % blocks], &mut buffer);
                // SAFETY: this task owns the root.
                unsafe { *self.roots.pointer().add(item) = root };
            }
        });
        par.ranges(outputs, GRAIN / blocks + 1, &|range| {
            for output in range {
                // SAFETY: this task owns the output and its roots.
                let roots = unsafe { self.roots.slice(output * blocks, blocks) };
                in_tree_order(blocks, |left, right| roots[left] = M::combine(roots[left], roots[right]));
                // SAFETY: as above.
                unsafe { *self.output.pointer().add(output) = T::narrow(roots[0]) };
            }
        });
    }

    /// The results of some outputs of few terms, those of several gathered at once as a matrix.
    fn gathered<M: Monoid<T::Sum>>(&self, op: M, outputs: Range<usize>) {
        let Plan { kept, terms, .. } = &self.plan;
        let dims = |walk: &Walk| walk.sizes.iter().copied().zip(walk.strides.iter().copied()).collect::<Vec<_>>();
        let pairs = Pairs::dense([dims(kept), dims(terms)].concat().into_iter());
        let (terms, together) = (terms.len(), 2 * GATHER / terms.len());
        room(together * terms * size_of::<T>(), |room| {
            for start in outputs.clone().step_by(together) {
                let count = together.min(outputs.end - start);
                // SAFETY: the elements of these outputs, which this task owns; there is room for all.
                unsafe {
                    let first = self.first.pointer().cast_const();
                    gather(&pairs, start * terms..(start + count) * terms, first, room.cast());
                    let rows = std::slice::from_raw_parts(room.cast::<T>(), count * terms);
                    let out = self.output.slice(start, count);
                    reduce_rows(self.context.level, op, rows, [terms, self.plan.block(0).1], out);
                }
            }
        });
    }

    /// The result of one block of one output.
    fn row_block<M: Monoid<T::Sum>>(
        &self,
        op: M,
        pairs: &Pairs,
        [output, block]: [usize; 2],
        buffer: &mut [T::Sum; GATHER],
    ) -> T::Sum {
        let terms = &self.plan.terms;
        let (start, count) = self.plan.block(block);
        let level = self.context.level;
        let mut lanes = [M::identity(); LANES];
        // SAFETY: the positions are those of elements.
        unsafe {
            let first = self.first.pointer().offset(self.plan.kept.position(output));
            let (run, stride) = terms.inner();
            if stride == 1 && (run >= LONG || terms.sizes.len() == 1) {
                terms.runs(start, count, |done, position, count, _| {
                    let run = std::slice::from_raw_parts(first.offset(position), count);
                    add_terms(level, op, &mut lanes, done % LANES, run);
                });
            } else {
                for done in (0..count).step_by(GATHER) {
                    let buffer = &mut buffer[..GATHER.min(count - done)];
                    if stride == 1 && run >= FAR {
                        let next = start + done + buffer.len();
                        terms.runs(next, GATHER.min(terms.len() - next), |_, position, count, _| {
                            prefetch_all(first.wrapping_offset(position), count);
                        });
                    }
                    match same::<T, T::Sum>() {
                        true => {
                            let range = start + done..start + done + buffer.len();
                            gather(pairs, range, first, buffer.as_mut_ptr().cast::<T>());
                        }
                        false => terms.gather(first, start + done, buffer, T::widen),
                    }
                    add_sums(level, op, &mut lanes, buffer);
                }
            }
        }
        lane_tree(lanes, M::combine)
    }
}

#[inline(always)]
fn add_terms_body<T: Term, M: Monoid<T::Sum>>(_: M, lanes: &mut [T::Sum; LANES], offset: usize, terms: &[T]) {
    if M::ANY_ORDER && terms.len() >= MANY {
        lanes[0] = M::combine(lanes[0], M::all(terms));
        return;
    }
    let head = if offset == 0 { 0 } else { (LANES - offset).min(terms.len()) };
    for (lane, x) in lanes[offset..].iter_mut().zip(&terms[..head]) {
        *lane = M::combine(*lane, x.widen());
    }
    let mut local = *lanes;
    let (chunks, tail) = terms[head..].as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            local[i] = M::combine(local[i], chunk[i].widen());
        }
    }
    *lanes = local;
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane = M::combine(*lane, x.widen());
    }
}

#[inline(always)]
fn add_sums_body<A: Accumulate, M: Monoid<A>>(_: M, lanes: &mut [A; LANES], terms: &[A]) {
    let mut local = *lanes;
    let (chunks, tail) = terms.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            local[i] = M::combine(local[i], chunk[i]);
        }
    }
    *lanes = local;
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane = M::combine(*lane, *x);
    }
}

multiversion! {
    /// Adds terms that lie behind each other to the lanes, the first one to lane `offset`.
    fn add_terms<T: Term, M: Monoid<T::Sum>>(op: M, lanes: &mut [T::Sum; LANES], offset: usize, terms: &[T]) = add_terms_body;
}
multiversion! {
    /// Adds widened terms to the lanes from lane 0 on.
    fn add_sums<A: Accumulate, M: Monoid<A>>(op: M, lanes: &mut [A; LANES], terms: &[A]) = add_sums_body;
}
