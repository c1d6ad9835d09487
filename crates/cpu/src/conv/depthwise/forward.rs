//! The convolution of groups abreast.

use super::{Bands, Images, Weights, in_parts, lanes, most_bytes, part};
use crate::Context;
use crate::conv::Unfolded;
use crate::conv::window::Window;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::{Element, Real};
use crate::operand::Shared;
use crate::par::with_slots;
use std::mem::MaybeUninit;

/// Levels of the tree over blocks.
const LEVELS: usize = 8;

/// Whether this is the better way.
pub fn suits(u: &Unfolded) -> bool {
    super::suits(&u.window) && u.size.terms.div_ceil(u.size.block) <= 1 << LEVELS
}

/// Numbers of a slot's images and sums.
fn numbers(window: &Window, bands: &Bands) -> [usize; 2] {
    let [slices, rows] = bands.most();
    let sums = slices * rows * window.output[2] * bands.lanes;
    [Images::new(window, [slices, rows], bands.lanes).len(), sums]
}

/// Bytes of scratch memory for [`run`].
pub fn bytes<T: Real>(window: &Window, threads: usize) -> usize {
    most_bytes(|lanes| {
        let slot = numbers(window, &Bands::of_outputs::<T>(window, lanes, threads)).map(room::<T>);
        Weights::<T>::bytes(window, lanes) + threads * slot.iter().sum::<usize>()
    })
}

/// A line of positions.
struct Line<'a, T> {
    /// The images at the first position.
    x: *const T,
    /// The weights, tap by tap.
    w: *const T,
    /// Offsets of the taps.
    taps: &'a [isize],
    /// Taps of a block.
    block: usize,
    /// Positions, and their distance in the images.
    count: usize,
    step: usize,
    out: *mut T,
}

#[inline(always)]
fn line_of<T: Real>(line: &Line<T>, lanes: usize) {
    if lanes == 16 { sums_of_line::<T, 16>(line) } else { sums_of_line::<T, 8>(line) }
}

#[inline(always)]
fn sums_of_line<T: Real, const LANES: usize>(line: &Line<T>) {
    in_parts!(line.count, [1, 2, 3, 4, 5, 6, 7, 8], sums::<T, LANES>(line));
}

/// The sums of `COUNT` positions.
#[inline(always)]
fn sums<T: Real, const LANES: usize, const COUNT: usize>(line: &Line<T>, first: usize) {
    let mut acc = [[T::ZERO; LANES]; COUNT];
    let mut tree = [MaybeUninit::<[[T; LANES]; COUNT]>::uninit(); LEVELS];
    let (mut blocks, mut w, mut taps) = (0usize, line.w.cast::<[T; LANES]>(), line.taps);
    let x = line.x.wrapping_add(first * line.step);
    loop {
        let (here, rest) = taps.split_at(taps.len().min(line.block));
        for &tap in here {
            // SAFETY: a weight of every tap, and an element of the images for every position and tap.
            let weight = unsafe { *w };
            w = w.wrapping_add(1);
            for (i, sum) in acc.iter_mut().enumerate() {
                // SAFETY: as above.
                let x = unsafe { *x.wrapping_add(i * line.step).wrapping_offset(tap).cast::<[T; LANES]>() };
                *sum = std::array::from_fn(|lane| weight[lane].fma(x[lane], sum[lane]));
            }
        }
        taps = rest;
        if taps.is_empty() {
            break;
        }
        let level = blocks.trailing_ones() as usize;
        for finished in &tree[..level] {
            // SAFETY: the levels of the blocks that were counted are written.
            add(unsafe { finished.assume_init_ref() }, &mut acc);
        }
        tree[level].write(acc);
        acc = [[T::ZERO; LANES]; COUNT];
        blocks += 1;
    }
    while blocks != 0 {
        // SAFETY: as above.
        add(unsafe { tree[blocks.trailing_zeros() as usize].assume_init_ref() }, &mut acc);
        blocks &= blocks - 1;
    }
    for (i, sum) in acc.into_iter().enumerate() {
        // SAFETY: room for every position.
        unsafe { *line.out.cast::<[T; LANES]>().add(first + i) = sum };
    }
}

/// Adds sums to the right of others.
#[inline(always)]
fn add<T: Real, const LANES: usize, const COUNT: usize>(left: &[[T; LANES]; COUNT], right: &mut [[T; LANES]; COUNT]) {
    for (left, right) in left.as_flattened().iter().zip(right.as_flattened_mut()) {
        *right = *left + *right;
    }
}

meshwork_simd::multiversion! {
    fn compute<T: Real>(line: &Line<T>, lanes: usize) = line_of;
}

/// The convolution.
///
/// # Safety
/// The operands must be dense and hold their elements, the output its own; the arena must have [`bytes`], and the processor
/// be able to run the context's level.
pub unsafe fn run<S: Element>(u: &Unfolded, x: &[S], w: &[S], out: *mut S, mut arena: Arena, context: Context) {
    let (window, level, threads) = (&u.window, context.level, context.par.lanes());
    let bands = Bands::of_outputs::<S::Real>(window, lanes(level), threads);
    let numbers = numbers(window, &bands);
    let rooms = arena.slots(threads, numbers.map(room::<S::Real>).iter().sum());
    let weights = Weights::new(window, w, level, &mut arena, context.par);
    let (positions, outputs) = (window.positions(), window.outputs);
    let images = Images::new(window, bands.most(), bands.lanes);
    let taps = images.taps();
    let out = Shared(out);
    with_slots(context.par, threads, bands.tasks(window), |slot, task| {
        let mut room = rooms.room(slot);
        let (staged, sums): (*mut S::Real, *mut S::Real) = (room.take(numbers[0]), room.take(numbers[1]));
        let task = bands.task(window, task);
        let (part_of, band, groups) = (task.part, bands.band(task.band), bands.part(task.part));
        let first = (band[0].start * window.output[1] + band[1].start) * window.output[2];
        let count = band[0].len() * band[1].len() * window.output[2];
        for (i, sample) in task.samples.enumerate() {
            let group = sample * window.groups + groups.start;
            // SAFETY: the slot's rooms; operands of the caller; the task's part of the result.
            unsafe {
                images.join(level, x.as_ptr().add(group * window.plane()), groups.len(), &band, i > 0, staged);
                for output in 0..outputs {
                    for line in 0..band[0].len() * band[1].len() {
                        let (slice, row) = (line / band[1].len(), line % band[1].len());
                        let line = Line {
                            x: staged.add(images.line(slice, row)),
                            w: weights.of(part_of).add(output * taps.len() * bands.lanes),
                            taps: &taps,
                            block: u.size.block,
                            count: window.output[2],
                            step: images.step(),
                            out: sums.add(line * window.output[2] * bands.lanes),
                        };
                        compute(level, &line, bands.lanes);
                    }
                    let to = out.pointer().add((group * outputs + output) * positions + first);
                    part(level, sums, count, to, [groups.len(), outputs * positions]);
                }
            }
        }
    });
}
