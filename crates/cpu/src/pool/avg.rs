//! The mean of every window, and its gradient ([`gradient`]).

use super::passes::{blocks, in_fours};
use super::phases::{Cut, Line, Part, Phases, narrow_row, widen_row};
use super::windows::{Plane, Span};
use super::{accumulate, plane_bytes, planes};
use crate::Context;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::{Element, Real};
use crate::number::for_float;
use crate::operand::{Operand, Output, Shared};
use crate::par::with_slots;
use meshwork_graph::ops::{AvgPool, AvgPoolInput};
use meshwork_graph::{DType, Layout, Shape};
use std::ops::Range;

/// The windows where they are evenly apart and a task is one of `cut`.
fn phases(op: &AvgPool, shape: &[usize], cut: Cut, threads: usize) -> Option<Phases> {
    Phases::new(&op.windows, shape[0] * shape[1], &shape[2..], cut, threads)
}

/// Bytes of a slot: the phases of the input, and what is laid out as windows.
fn slot_bytes<S: Element>(phases: &Phases, cut: Cut) -> usize {
    room::<S::Real>((phases.count() + 1) * phases.distance(cut))
}

/// Bytes of scratch memory for [`run`].
pub fn scratch(op: &AvgPool, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    for_float!("pooling", dtype, forward_scratch(op, &inputs[0].shape, threads))
}

fn forward_scratch<S: Element>(op: &AvgPool, shape: &Shape, threads: usize) -> usize {
    phases(op, shape, Cut::Windows, threads).map_or(0, |phases| threads * slot_bytes::<S>(&phases, Cut::Windows))
}

/// The means: input x.
pub fn run(op: &AvgPool, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    for_float!("pooling", output.dtype, forward(op, inputs, output, scratch, context))
}

fn forward<S: Element>(op: &AvgPool, inputs: &[Operand], mut output: Output, scratch: &mut [u8], context: Context) {
    let (x, shape) = (inputs[0].slice::<S>(), inputs[0].shape());
    let plane = Plane::new(&op.windows, &shape[2..], op.count_include_pad);
    let out = Shared(output.slice::<S>().as_mut_ptr());
    let threads = context.par.lanes();
    if !plane.halves
        && let Some(phases) = phases(op, shape, Cut::Windows, threads)
    {
        let counts = phases.counts(op.count_include_pad);
        let rooms = Arena::new(scratch).slots(threads, slot_bytes::<S>(&phases, Cut::Windows));
        let x = Shared(x.as_ptr().cast_mut());
        return with_slots(context.par, threads, phases.tasks(), |slot, task| {
            let room = rooms.room(slot).take((phases.count() + 1) * phases.distance(Cut::Windows));
            // SAFETY: the operand has all planes; the windows of the result belong to this task, the room to its slot.
            means_of_part(context.level, &phases, &counts, task, x.pointer(), room, out.pointer());
        });
    }
    let (from, to) = (plane.input_len(), plane.output_len());
    planes(shape, context, &|i| {
        // SAFETY: the plane of the result belongs to this task.
        let out = unsafe { { out }.slice(i * to, to) };
        means(context.level, &plane, &x[i * from..][..from], out);
    });
}

crate::multiversion! {
    fn means_of_part<S: Element>(
        phases: &Phases,
        counts: &[Vec<usize>; 3],
        task: usize,
        x: *const S,
        room: *mut S::Real,
        out: *mut S,
    ) = means_in_phases;
}

#[inline(always)]
fn means_in_phases<S: Element>(
    phases: &Phases,
    counts: &[Vec<usize>; 3],
    task: usize,
    x: *const S,
    room: *mut S::Real,
    out: *mut S,
) {
    let (part, distance) = (phases.part(Cut::Windows, task), phases.distance(Cut::Windows));
    let sums = room.wrapping_add(phases.count() * distance);
    let taps: Vec<isize> = phases.taps(&part).iter().map(|tap| (tap.phase * distance + tap.shift) as isize).collect();
    // SAFETY: the operands' planes, and the room's phases and sums.
    unsafe {
        phases.split(&part, x, S::Real::ZERO, room, distance);
        add_up(room, &taps, sums, part.written());
        divide(phases, &part, counts, sums, part.written());
        for line in phases.windows(&part) {
            let sums = std::slice::from_raw_parts(sums.add(line.at), line.count);
            narrow_row(sums, std::slice::from_raw_parts_mut(out.add(line.number), line.count));
        }
    }
}

/// Divides windows, which lie in a range, by what their means count.
///
/// # Safety
/// `to` must have the part's windows.
#[inline(always)]
unsafe fn divide<T: Real>(phases: &Phases, part: &Part, counts: &[Vec<usize>; 3], to: *mut T, all: Range<usize>) {
    if let [[a], [b], [c]] = counts.each_ref().map(Vec::as_slice) {
        let count = T::count(a * b * c);
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(all.start), all.len()) };
        for to in to {
            *to = *to / count;
        }
        return;
    }
    let of = |d: usize, i: usize| *counts[d].get(i).unwrap_or(&counts[d][0]);
    for Line { at, count, window: [x, y, z], .. } in phases.windows(part) {
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(at), count) };
        let outer = of(0, x) * of(1, y);
        for (i, to) in to.iter_mut().enumerate() {
            *to = *to / T::count(outer * of(2, z + i));
        }
    }
}

/// Adds up what taps give, from +0, in their order: for every place of a range what lies there behind each of `taps`.
///
/// # Safety
/// The places, and as many more as passes take at a time, must be there.
#[inline(always)]
unsafe fn add_up<T: Real>(from: *const T, taps: &[isize], to: *mut T, range: Range<usize>) {
    for block in blocks(range) {
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(block.start), block.len()) };
        let from = from.wrapping_add(block.start);
        if taps.is_empty() {
            to.fill(T::ZERO);
        }
        in_fours!(taps, add::<T>(from, to));
    }
}

#[inline(always)]
fn add<T: Real, const N: usize, const FIRST: bool>(taps: [isize; N], from: *const T, to: &mut [T]) {
    let from = taps.map(|tap| from.wrapping_offset(tap));
    for (i, to) in to.iter_mut().enumerate() {
        let mut sum = if FIRST { T::ZERO } else { *to };
        for from in from {
            // SAFETY: the promise of `add_up`.
            sum = sum + unsafe { *from.add(i) };
        }
        *to = sum;
    }
}

crate::multiversion! {
    fn means<S: Element>(plane: &Plane, x: &[S], out: &mut [S]) = means_of;
}

fn count<T: Real>(window: [&Span; 3]) -> T {
    T::count(window.iter().map(|s| s.count).product())
}

#[inline(always)]
fn means_of<S: Element>(plane: &Plane, x: &[S], out: &mut [S]) {
    if plane.halves {
        let (width, half) = (plane.input[2], plane.output[2]);
        for (rows, out) in x.chunks_exact(2 * width).zip(out.chunks_exact_mut(half.max(1))) {
            let (top, bottom) = rows.split_at(width);
            let (top, bottom) = (top.as_chunks::<2>().0, bottom.as_chunks::<2>().0);
            match half {
                8.. => halve::<S, 8>(top, bottom, out),
                4.. => halve::<S, 4>(top, bottom, out),
                _ => halve::<S, 1>(top, bottom, out),
            }
        }
        return;
    }
    plane.windows(|i, window| {
        let mut sum = S::Real::ZERO;
        plane.positions(window, |p| sum = sum + x[p].widen());
        out[i] = S::narrow(sum / count(window));
    });
}

/// The means of windows of two rows, `N` at a time, since rows are often shorter than what a loop would be unrolled to; the last ones
/// overlap those before.
#[inline(always)]
fn halve<S: Element, const N: usize>(top: &[[S; 2]], bottom: &[[S; 2]], out: &mut [S]) {
    for i in (0..out.len()).step_by(N) {
        let i = i.min(out.len() - N);
        let mut means = [S::narrow(S::Real::ZERO); N];
        for ((mean, t), b) in means.iter_mut().zip(&top[i..][..N]).zip(&bottom[i..][..N]) {
            let sum = S::Real::ZERO + t[0].widen() + t[1].widen() + b[0].widen() + b[1].widen();
            *mean = S::narrow(sum / S::Real::count(4));
        }
        out[i..][..N].copy_from_slice(&means);
    }
}

/// The gradient: input dy.
pub mod gradient {
    use super::*;

    /// Bytes of scratch memory for [`run`].
    pub fn scratch(op: &AvgPoolInput, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
        for_float!("pooling", dtype, backward_scratch(op, &inputs[0].shape, threads))
    }

    fn backward_scratch<S: Element>(op: &AvgPoolInput, dy: &Shape, threads: usize) -> usize {
        let phases = phases(&op.pool, &input(op, dy), Cut::Inputs, threads);
        let in_phases = phases.map_or(0, |phases| threads * slot_bytes::<S>(&phases, Cut::Inputs));
        in_phases.max(plane_bytes::<S>(&op.size, threads))
    }

    /// The shape of the input.
    fn input(op: &AvgPoolInput, dy: &Shape) -> Shape {
        Shape([&dy[..2], &op.size].concat().into())
    }

    /// The gradient by the input.
    pub fn run(op: &AvgPoolInput, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
        for_float!("pooling", output.dtype, backward(op, inputs, output, scratch, context))
    }

    fn backward<S: Element>(
        op: &AvgPoolInput,
        inputs: &[Operand],
        mut output: Output,
        scratch: &mut [u8],
        context: Context,
    ) {
        let dy = inputs[0].slice::<S>();
        let plane = Plane::new(&op.pool.windows, &op.size, op.pool.count_include_pad);
        let windows = plane.output_len();
        let threads = context.par.lanes();
        if !plane.halves
            && let Some(phases) = phases(&op.pool, &input(op, inputs[0].shape()), Cut::Inputs, threads)
        {
            let counts = phases.counts(op.pool.count_include_pad);
            let rooms = Arena::new(scratch).slots(threads, slot_bytes::<S>(&phases, Cut::Inputs));
            let dy = Shared(dy.as_ptr().cast_mut());
            let out = Shared(output.slice::<S>().as_mut_ptr());
            return with_slots(context.par, threads, phases.tasks(), |slot, task| {
                let room = rooms.room(slot).take((phases.count() + 1) * phases.distance(Cut::Inputs));
                share_in_part(context.level, &phases, &counts, task, dy.pointer(), room, out.pointer());
            });
        }
        accumulate(output.slice::<S>(), &plane, scratch, context, &|i, sums| {
            share(context.level, &plane, &dy[i * windows..][..windows], sums);
        });
    }

    crate::multiversion! {
        fn share_in_part<S: Element>(
            phases: &Phases,
            counts: &[Vec<usize>; 3],
            task: usize,
            dy: *const S,
            room: *mut S::Real,
            out: *mut S,
        ) = share_in_phases;
    }

    #[inline(always)]
    fn share_in_phases<S: Element>(
        phases: &Phases,
        counts: &[Vec<usize>; 3],
        task: usize,
        dy: *const S,
        room: *mut S::Real,
        out: *mut S,
    ) {
        let (part, distance) = (phases.part(Cut::Inputs, task), phases.distance(Cut::Inputs));
        let parts = room.wrapping_add(phases.count() * distance);
        let margin = phases.margin(Cut::Inputs);
        // SAFETY: the operands' planes, and the room's phases and windows.
        unsafe {
            std::slice::from_raw_parts_mut(parts, distance).fill(S::Real::ZERO);
            let parts = parts.add(margin);
            for line in phases.windows(&part) {
                let dy = std::slice::from_raw_parts(dy.add(line.number), line.count);
                widen_row(dy, std::slice::from_raw_parts_mut(parts.add(line.at), line.count));
            }
            divide(phases, &part, counts, parts, 0..part.len());
            for (phase, taps) in phases.by_phase(&part).iter().enumerate() {
                let taps: Vec<isize> = taps.iter().map(|tap| -(tap.shift as isize)).collect();
                add_up(parts, &taps, room.add(phase * distance), part.written());
            }
            phases.join(&part, room, distance, out);
        }
    }

    crate::multiversion! {
        fn share<S: Element>(plane: &Plane, dy: &[S], sums: &mut [S::Real]) = share_out;
    }

    #[inline(always)]
    fn share_out<S: Element>(plane: &Plane, dy: &[S], sums: &mut [S::Real]) {
        if plane.halves {
            let (width, half) = (plane.input[2], plane.output[2]);
            let written = plane.whole_rows() * width;
            for (rows, dy) in sums[..written].chunks_exact_mut(2 * width).zip(dy.chunks_exact(half.max(1))) {
                let (top, bottom) = rows.split_at_mut(width);
                // What is left of a row of odd length.
                for row in [&mut *top, &mut *bottom] {
                    if let Some(last) = row.get_mut(2 * half) {
                        *last = S::Real::ZERO;
                    }
                }
                let (top, bottom) = (top.as_chunks_mut::<2>().0, bottom.as_chunks_mut::<2>().0);
                match half {
                    8.. => double::<S, 8>(dy, top, bottom),
                    4.. => double::<S, 4>(dy, top, bottom),
                    _ => double::<S, 1>(dy, top, bottom),
                }
            }
            sums[written..].fill(S::Real::ZERO);
            return;
        }
        sums.fill(S::Real::ZERO);
        plane.windows(|i, window| {
            let part = dy[i].widen() / count(window);
            plane.positions(window, |p| sums[p] = sums[p] + part);
        });
    }

    /// What windows give to two rows, `N` at a time, as [`halve`] does.
    #[inline(always)]
    fn double<S: Element, const N: usize>(dy: &[S], top: &mut [[S::Real; 2]], bottom: &mut [[S::Real; 2]]) {
        for i in (0..dy.len()).step_by(N) {
            let i = i.min(dy.len() - N);
            let mut parts = [[S::Real::ZERO; 2]; N];
            for (part, d) in parts.iter_mut().zip(&dy[i..][..N]) {
                *part = [S::Real::ZERO + d.widen() / S::Real::count(4); 2];
            }
            top[i..][..N].copy_from_slice(&parts);
            bottom[i..][..N].copy_from_slice(&parts);
        }
    }
}
