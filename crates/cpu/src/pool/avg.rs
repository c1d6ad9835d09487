//! The mean of every window, and its gradient ([`gradient`]).

use super::passes::{blocks, in_fours};
use super::phases::{Cut, LINE, Part, Phases};
use super::windows::{Plane, Span, are_halves};
use super::{TASK, accumulate, plane_bytes, planes};
use crate::Context;
use crate::Level;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::{Element, Real};
use crate::number::for_float;
use crate::operand::{Operand, Output, Shared};
use crate::par::with_slots;
use meshwork_graph::ops::{AvgPool, AvgPoolInput};
use meshwork_graph::{DType, Layout, Shape};
use std::ops::Range;

/// How the windows over an input of this shape are computed, but for those that are [halves](are_halves) or not evenly apart.
fn phases(op: &AvgPool, shape: &[usize], owned: Cut, threads: usize) -> Option<Phases> {
    let phases = || Phases::new(&op.windows, shape[0] * shape[1], &shape[2..], owned, threads);
    if are_halves(&op.windows, &shape[2..]) { None } else { phases() }
}

/// Numbers of a slot: the phases of the input, and what is laid out as windows. None for [runs](LONG).
fn numbers(phases: &Phases) -> usize {
    match phases.runs(LONG) {
        Some(_) => 0,
        None => phases.all_phases().next_multiple_of(LINE) + phases.all_windows(),
    }
}

/// Bytes of scratch memory for [`run`].
pub fn scratch(op: &AvgPool, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    for_float!("pooling", dtype, forward_scratch(op, &inputs[0].shape, threads))
}

fn forward_scratch<S: Element>(op: &AvgPool, shape: &Shape, threads: usize) -> usize {
    phases(op, shape, Cut::Windows, threads).map_or(0, |phases| threads * room::<S::Real>(numbers(&phases)))
}

/// The means: input x.
pub fn run(op: &AvgPool, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    for_float!("pooling", output.dtype, forward(op, inputs, output, scratch, context))
}

fn forward<S: Element>(op: &AvgPool, inputs: &[Operand], mut output: Output, scratch: &mut [u8], context: Context) {
    let (x, shape) = (inputs[0].slice::<S>(), inputs[0].shape());
    let (out, windows) = (Shared(output.slice::<S>().as_mut_ptr()), output.slice::<S>().len());
    let threads = context.par.lanes();
    if let Some(phases) = phases(op, shape, Cut::Windows, threads) {
        if let Some(run) = phases.runs(LONG) {
            let x = Shared(x.as_ptr().cast_mut());
            return context.par.ranges(windows, 1 + TASK / run[1], &move |range| {
                // SAFETY: the windows of this task, and their runs.
                let out = unsafe { { out }.slice(range.start, range.len()) };
                means_of_runs(context.level, run, x.pointer().wrapping_add(range.start * run[1]), out);
            });
        }
        let counts = phases.counts(op.count_include_pad);
        let rooms = Arena::new(scratch).slots(threads, room::<S::Real>(numbers(&phases)));
        let x = Shared(x.as_ptr().cast_mut());
        return with_slots(context.par, threads, phases.tasks(), |slot, task| {
            let (part, room) = (phases.part(task), rooms.room(slot).take(numbers(&phases)));
            // SAFETY: the operand has all planes; the windows of the result belong to this task, the room to its slot.
            unsafe { means_in(context.level, &phases, &counts, &part, x.pointer(), room, out.pointer()) };
        });
    }
    let plane = Plane::new(&op.windows, &shape[2..], op.count_include_pad);
    let (from, to) = (plane.input_len(), plane.output_len());
    planes(shape, context, &|i| {
        // SAFETY: the plane of the result belongs to this task.
        let out = unsafe { { out }.slice(i * to, to) };
        means(context.level, &plane, &x[i * from..][..from], out);
    });
}

/// Windows that are runs of so many elements are not laid out in phases: there would be few in each.
const LONG: usize = 12;

/// Windows whose sums hide each other's latency.
const ABREAST: usize = 16;

meshwork_simd::multiversion! {
    fn means_of_runs<S: Element>(run: [usize; 2], x: *const S, out: &mut [S]) = means_along_runs;
}

/// The means of runs, of which `x` has one for each.
#[inline(always)]
fn means_along_runs<S: Element>([kernel, stride]: [usize; 2], x: *const S, out: &mut [S]) {
    let (groups, rest) = out.as_chunks_mut::<ABREAST>();
    let done = groups.len() * ABREAST;
    for (i, out) in groups.iter_mut().enumerate() {
        *out = means_of_some::<S, ABREAST>(kernel, stride, x.wrapping_add(i * ABREAST * stride));
    }
    for (i, out) in rest.iter_mut().enumerate() {
        [*out] = means_of_some::<S, 1>(kernel, stride, x.wrapping_add((done + i) * stride));
    }
}

#[inline(always)]
fn means_of_some<S: Element, const N: usize>(kernel: usize, stride: usize, x: *const S) -> [S; N] {
    let mut sums = [S::Real::ZERO; N];
    for i in 0..kernel {
        for (run, sum) in sums.iter_mut().enumerate() {
            // SAFETY: an element of a run.
            *sum = *sum + unsafe { *x.add(run * stride + i) }.widen();
        }
    }
    sums.map(|sum| S::narrow(sum / S::Real::count(kernel)))
}

/// # Safety
/// The operand must have all planes, the result all windows, and the room as many numbers as a slot needs.
unsafe fn means_in<S: Element>(
    level: Level,
    phases: &Phases,
    counts: &[Vec<usize>; 3],
    part: &Part,
    x: *const S,
    room: *mut S::Real,
    out: *mut S,
) {
    let distance = phases.distance();
    let sums = room.wrapping_add(phases.all_phases().next_multiple_of(LINE));
    let taps: Vec<isize> = phases.taps(part).iter().map(|tap| (tap.phase * distance + tap.shift) as isize).collect();
    // SAFETY: the caller's promise.
    unsafe {
        phases.split(level, part, x, S::Real::ZERO, room);
        add_up(level, room, &taps, sums, part.written());
        divide(level, phases, part, counts, sums, part.written());
        phases.join_windows(level, part, sums, out);
    }
}

meshwork_simd::multiversion! {
    fn divide<T: Real>(
        phases: &Phases,
        part: &Part,
        counts: &[Vec<usize>; 3],
        to: *mut T,
        all: Range<usize>,
    ) = divide_windows;
}

/// Divides windows, which lie in a range, by what their means count.
#[inline(always)]
fn divide_windows<T: Real>(phases: &Phases, part: &Part, counts: &[Vec<usize>; 3], to: *mut T, all: Range<usize>) {
    if let [[a], [b], [c]] = counts.each_ref().map(Vec::as_slice) {
        let count = T::count(a * b * c);
        // SAFETY: windows of a slot's room.
        let to = unsafe { std::slice::from_raw_parts_mut(to.add(all.start), all.len()) };
        for to in to {
            *to = *to / count;
        }
        return;
    }
    let of = |d: usize, i: usize| *counts[d].get(i).unwrap_or(&counts[d][0]);
    for line in phases.lines(part) {
        let [x, y, z] = line.window;
        for plane in 0..part.planes.len() {
            let to = to.wrapping_add(plane * part.plane + line.at);
            for i in 0..line.count {
                // SAFETY: a window of a slot's room.
                let to = unsafe { &mut *to.add(i * part.step) };
                *to = *to / T::count(of(0, x) * of(1, y) * of(2, z + i));
            }
        }
    }
}

meshwork_simd::multiversion! {
    fn add_up<T: Real>(from: *const T, taps: &[isize], to: *mut T, range: Range<usize>) = add_up_taps;
}

/// Adds up what taps give, from +0, in their order: for every place of a range what lies there behind each of `taps`, in a slot's
/// room.
#[inline(always)]
fn add_up_taps<T: Real>(from: *const T, taps: &[isize], to: *mut T, range: Range<usize>) {
    for block in blocks(range) {
        // SAFETY: places of the room, and as many more as passes take at a time.
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
            // SAFETY: as above.
            sum = sum + unsafe { *from.add(i) };
        }
        *to = sum;
    }
}

meshwork_simd::multiversion! {
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
        let in_phases = phases.map_or(0, |phases| threads * room::<S::Real>(numbers(&phases)));
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
        let threads = context.par.lanes();
        if let Some(phases) = phases(&op.pool, &input(op, inputs[0].shape()), Cut::Inputs, threads) {
            if let Some([kernel, stride]) = phases.runs(LONG) {
                let out = Shared(output.slice::<S>().as_mut_ptr());
                return context.par.ranges(dy.len(), 1 + TASK / stride, &move |range| {
                    // SAFETY: the runs of the windows of this task.
                    let out = unsafe { { out }.slice(range.start * stride, range.len() * stride) };
                    for (d, out) in dy[range].iter().zip(out.chunks_exact_mut(stride)) {
                        let part = S::narrow(S::Real::ZERO + d.widen() / S::Real::count(kernel));
                        out[..kernel].fill(part);
                        out[kernel..].fill(S::narrow(S::Real::ZERO));
                    }
                });
            }
            let counts = phases.counts(op.pool.count_include_pad);
            let rooms = Arena::new(scratch).slots(threads, room::<S::Real>(numbers(&phases)));
            let (dy, out) = (Shared(dy.as_ptr().cast_mut()), Shared(output.slice::<S>().as_mut_ptr()));
            return with_slots(context.par, threads, phases.tasks(), |slot, task| {
                let (part, room) = (phases.part(task), rooms.room(slot).take(numbers(&phases)));
                // SAFETY: the operand has all windows; the inputs of the result belong to this task, the room to its slot.
                unsafe { share_in(context.level, &phases, &counts, &part, dy.pointer(), room, out.pointer()) };
            });
        }
        let plane = Plane::new(&op.pool.windows, &op.size, op.pool.count_include_pad);
        let windows = plane.output_len();
        accumulate(output.slice::<S>(), &plane, scratch, context, &|i, sums| {
            share(context.level, &plane, &dy[i * windows..][..windows], sums);
        });
    }

    /// # Safety
    /// The operand must have all windows, the result all planes, and the room as many numbers as a slot needs.
    unsafe fn share_in<S: Element>(
        level: Level,
        phases: &Phases,
        counts: &[Vec<usize>; 3],
        part: &Part,
        dy: *const S,
        room: *mut S::Real,
        out: *mut S,
    ) {
        let distance = phases.distance();
        let parts = room.wrapping_add(phases.all_phases().next_multiple_of(LINE));
        // SAFETY: the caller's promise.
        unsafe {
            std::slice::from_raw_parts_mut(parts, phases.all_windows()).fill(S::Real::ZERO);
            let parts = parts.add(phases.margin());
            phases.split_windows(level, part, dy, parts);
            divide(level, phases, part, counts, parts, 0..part.len());
            for (phase, taps) in phases.by_phase(part).iter().enumerate() {
                let taps: Vec<isize> = taps.iter().map(|tap| -(tap.shift as isize)).collect();
                add_up(level, parts, &taps, room.add(phase * distance), part.written());
            }
            phases.join(level, part, room, out);
        }
    }

    meshwork_simd::multiversion! {
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
