//! The gradient by the input for groups abreast: every element adds up its taps in a register.

use super::{Bands, Weights, in_parts, join, lanes, most_bytes, part};
use crate::Context;
use crate::conv::window::Window;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::{Element, Real};
use crate::operand::Shared;
use crate::par::with_slots;
use std::ops::Range;

/// Whether this is the better way for sums over outputs in blocks of so many.
pub fn suits(window: &Window, block: usize) -> bool {
    super::suits(window) && window.outputs <= block
}

/// Columns of a row, `stride` apart, that meet the same taps.
struct Run {
    first: usize,
    count: usize,
    /// Columns of the taps, and those of the outputs' gradients where they meet the first column.
    taps: Vec<(usize, usize)>,
}

/// All columns of a row.
fn runs(window: &Window) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for phase in 0..window.stride[2].min(window.input[2]) {
        let begin = runs.len();
        for column in (phase..window.input[2]).step_by(window.stride[2]) {
            let taps: Vec<(usize, usize)> = window.meets(2, column).collect();
            let same = |run: &&mut Run| run.taps.iter().map(|tap| tap.0).eq(taps.iter().map(|tap| tap.0));
            match runs[begin..].last_mut().filter(same) {
                Some(run) => run.count += 1,
                None => runs.push(Run { first: column, count: 1, taps }),
            }
        }
    }
    runs
}

/// For every slice and every row of the input, the taps that meet it, and the slices and rows of gradients where they do.
fn meetings(window: &Window) -> [Vec<Vec<(usize, usize)>>; 2] {
    [0, 1].map(|d| (0..window.input[d]).map(|i| window.meets(d, i).collect()).collect())
}

/// The slices or rows of gradients that some of the input's meet.
fn met(meetings: &[Vec<(usize, usize)>]) -> Range<usize> {
    let all = || meetings.iter().flatten().map(|(_, from)| *from);
    all().min().unwrap_or(0)..all().max().map_or(0, |last| last + 1)
}

fn bands<T>(window: &Window, lanes: usize, threads: usize) -> Bands {
    let bytes = |d: usize| {
        let gradients = window.positions() / window.output[d] * window.outputs;
        (window.plane() / window.input[d] + gradients.div_ceil(window.stride[d])) * lanes * size_of::<T>()
    };
    Bands::new(window, window.input, lanes, bytes, threads)
}

/// Numbers of a slot's gradients by the outputs and by the input.
fn numbers(window: &Window, bands: &Bands) -> [usize; 2] {
    let meetings = meetings(window);
    let lines = |band: usize| {
        let band = bands.band(band);
        [0, 1].iter().map(|&d| met(&meetings[d][band[d].clone()]).len()).product::<usize>()
    };
    let most = (0..bands.count()).map(lines).max().unwrap_or(0);
    let [slices, rows] = bands.most();
    [most * window.output[2] * window.outputs * bands.lanes, slices * rows * window.input[2] * bands.lanes]
}

/// Bytes of scratch memory for [`run`].
pub fn bytes<T: Real>(window: &Window, threads: usize) -> usize {
    most_bytes(|lanes| {
        let slot = numbers(window, &bands::<T>(window, lanes, threads)).map(room::<T>);
        Weights::<T>::bytes(window, lanes) + threads * slot.iter().sum::<usize>()
    })
}

/// A row of the input's gradient.
struct Row<'a, T> {
    /// The gradients by the first output.
    dy: *const T,
    /// Numbers from output to output: in the gradients, and in the weights.
    outputs: [usize; 2],
    /// Outputs of a group.
    count: usize,
    /// The weights of the first output.
    w: *const T,
    /// For the rows of the kernel that meet this one: the number of the first tap, and the line of the gradients.
    sources: &'a [(usize, usize)],
    runs: &'a [Run],
    stride: usize,
    /// Vectors of a line of gradients.
    width: usize,
    out: *mut T,
}

#[inline(always)]
fn row_of<T: Real>(row: &Row<T>, lanes: usize) {
    if lanes == 16 { sums_of_row::<T, 16>(row) } else { sums_of_row::<T, 8>(row) }
}

#[inline(always)]
fn sums_of_row<T: Real, const LANES: usize>(row: &Row<T>) {
    for run in row.runs {
        // A count that is known leaves no loop over outputs.
        if row.count == 1 {
            in_parts!(run.count, [1, 2, 3, 4, 5, 6], sums::<T, LANES>(row, run, 1));
        } else {
            in_parts!(run.count, [1, 2, 3, 4, 5, 6], sums::<T, LANES>(row, run, row.count));
        }
    }
}

/// The sums of `COUNT` columns of a run.
#[inline(always)]
fn sums<T: Real, const LANES: usize, const COUNT: usize>(row: &Row<T>, run: &Run, outputs: usize, first: usize) {
    let (w, dy) = (row.w.cast::<[T; LANES]>(), row.dy.cast::<[T; LANES]>());
    let [gradients, weights] = row.outputs.map(|numbers| numbers / LANES);
    let mut acc = [[T::ZERO; LANES]; COUNT];
    for &(tap, line) in row.sources {
        for &(column, from) in &run.taps {
            let (w, dy) = (w.wrapping_add(tap + column), dy.wrapping_add(line * row.width + from + first));
            let mut products = [[T::ZERO; LANES]; COUNT];
            for output in 0..outputs {
                // SAFETY: a weight of every output and tap, and a gradient for every column that meets it.
                let weight = unsafe { *w.wrapping_add(output * weights) };
                let dy = dy.wrapping_add(output * gradients);
                for (i, product) in products.iter_mut().enumerate() {
                    // SAFETY: as above.
                    let dy = unsafe { *dy.wrapping_add(i) };
                    *product = std::array::from_fn(|lane| weight[lane].fma(dy[lane], product[lane]));
                }
            }
            for (sum, product) in acc.as_flattened_mut().iter_mut().zip(products.as_flattened()) {
                *sum = *sum + *product;
            }
        }
    }
    for (i, sum) in acc.into_iter().enumerate() {
        // SAFETY: room for every column.
        unsafe { *row.out.cast::<[T; LANES]>().add(run.first + (first + i) * row.stride) = sum };
    }
}

meshwork_simd::multiversion! {
    fn compute<T: Real>(row: &Row<T>, lanes: usize) = row_of;
}

/// The gradient.
///
/// # Safety
/// The operands must be dense and hold their elements, the output its own; the arena must have [`bytes`], and the processor
/// be able to run the context's level.
pub unsafe fn run<S: Element>(window: &Window, dy: &[S], w: &[S], out: *mut S, mut arena: Arena, context: Context) {
    let (level, threads) = (context.level, context.par.lanes());
    let bands = bands::<S::Real>(window, lanes(level), threads);
    let numbers = numbers(window, &bands);
    let rooms = arena.slots(threads, numbers.map(room::<S::Real>).iter().sum());
    let weights = Weights::new(window, w, level, &mut arena, context.par);
    let (positions, outputs, taps) = (window.positions(), window.outputs, window.taps());
    let (runs, width) = (runs(window), window.output[2]);
    let meetings = meetings(window);
    let out = Shared(out);
    with_slots(context.par, threads, bands.tasks(window), |slot, task| {
        let mut room = rooms.room(slot);
        let (staged, sums): (*mut S::Real, *mut S::Real) = (room.take(numbers[0]), room.take(numbers[1]));
        let task = bands.task(window, task);
        let (band, groups) = (bands.band(task.band), bands.part(task.part));
        let [slices, rows] = [0, 1].map(|d| met(&meetings[d][band[d].clone()]));
        let gradients = slices.len() * rows.len() * width * bands.lanes;
        for sample in task.samples {
            let group = sample * window.groups + groups.start;
            // SAFETY: the slot's rooms; operands of the caller; the task's part of the result.
            unsafe {
                for output in 0..outputs {
                    for (i, slice) in slices.clone().enumerate() {
                        let line = slice * window.output[1] + rows.start;
                        let from = dy.as_ptr().add((group * outputs + output) * positions + line * width);
                        let to = staged.add(output * gradients + i * rows.len() * width * bands.lanes);
                        join(level, from, [groups.len(), outputs * positions], rows.len() * width, to);
                    }
                }
                let mut sources = Vec::new();
                for (i, slice) in band[0].clone().enumerate() {
                    for (j, row) in band[1].clone().enumerate() {
                        sources.clear();
                        for &(a, from_slice) in &meetings[0][slice] {
                            for &(b, from_row) in &meetings[1][row] {
                                let tap = (a * window.kernel[1] + b) * window.kernel[2];
                                let line = (from_slice - slices.start) * rows.len() + (from_row - rows.start);
                                sources.push((tap, line));
                            }
                        }
                        let row = Row {
                            dy: staged,
                            outputs: [gradients, taps * bands.lanes],
                            count: outputs,
                            w: weights.of(task.part),
                            sources: &sources,
                            runs: &runs,
                            stride: window.stride[2],
                            width,
                            out: sums.add((i * band[1].len() + j) * window.input[2] * bands.lanes),
                        };
                        compute(level, &row, bands.lanes);
                    }
                }
                let first = (band[0].start * window.input[1] + band[1].start) * window.input[2];
                let count = band[0].len() * band[1].len() * window.input[2];
                let to = out.pointer().add(group * window.plane() + first);
                part(level, sums, count, to, [groups.len(), window.plane()]);
            }
        }
    });
}
