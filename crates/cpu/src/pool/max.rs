//! In every window the element of `v` where `x` has its maximum, and the gradient by `v` ([`gradient`]).
//!
//! The first maximum counts, and the first NaN before all others. A window without any position inside the input
//! gives −∞ and takes no gradient.

use super::passes::{blocks, in_fours};
use super::phases::{Cut, Line, Part, Phases, Tap};
use super::rows::narrow_row;
use super::windows::{Plane, are_halves};
use super::{accumulate, plane_bytes, planes};
use crate::Context;
use crate::Level;
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

fn phases(windows: &Windows, shape: &[usize], owned: Cut, threads: usize) -> Option<Phases> {
    // What is to be found in halves is not copied.
    let as_they_lie = owned == Cut::Windows && are_halves(windows, &shape[2..]);
    let phases = || Phases::new(windows, shape[0] * shape[1], &shape[2..], owned, threads);
    if as_they_lie { None } else { phases() }
}

/// Bytes of a slot: the phases of the input and what [`find`] needs.
fn slot_bytes<S: Element>(phases: &Phases) -> usize {
    let windows = results(phases) * phases.all_windows();
    room::<S::Real>(phases.all_phases()) + room::<S::Real>(windows) + room::<u32>(windows)
}

/// Bytes of scratch memory for [`run`].
pub fn scratch(op: &MaxPool, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    for_float!("pooling", dtype, forward_scratch(op, &inputs[0].shape, threads))
}

fn forward_scratch<S: Element>(op: &MaxPool, shape: &Shape, threads: usize) -> usize {
    phases(&op.windows, shape, Cut::Windows, threads).map_or(0, |phases| threads * slot_bytes::<S>(&phases))
}

/// The elements: inputs x and v.
pub fn run(op: &MaxPool, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    for_float!("pooling", output.dtype, forward(op, inputs, output, scratch, context))
}

fn forward<S: Element>(op: &MaxPool, inputs: &[Operand], mut output: Output, scratch: &mut [u8], context: Context) {
    let (x, v, shape) = (inputs[0].slice::<S>(), inputs[1].slice::<S>(), inputs[0].shape());
    let out = Shared(output.slice::<S>().as_mut_ptr());
    let threads = context.par.lanes();
    if let Some(phases) = phases(&op.windows, shape, Cut::Windows, threads) {
        let rooms = Arena::new(scratch).slots(threads, slot_bytes::<S>(&phases));
        let [x, v] = [x, v].map(|x| Shared(x.as_ptr().cast_mut()));
        return with_slots(context.par, threads, phases.tasks(), |slot, task| {
            let (part, room) = (phases.part(task), rooms.room(slot));
            // SAFETY: the operands have all planes; the windows of the result belong to this task, the room to its slot.
            unsafe { maxima(context.level, &phases, &part, x.pointer(), v.pointer(), room, out.pointer()) };
        });
    }
    let plane = Plane::new(&op.windows, &shape[2..], false);
    let (from, to) = (plane.input_len(), plane.output_len());
    planes(shape, context, &|i| {
        // SAFETY: the plane of the result belongs to this task.
        let out = unsafe { { out }.slice(i * to, to) };
        select(context.level, &plane, &x[i * from..][..from], &v[i * from..][..from], out);
    });
}

/// # Safety
/// The operands must have all planes, the result all windows, and the room what a slot needs.
unsafe fn maxima<S: Element>(
    level: Level,
    phases: &Phases,
    part: &Part,
    x: *const S,
    v: *const S,
    room: Arena,
    out: *mut S,
) {
    // SAFETY: the caller's promise.
    unsafe {
        if std::ptr::eq(x, v) {
            let found = find::<S>(level, phases, part, x, room, part.written(), false);
            return phases.join_windows(level, part, found.best, out);
        }
        let found = find::<S>(level, phases, part, x, room, part.written(), true);
        let (lines, offsets) = (phases.lines(part), phases.offsets());
        for plane in 0..part.planes.len() {
            let v = v.wrapping_add((part.planes.start + plane) * phases.size());
            let out = out.wrapping_add((part.planes.start + plane) * phases.windows());
            for line in &lines {
                let (out, places) =
                    (out.add(phases.window(line.window)), found.places.add(plane * part.plane + line.at));
                for i in 0..line.count {
                    let position = position(phases, &offsets, line, i, *places.add(i * part.step));
                    *out.add(i) = position.map_or(S::narrow(S::Real::LEAST), |at| *v.offset(at));
                }
            }
        }
    }
}

/// Where in its plane window `i` of a line has its maximum, at one of the taps, which are at these offsets.
#[inline(always)]
fn position(phases: &Phases, offsets: &[isize], line: &Line, i: usize, place: u32) -> Option<isize> {
    let (begin, stride) = phases.begin(line.window);
    let first = || phases.first_tap(line.nth(i)).map(|tap| offsets[tap]);
    let offset = offsets.get(place as usize).copied().or_else(first)?;
    Some(begin + (i * stride) as isize + offset)
}

/// Whether the maxima of rows are taken first, and then of these: fewer comparisons where windows share rows, but more passes.
/// Either way the first one in row-major order counts.
fn by_rows(phases: &Phases) -> bool {
    let folds = |dims: &Range<usize>| {
        let [_, taps] = phases.counts_in(dims.clone());
        phases.counts_in(0..dims.start)[0] * if taps > 1 { taps + 1 } else { 0 }
    };
    DIMS.iter().map(folds).sum::<usize>() < folds(&ALL)
}

/// The dimensions together, and one after the other.
const ALL: Range<usize> = 0..3;
const DIMS: [Range<usize>; 3] = [2..3, 1..2, 0..1];

fn dims(phases: &Phases) -> &'static [Range<usize>] {
    if by_rows(phases) { &DIMS } else { std::slice::from_ref(&ALL) }
}

/// What is laid out as windows for [`find`].
fn results(phases: &Phases) -> usize {
    dims(phases).iter().map(|dims| phases.counts_in(0..dims.start)[0]).sum()
}

/// The maxima of windows, and the numbers of the taps where they are.
#[derive(Clone, Copy)]
struct Found<T> {
    best: *const T,
    places: *const u32,
}

/// Finds the maxima of the windows in a range, and where they are if `finds_places`.
///
/// # Safety
/// `x` must have all planes, and the room as much as a slot needs.
unsafe fn find<S: Element>(
    level: Level,
    phases: &Phases,
    part: &Part,
    x: *const S,
    mut room: Arena,
    range: Range<usize>,
    finds_places: bool,
) -> Found<S::Real> {
    let (distance, windows) = (phases.distance(), phases.all_windows());
    let staged: *mut S::Real = room.take(phases.all_phases());
    let mut best: *mut S::Real = room.take(results(phases) * windows);
    let mut places: *mut u32 = room.take(results(phases) * windows);
    // SAFETY: the caller's promise.
    unsafe { phases.split(level, part, x, S::Real::LEAST, staged) };
    let none = std::ptr::null();
    let mut from: Vec<_> = (0..phases.count())
        .map(|i| Found { best: staged.wrapping_add(i * distance).cast_const(), places: none })
        .collect();
    // Numbers of taps of the dimensions before.
    let mut unit = 1;
    for dims in dims(phases) {
        let taps = phases.taps_in(part, dims.clone());
        let [stride, kernel] = phases.counts_in(dims.clone());
        // What other dimensions shift is read, too.
        let range = range.start..if dims.start > 0 { part.len() } else { range.end };
        for group in 0..from.len() / stride {
            let of_group = &from[group * stride..][..stride];
            let to = Found { best: best.cast_const(), places: places.cast_const() };
            let source = |tap: &Tap| {
                let Found { best, places } = of_group[tap.phase];
                let shifted = if places.is_null() { places } else { places.wrapping_add(tap.shift) };
                (Found { best: best.wrapping_add(tap.shift), places: shifted }, (tap.number * unit) as u32)
            };
            let sources: Vec<_> = taps.iter().map(source).collect();
            if kernel == 1 {
                from[group] = sources[0].0;
                continue;
            }
            fold(level, &sources, finds_places, range.clone(), best, places);
            (best, places) = (best.wrapping_add(windows), places.wrapping_add(windows));
            from[group] = to;
        }
        from.truncate(from.len() / stride);
        unit *= kernel;
    }
    if finds_places && from[0].places.is_null() {
        // Windows of one element.
        // SAFETY: the caller's promise.
        let places = unsafe { std::slice::from_raw_parts_mut(places.add(range.start), range.len()) };
        places.fill(0);
        from[0].places = places.as_ptr().wrapping_sub(range.start);
    }
    from[0]
}

/// A source of maxima: those of a tap, and its number.
type Source<T> = (Found<T>, u32);

meshwork_simd::multiversion! {
    fn fold<T: Real>(
        sources: &[Source<T>],
        finds_places: bool,
        range: Range<usize>,
        best: *mut T,
        places: *mut u32,
    ) = fold_of;
}

/// The maxima of sources for the windows in a range, and their numbers if `finds_places`.
#[inline(always)]
fn fold_of<T: Real>(sources: &[Source<T>], finds_places: bool, range: Range<usize>, best: *mut T, places: *mut u32) {
    for block in blocks(range) {
        // SAFETY: the promise of `find`'s caller.
        let (best, places) = unsafe {
            (
                std::slice::from_raw_parts_mut(best.add(block.start), block.len()),
                std::slice::from_raw_parts_mut(places.add(block.start), block.len()),
            )
        };
        if !finds_places {
            in_fours!(sources, raise::<T>(block.start, best));
        } else if sources[0].0.places.is_null() {
            in_fours!(sources, improve::<T, false>(block.start, best, places));
        } else {
            in_fours!(sources, improve::<T, true>(block.start, best, places));
        }
    }
}

/// Takes the maxima of some taps into those before.
#[inline(always)]
fn raise<T: Real, const N: usize, const FIRST: bool>(taps: [Source<T>; N], start: usize, best: &mut [T]) {
    let from = taps.map(|(from, _)| from.best.wrapping_add(start));
    for (i, best) in best.iter_mut().enumerate() {
        // SAFETY: the promise of `find`'s caller.
        let from = from.map(|from| unsafe { *from.add(i) });
        let mut most = if FIRST { from[0] } else { *best };
        for x in from.into_iter().skip(usize::from(FIRST)) {
            most = if beats(x, most) { x } else { most };
        }
        *best = most;
    }
}

/// The same with the numbers of the taps, added to those that are there if `NUMBERED`.
#[inline(always)]
fn improve<T: Real, const NUMBERED: bool, const N: usize, const FIRST: bool>(
    taps: [Source<T>; N],
    start: usize,
    best: &mut [T],
    places: &mut [u32],
) {
    let from = taps.map(|(from, number)| (from.best.wrapping_add(start), from.places.wrapping_add(start), number));
    for (i, (best, place)) in best.iter_mut().zip(places).enumerate() {
        let mut most = if FIRST { (T::LEAST, NOWHERE) } else { (*best, *place) };
        for (from, numbers, number) in from {
            // SAFETY: the promise of `find`'s caller.
            let (x, inner) = unsafe { (*from.add(i), if NUMBERED { *numbers.add(i) } else { 0 }) };
            most = better(most, (x, inner.wrapping_add(number)));
        }
        (*best, *place) = most;
    }
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

meshwork_simd::multiversion! {
    fn select<S: Element>(plane: &Plane, x: &[S], v: &[S], out: &mut [S]) = select_from;
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

    /// Taps from which on windows give one after the other, instead of many of them tap by tap.
    const MANY: usize = 16;

    fn gives_one_by_one(phases: &Phases) -> bool {
        phases.owns_ranges() && phases.counts_in(ALL)[1] >= MANY
    }

    /// Bytes of a slot.
    fn slot_bytes<S: Element>(phases: &Phases) -> usize {
        super::slot_bytes::<S>(phases) + room::<S::Real>(phases.all_windows())
    }

    /// Bytes of scratch memory for [`run`].
    pub fn scratch(op: &MaxPoolInput, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
        for_float!("pooling", dtype, backward_scratch(op, &inputs[0].shape, threads))
    }

    fn backward_scratch<S: Element>(op: &MaxPoolInput, shape: &Shape, threads: usize) -> usize {
        let phases = phases(&op.windows, shape, Cut::Inputs, threads);
        let in_phases = phases.map_or(0, |phases| threads * slot_bytes::<S>(&phases));
        in_phases.max(plane_bytes::<S>(&shape[2..], threads))
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
            let rooms = Arena::new(scratch).slots(threads, slot_bytes::<S>(&phases));
            let out = Shared(output.slice::<S>().as_mut_ptr());
            let [x, dy] = [x, dy].map(|x| Shared(x.as_ptr().cast_mut()));
            return with_slots(context.par, threads, phases.tasks(), |slot, task| {
                let (part, room) = (phases.part(task), rooms.room(slot));
                // SAFETY: the operands have all planes; the inputs of the result belong to this task, the room to its slot.
                unsafe { gradient(context.level, &phases, &part, x.pointer(), dy.pointer(), room, out.pointer()) };
            });
        }
        let plane = Plane::new(&op.windows, &shape[2..], false);
        let (from, windows) = (plane.input_len(), plane.output_len());
        accumulate(output.slice::<S>(), &plane, scratch, context, &|i, sums| {
            scatter(context.level, &plane, &x[i * from..][..from], &dy[i * windows..][..windows], sums);
        });
    }

    /// # Safety
    /// The operands must have all planes and windows, and the room what a slot needs.
    unsafe fn gradient<S: Element>(
        level: Level,
        phases: &Phases,
        part: &Part,
        x: *const S,
        dy: *const S,
        mut room: Arena,
        out: *mut S,
    ) {
        let distance = phases.distance();
        let given: *mut S::Real = room.take(phases.all_windows());
        // SAFETY: the caller's promise.
        unsafe {
            let found = find::<S>(level, phases, part, x, room, 0..part.len(), true);
            // Where its phases were.
            let sums: *mut S::Real = room.take(phases.all_phases());
            if gives_one_by_one(phases) {
                return give_one_by_one(level, phases, part, found.places, dy, sums, out);
            }
            std::slice::from_raw_parts_mut(given, phases.all_windows()).fill(S::Real::ZERO);
            let given = given.add(phases.margin());
            phases.split_windows(level, part, dy, given);
            settle(phases, part, given, found.places.cast_mut());
            for (phase, taps) in phases.by_phase(part).iter().enumerate() {
                give(level, taps, given, found.places, sums.add(phase * distance), part.written());
            }
            phases.join(level, part, sums, out);
        }
    }

    /// Finds the maxima that are −∞ of those windows that give something: their first positions.
    ///
    /// # Safety
    /// The windows must be there.
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
        for line in phases.lines(part) {
            for (plane, i) in (0..part.planes.len()).flat_map(|plane| (0..line.count).map(move |i| (plane, i))) {
                // SAFETY: as above.
                let place = unsafe { &mut *places.add(plane * part.plane + line.at + i * part.step) };
                if *place == NOWHERE
                    && let Some(tap) = phases.first_tap(line.nth(i))
                {
                    *place = tap as u32;
                }
            }
        }
    }

    meshwork_simd::multiversion! {
        fn give<T: Real>(
            taps: &[Tap],
            given: *const T,
            places: *const u32,
            sums: *mut T,
            range: Range<usize>,
        ) = give_tap_by_tap;
    }

    /// What windows give to a range of a phase: the sums over the taps that read it, in their order.
    #[inline(always)]
    fn give_tap_by_tap<T: Real>(taps: &[Tap], given: *const T, places: *const u32, sums: *mut T, range: Range<usize>) {
        for block in blocks(range) {
            // SAFETY: the promise of `gradient`'s caller.
            let sums = unsafe { std::slice::from_raw_parts_mut(sums.add(block.start), block.len()) };
            if taps.is_empty() {
                sums.fill(T::ZERO);
            }
            in_fours!(taps, add::<T>(given.wrapping_add(block.start), places.wrapping_add(block.start), sums));
        }
    }

    /// Adds what windows give to the places that they have at some taps. A sum that begins with +0 is never −0, so +0 changes none.
    #[inline(always)]
    fn add<T: Real, const N: usize, const FIRST: bool>(
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

    meshwork_simd::multiversion! {
        fn give_one_by_one<S: Element>(
            phases: &Phases,
            part: &Part,
            places: *const u32,
            dy: *const S,
            sums: *mut S::Real,
            out: *mut S,
        ) = give_window_by_window;
    }

    /// Adds what windows give to their places; `sums` has room for what the part owns.
    #[inline(always)]
    fn give_window_by_window<S: Element>(
        phases: &Phases,
        part: &Part,
        places: *const u32,
        dy: *const S,
        sums: *mut S::Real,
        out: *mut S,
    ) {
        let (lines, offsets, owned) = (phases.lines(part), phases.offsets(), phases.owned(part));
        for plane in 0..part.planes.len() {
            // SAFETY: the promise of `gradient`'s caller.
            let sums = unsafe { std::slice::from_raw_parts_mut(sums, owned.len()) };
            sums.fill(S::Real::ZERO);
            let dy = dy.wrapping_add((part.planes.start + plane) * phases.windows());
            for line in &lines {
                let (dy, places) =
                    (dy.wrapping_add(phases.window(line.window)), places.wrapping_add(plane * part.plane + line.at));
                for i in 0..line.count {
                    // SAFETY: a window.
                    let (place, d) = unsafe { (*places.add(i * part.step), (*dy.add(i)).widen()) };
                    // Windows of which the part has a half give to others, too.
                    if let Some(position) = position(phases, &offsets, line, i, place)
                        && let Some(sum) = sums.get_mut((position - owned.start as isize) as usize)
                    {
                        *sum = *sum + d;
                    }
                }
            }
            let first = (part.planes.start + plane) * phases.size() + owned.start;
            // SAFETY: the part's elements of the result.
            narrow_row(sums, unsafe { std::slice::from_raw_parts_mut(out.add(first), sums.len()) });
        }
    }

    meshwork_simd::multiversion! {
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
