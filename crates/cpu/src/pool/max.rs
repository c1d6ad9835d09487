//! In every window the element of `v` where `x` has its maximum, and the gradient by `v` ([`gradient`]).
//!
//! The first maximum counts, and the first NaN before all others. A window without any position inside the input
//! gives −∞ and takes no gradient.

use super::passes::{blocks, in_fours};
use super::phases::{Cut, Line, Part, Phases, Tap, narrow_row, widen_row};
use super::windows::Plane;
use super::{accumulate, plane_bytes, planes};
use crate::Context;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::{Element, Real};
use crate::number::for_float;
use crate::operand::{Operand, Output, Shared};
use crate::par::with_slots;
use meshwork_graph::ops::{MaxPool, MaxPoolInput, Windows};
use meshwork_graph::{DType, Layout, Shape};
use std::ops::Range;

/// Of a window in which nothing is more than −∞.
const NOWHERE: u32 = u32::MAX;

/// Bytes of a slot: the phases of the input, then numbers and taps laid out as windows.
fn slot_bytes<S: Element>(phases: &Phases, cut: Cut) -> usize {
    let distance = phases.distance(cut);
    room::<S::Real>((phases.count() + 1) * distance) + room::<u32>(distance)
}

/// Bytes of scratch memory for [`run`].
pub fn scratch(op: &MaxPool, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    for_float!("pooling", dtype, forward_scratch(op, &inputs[0].shape, threads))
}

fn phases(windows: &Windows, shape: &[usize], cut: Cut, threads: usize) -> Option<Phases> {
    Phases::new(windows, shape[0] * shape[1], &shape[2..], cut, threads)
}

fn forward_scratch<S: Element>(op: &MaxPool, shape: &Shape, threads: usize) -> usize {
    let phases = phases(&op.windows, shape, Cut::Windows, threads);
    phases.map_or(0, |phases| threads * slot_bytes::<S>(&phases, Cut::Windows))
}

/// The elements: inputs x and v.
pub fn run(op: &MaxPool, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    for_float!("pooling", output.dtype, forward(op, inputs, output, scratch, context))
}

fn forward<S: Element>(op: &MaxPool, inputs: &[Operand], mut output: Output, scratch: &mut [u8], context: Context) {
    let (x, v, shape) = (inputs[0].slice::<S>(), inputs[1].slice::<S>(), inputs[0].shape());
    let plane = Plane::new(&op.windows, &shape[2..], false);
    let out = Shared(output.slice::<S>().as_mut_ptr());
    let threads = context.par.lanes();
    if !plane.halves
        && let Some(phases) = phases(&op.windows, shape, Cut::Windows, threads)
    {
        let bytes = slot_bytes::<S>(&phases, Cut::Windows);
        let rooms = Arena::new(scratch).slots(threads, bytes);
        let [x, v] = [x, v].map(|x| Shared(x.as_ptr().cast_mut()));
        return with_slots(context.par, threads, phases.tasks(), |slot, task| {
            // SAFETY: the operands have all planes; the windows of the result belong to this task, the room to its slot.
            maxima_of_part(context.level, &phases, task, x.pointer(), v.pointer(), rooms.room(slot), out.pointer());
        });
    }
    let (from, to) = (plane.input_len(), plane.output_len());
    planes(shape, context, &|i| {
        // SAFETY: the plane of the result belongs to this task.
        let out = unsafe { { out }.slice(i * to, to) };
        select(context.level, &plane, &x[i * from..][..from], &v[i * from..][..from], out);
    });
}

crate::multiversion! {
    fn maxima_of_part<S: Element>(
        phases: &Phases,
        task: usize,
        x: *const S,
        v: *const S,
        room: Arena,
        out: *mut S,
    ) = maxima_in_phases;
}

#[inline(always)]
fn maxima_in_phases<S: Element>(phases: &Phases, task: usize, x: *const S, v: *const S, mut room: Arena, out: *mut S) {
    let (part, distance) = (phases.part(Cut::Windows, task), phases.distance(Cut::Windows));
    let staged: *mut S::Real = room.take((phases.count() + 1) * distance);
    let best = staged.wrapping_add(phases.count() * distance);
    let taps = phases.taps(&part);
    // SAFETY: the operands' planes, and the room's phases and windows.
    unsafe {
        phases.split(&part, x, S::Real::LEAST, staged, distance);
        if std::ptr::eq(x, v) {
            let taps: Vec<usize> = taps.iter().map(|tap| tap.phase * distance + tap.shift).collect();
            for block in blocks(part.written()) {
                let best = std::slice::from_raw_parts_mut(best.add(block.start), block.len());
                in_fours!(taps, raise::<S::Real>(staged.wrapping_add(block.start), best));
            }
            for line in phases.windows(&part) {
                let best = std::slice::from_raw_parts(best.add(line.at), line.count);
                narrow_row(best, std::slice::from_raw_parts_mut(out.add(line.number), line.count));
            }
            return;
        }
        let places: *mut u32 = room.take(distance);
        find(staged, distance, &taps, best, places, part.written());
        for Line { at, number, count, window: [slice, row, column] } in phases.windows(&part) {
            let plane = phases.plane(number);
            for i in 0..count {
                let place = *places.add(at + i);
                let mut inside = phases.positions([slice, row, column + i]);
                let place = match place {
                    NOWHERE => inside.next(),
                    place => inside.find(|(tap, _)| *tap == place as usize),
                };
                let value = place.map_or(S::narrow(S::Real::LEAST), |(_, at)| *v.add(plane + at));
                *out.add(number + i) = value;
            }
        }
    }
}

/// Takes the maxima of some taps into those before.
#[inline(always)]
fn raise<T: Real, const N: usize, const FIRST: bool>(taps: [usize; N], from: *const T, best: &mut [T]) {
    let from = taps.map(|tap| from.wrapping_add(tap));
    for (i, best) in best.iter_mut().enumerate() {
        // SAFETY: as the caller of `blocks` has promised.
        let from = from.map(|from| unsafe { *from.add(i) });
        let mut most = if FIRST { from[0] } else { *best };
        for x in from.into_iter().skip(usize::from(FIRST)) {
            most = if beats(x, most) { x } else { most };
        }
        *best = most;
    }
}

/// The number of the tap where each window of a range has its maximum.
///
/// # Safety
/// The phases must be there, and the windows, and as many more as passes take at a time.
#[inline(always)]
unsafe fn find<T: Real>(
    from: *const T,
    distance: usize,
    taps: &[Tap],
    best: *mut T,
    places: *mut u32,
    range: Range<usize>,
) {
    for block in blocks(range) {
        // SAFETY: the caller's promise.
        let (best, places) = unsafe {
            (
                std::slice::from_raw_parts_mut(best.add(block.start), block.len()),
                std::slice::from_raw_parts_mut(places.add(block.start), block.len()),
            )
        };
        in_fours!(taps, improve::<T>(from.wrapping_add(block.start), distance, best, places));
    }
}

#[inline(always)]
fn improve<T: Real, const N: usize, const FIRST: bool>(
    taps: [Tap; N],
    from: *const T,
    distance: usize,
    best: &mut [T],
    places: &mut [u32],
) {
    let from = taps.map(|tap| from.wrapping_add(tap.phase * distance + tap.shift));
    let first = taps[0].number as u32;
    for (i, (best, place)) in best.iter_mut().zip(places).enumerate() {
        let mut most = if FIRST { (T::LEAST, NOWHERE) } else { (*best, *place) };
        for (k, from) in from.into_iter().enumerate() {
            // SAFETY: the promise of `find`.
            most = better(most, (unsafe { *from.add(i) }, first + k as u32));
        }
        (*best, *place) = most;
    }
}

crate::multiversion! {
    fn select<S: Element>(plane: &Plane, x: &[S], v: &[S], out: &mut [S]) = select_from;
}

/// Whether a later element takes the place of the best one so far.
#[inline(always)]
#[allow(clippy::eq_op, clippy::neg_cmp_op_on_partial_ord)]
fn beats<T: Real>(x: T, best: T) -> bool {
    // Only NaN differs from itself. No short circuits: this becomes a mask.
    (best == best) & !(x <= best)
}

/// The better of two pairs of x and something else.
#[inline(always)]
fn better<T: Real, V: Copy>(best: (T, V), other: (T, V)) -> (T, V) {
    let takes = beats(other.0, best.0);
    (if takes { other.0 } else { best.0 }, if takes { other.1 } else { best.1 })
}

#[inline(always)]
fn select_from<S: Element>(plane: &Plane, x: &[S], v: &[S], out: &mut [S]) {
    if plane.halves {
        let (width, half) = (plane.input[2], plane.output[2]);
        let rows = x.chunks_exact(2 * width).zip(v.chunks_exact(2 * width)).zip(out.chunks_exact_mut(half.max(1)));
        for ((x, v), out) in rows {
            let pairs = |rows: &'_ [S]| -> (*const [S; 2], *const [S; 2]) {
                (rows[..width].as_ptr().cast(), rows[width..].as_ptr().cast())
            };
            let ((x_top, x_bottom), (v_top, v_bottom)) = (pairs(x), pairs(v));
            for (i, to) in out.iter_mut().enumerate() {
                // SAFETY: both rows have two elements for each of the windows.
                let (x, y, v, w) = unsafe { (*x_top.add(i), *x_bottom.add(i), *v_top.add(i), *v_bottom.add(i)) };
                let top = better((x[0].widen(), v[0]), (x[1].widen(), v[1]));
                *to = better(better(top, (y[0].widen(), w[0])), (y[1].widen(), w[1])).1;
            }
        }
        return;
    }
    plane.windows(|i, window| {
        let best = first_maximum(plane, window, x);
        out[i] = best.map_or(S::narrow(S::Real::LEAST), |p| v[p]);
    });
}

/// The position of a window's maximum.
#[inline(always)]
fn first_maximum<S: Element>(plane: &Plane, window: [&super::windows::Span; 3], x: &[S]) -> Option<usize> {
    let mut best: Option<(S::Real, usize)> = None;
    plane.positions(window, |p| {
        let other = (x[p].widen(), p);
        best = Some(best.map_or(other, |best| better(best, other)));
    });
    best.map(|best| best.1)
}

/// The gradient by v: inputs x and dy.
pub mod gradient {
    use super::*;

    /// Bytes of scratch memory for [`run`].
    pub fn scratch(op: &MaxPoolInput, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
        for_float!("pooling", dtype, backward_scratch(op, &inputs[0].shape, threads))
    }

    fn backward_scratch<S: Element>(op: &MaxPoolInput, shape: &Shape, threads: usize) -> usize {
        // Numbers as windows twice: the maxima and the gradients by them.
        let bytes =
            |phases: &Phases| slot_bytes::<S>(phases, Cut::Inputs) + room::<S::Real>(phases.distance(Cut::Inputs));
        let phases = phases(&op.windows, shape, Cut::Inputs, threads);
        phases.map_or(0, |phases| threads * bytes(&phases)).max(plane_bytes::<S>(&shape[2..], threads))
    }

    /// The gradient by v.
    pub fn run(op: &MaxPoolInput, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
        for_float!("pooling", output.dtype, backward(op, inputs, output, scratch, context))
    }

    fn backward<S: Element>(
        op: &MaxPoolInput,
        inputs: &[Operand],
        mut output: Output,
        scratch: &mut [u8],
        context: Context,
    ) {
        let (x, dy, shape) = (inputs[0].slice::<S>(), inputs[1].slice::<S>(), inputs[0].shape());
        let threads = context.par.lanes();
        if let Some(phases) = phases(&op.windows, shape, Cut::Inputs, threads) {
            let bytes = slot_bytes::<S>(&phases, Cut::Inputs) + room::<S::Real>(phases.distance(Cut::Inputs));
            let rooms = Arena::new(scratch).slots(threads, bytes);
            let out = Shared(output.slice::<S>().as_mut_ptr());
            let [x, dy] = [x, dy].map(|x| Shared(x.as_ptr().cast_mut()));
            return with_slots(context.par, threads, phases.tasks(), |slot, task| {
                // SAFETY: the operands have all planes; the inputs of the result belong to this task, the room to its slot.
                give_in_part(context.level, &phases, task, x.pointer(), dy.pointer(), rooms.room(slot), out.pointer());
            });
        }
        let plane = Plane::new(&op.windows, &shape[2..], false);
        let (from, windows) = (plane.input_len(), plane.output_len());
        accumulate(output.slice::<S>(), &plane, scratch, context, &|i, sums| {
            scatter(context.level, &plane, &x[i * from..][..from], &dy[i * windows..][..windows], sums);
        });
    }

    crate::multiversion! {
        fn give_in_part<S: Element>(
            phases: &Phases,
            task: usize,
            x: *const S,
            dy: *const S,
            room: Arena,
            out: *mut S,
        ) = give_in_phases;
    }

    #[inline(always)]
    fn give_in_phases<S: Element>(
        phases: &Phases,
        task: usize,
        x: *const S,
        dy: *const S,
        mut room: Arena,
        out: *mut S,
    ) {
        let (part, distance, margin) =
            (phases.part(Cut::Inputs, task), phases.distance(Cut::Inputs), phases.margin(Cut::Inputs));
        let staged: *mut S::Real = room.take((phases.count() + 1) * distance);
        let best = staged.wrapping_add(phases.count() * distance);
        let (given, places): (*mut S::Real, *mut u32) = (room.take(distance), room.take(distance));
        // SAFETY: the operands' planes, and the room's phases and windows.
        unsafe {
            std::slice::from_raw_parts_mut(given, distance).fill(S::Real::ZERO);
            let (given, places) = (given.add(margin), places.add(margin));
            for line in phases.windows(&part) {
                let dy = std::slice::from_raw_parts(dy.add(line.number), line.count);
                widen_row(dy, std::slice::from_raw_parts_mut(given.add(line.at), line.count));
            }
            phases.split(&part, x, S::Real::LEAST, staged, distance);
            find(staged, distance, &phases.taps(&part), best, places, 0..part.len());
            settle(phases, &part, given, places);
            for (phase, taps) in phases.by_phase(&part).iter().enumerate() {
                let sums = staged.add(phase * distance);
                for block in blocks(part.written()) {
                    let sums = std::slice::from_raw_parts_mut(sums.add(block.start), block.len());
                    if taps.is_empty() {
                        sums.fill(S::Real::ZERO);
                    }
                    in_fours!(taps, give::<S::Real>(given.add(block.start), places.add(block.start), sums));
                }
            }
            phases.join(&part, staged, distance, out);
        }
    }

    /// Finds the maxima that are −∞ of those windows that give something: their first positions.
    ///
    /// # Safety
    /// The windows must be there.
    #[inline(always)]
    unsafe fn settle<T: Real>(phases: &Phases, part: &Part, given: *const T, places: *mut u32) {
        // SAFETY: the caller's promise.
        let (all, of_all) =
            unsafe { (std::slice::from_raw_parts(given, part.len()), std::slice::from_raw_parts(places, part.len())) };
        let mut missing = false;
        for (place, given) in of_all.iter().zip(all) {
            missing |= (*place == NOWHERE) & (*given != T::ZERO);
        }
        if !missing {
            return;
        }
        for Line { at, count, window: [slice, row, column], .. } in phases.windows(part) {
            for i in 0..count {
                // SAFETY: as above.
                let place = unsafe { &mut *places.add(at + i) };
                if *place == NOWHERE
                    && let Some((tap, _)) = phases.positions([slice, row, column + i]).next()
                {
                    *place = tap as u32;
                }
            }
        }
    }

    /// Adds what windows give to the places that they have at some taps, in their order. A sum that begins with +0 is never −0, so +0
    /// changes none.
    #[inline(always)]
    fn give<T: Real, const N: usize, const FIRST: bool>(
        taps: [Tap; N],
        given: *const T,
        places: *const u32,
        sums: &mut [T],
    ) {
        let from = taps.map(|tap| (given.wrapping_sub(tap.shift), places.wrapping_sub(tap.shift), tap.number as u32));
        for (i, to) in sums.iter_mut().enumerate() {
            let mut sum = if FIRST { T::ZERO } else { *to };
            for (given, places, number) in from {
                // SAFETY: windows, or what lies between or before them, which gives nothing.
                let (given, place) = unsafe { (*given.add(i), *places.add(i)) };
                sum = sum + if place == number { given } else { T::ZERO };
            }
            *to = sum;
        }
    }

    crate::multiversion! {
        fn scatter<S: Element>(plane: &Plane, x: &[S], dy: &[S], sums: &mut [S::Real]) = scatter_to;
    }

    #[inline(always)]
    fn scatter_to<S: Element>(plane: &Plane, x: &[S], dy: &[S], sums: &mut [S::Real]) {
        sums.fill(S::Real::ZERO);
        plane.windows(|i, window| {
            if let Some(p) = first_maximum(plane, window, x) {
                sums[p] = sums[p] + dy[i].widen();
            }
        });
    }
}
