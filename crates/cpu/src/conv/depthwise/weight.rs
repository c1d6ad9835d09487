//! The gradient by the weight for groups abreast: a block of samples is a task, whose sums stay in registers for a band.

use super::{Bands, Images, join, lanes, most_bytes};
use crate::Context;
use crate::conv::Unfolded;
use crate::conv::window::Window;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::{Element, Real};
use crate::operand::Shared;
use crate::par::with_slots;
use meshwork_graph::canonical::in_tree_order;

/// Taps whose sums are held at once.
const TAPS: usize = 9;

/// Numbers of all blocks' sums, at most: more would not stay in the caches.
const PARTIAL: usize = 1 << 22;

/// Whether this is the better way.
pub fn suits(u: &Unfolded) -> bool {
    super::suits(&u.window)
        && blocks(u) * u.window.groups.next_multiple_of(16) * u.window.outputs * u.window.taps() <= PARTIAL
}

fn blocks(u: &Unfolded) -> usize {
    u.size.terms.div_ceil(u.size.block)
}

/// Bands that follow each other in a task.
fn bands<T>(window: &Window, lanes: usize) -> Bands {
    Bands { samples: 1, ..Bands::of_outputs::<T>(window, lanes, 1) }
}

/// Numbers of a slot's images and gradients.
fn numbers(window: &Window, bands: &Bands) -> [usize; 2] {
    let [slices, rows] = bands.most();
    let gradients = slices * rows * window.output[2] * window.outputs * bands.lanes;
    [Images::new(window, [slices, rows], bands.lanes).len(), gradients]
}

/// Bytes of scratch memory for [`run`].
pub fn bytes<T: Real>(u: &Unfolded, threads: usize) -> usize {
    let window = &u.window;
    most_bytes(|lanes| {
        let slot = numbers(window, &bands::<T>(window, lanes)).map(room::<T>);
        let sums = blocks(u) * window.groups.next_multiple_of(lanes) * window.outputs * window.taps();
        room::<T>(sums) + threads * slot.iter().sum::<usize>()
    })
}

/// Lines of a band, and the sums of some taps.
struct Lines<'a, T> {
    x: *const T,
    dy: *const T,
    /// Where the images of each line's first position begin; its gradients follow those of the line before.
    lines: &'a [usize],
    /// Positions of a line, and their distance in the images.
    count: usize,
    step: usize,
    /// Offsets of the taps.
    taps: &'a [isize],
    sums: *mut T,
}

#[inline(always)]
fn lines_of<T: Real>(lines: &Lines<T>, lanes: usize) {
    if lanes == 16 { by_taps::<T, 16>(lines) } else { by_taps::<T, 8>(lines) }
}

#[inline(always)]
fn by_taps<T: Real, const LANES: usize>(lines: &Lines<T>) {
    macro_rules! by_count {
        ($($count:literal)*) => {
            match lines.taps.len() {
                $($count => add_lines::<T, LANES, $count>(lines),)*
                count => unreachable!("{count} taps"),
            }
        };
    }
    by_count!(1 2 3 4 5 6 7 8 9)
}

/// Adds the products of all positions to the sums of `COUNT` taps.
#[inline(always)]
fn add_lines<T: Real, const LANES: usize, const COUNT: usize>(lines: &Lines<T>) {
    let sums = lines.sums.cast::<[[T; LANES]; COUNT]>();
    // SAFETY: the sums of these taps.
    let mut acc = unsafe { *sums };
    let mut dy = lines.dy.cast::<[T; LANES]>();
    let taps: [isize; COUNT] = std::array::from_fn(|i| lines.taps[i]);
    for &line in lines.lines {
        let mut x = lines.x.wrapping_add(line);
        for _ in 0..lines.count {
            // SAFETY: a gradient of every position, and an element of the images for every tap.
            let gradient = unsafe { *dy };
            for (sum, &tap) in acc.iter_mut().zip(&taps) {
                // SAFETY: as above.
                let x = unsafe { *x.wrapping_offset(tap).cast::<[T; LANES]>() };
                *sum = std::array::from_fn(|lane| gradient[lane].fma(x[lane], sum[lane]));
            }
            (x, dy) = (x.wrapping_add(lines.step), dy.wrapping_add(1));
        }
    }
    // SAFETY: as above.
    unsafe { *sums = acc };
}

meshwork_simd::multiversion! {
    fn compute<T: Real>(lines: &Lines<T>, lanes: usize) = lines_of;
}

/// The gradient.
///
/// # Safety
/// The operands must be dense and hold their elements, the output its own; the arena must have [`bytes`], and the processor
/// be able to run the context's level.
pub unsafe fn run<S: Element>(u: &Unfolded, x: &[S], dy: &[S], out: *mut S, mut arena: Arena, context: Context) {
    let (window, level, threads) = (&u.window, context.level, context.par.lanes());
    let bands = bands::<S::Real>(window, lanes(level));
    let (lanes, parts, blocks) = (bands.lanes, bands.parts(), blocks(u));
    let (positions, outputs, count) = (window.positions(), window.outputs, window.taps());
    let unit = u.size.block / positions;
    let a_part = outputs * count * lanes;
    let numbers = numbers(window, &bands);
    let rooms = arena.slots(threads, numbers.map(room::<S::Real>).iter().sum());
    let all = Shared(arena.take::<S::Real>(blocks * parts * a_part));
    let images = Images::new(window, bands.most(), lanes);
    let taps = images.taps();
    with_slots(context.par, threads, blocks * parts, |slot, task| {
        let (block, part) = (task / parts, task % parts);
        let mut room = rooms.room(slot);
        let (staged, gradients): (*mut S::Real, *mut S::Real) = (room.take(numbers[0]), room.take(numbers[1]));
        // SAFETY: the sums of this task.
        let sums = unsafe { all.slice(task * a_part, a_part) };
        sums.fill(S::Real::ZERO);
        let groups = bands.part(part);
        let samples = block * unit..((block + 1) * unit).min(window.samples);
        for sample in samples.clone() {
            let has_border = sample > samples.start && bands.count() == 1;
            let group = sample * window.groups + groups.start;
            for band in (0..bands.count()).map(|band| bands.band(band)) {
                let [slices, rows] = [0, 1].map(|d| band[d].len());
                let line = |i: usize| images.line(i / rows, i % rows);
                let lines: Vec<usize> = (0..slices * rows).map(line).collect();
                let first = (band[0].start * window.output[1] + band[1].start) * window.output[2];
                // SAFETY: the slot's rooms; operands of the caller; the task's sums.
                unsafe {
                    images.join(level, x.as_ptr().add(group * window.plane()), groups.len(), &band, has_border, staged);
                    for output in 0..outputs {
                        let from = dy.as_ptr().add((group * outputs + output) * positions + first);
                        join(
                            level,
                            from,
                            [groups.len(), outputs * positions],
                            lines.len() * window.output[2],
                            gradients,
                        );
                        for first in (0..count).step_by(TAPS) {
                            let lines = Lines {
                                x: staged,
                                dy: gradients,
                                lines: &lines,
                                count: window.output[2],
                                step: images.step(),
                                taps: &taps[first..(first + TAPS).min(count)],
                                sums: sums.as_mut_ptr().add((output * count + first) * lanes),
                            };
                            compute(level, &lines, lanes);
                        }
                    }
                }
            }
        }
    });
    let out = Shared(out);
    context.par.run(parts, &|part| {
        // SAFETY: the sums of a part, which no task writes any more, and its weights.
        unsafe {
            let sums = |block: usize| all.slice((block * parts + part) * a_part, a_part);
            in_tree_order(blocks, |left, right| {
                sums(left).iter_mut().zip(sums(right)).for_each(|(left, right)| *left = *left + *right);
            });
            let groups = bands.part(part);
            for (i, sums) in sums(0).chunks_exact(lanes).enumerate() {
                for (lane, group) in groups.clone().enumerate() {
                    *out.pointer().add(group * outputs * count + i) = S::narrow(sums[lane]);
                }
            }
        }
    });
}
