//! Convolutions whose groups have one input channel (*depthwise*), and their gradients.
//!
//! A group alone is a product of one row or a few, which fill no tile. So groups lie abreast: every number of a vector
//! belongs to another one, and all sizes, strides and dilations are computed alike. What is read is copied so, for a band of
//! lines that stays in the caches, and results are copied back.

pub mod forward;
pub mod input;
pub mod weight;

#[cfg(target_arch = "x86_64")]
use super::abreast_x86;
use super::window::Window;
use crate::Level;
#[cfg(target_arch = "x86_64")]
use crate::gemm::real::same;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::{Element, Offsets, Real};
use crate::operand::Shared;
use crate::par::Par;
use std::ops::Range;

/// Groups from which on vectors have enough to do.
const GROUPS: usize = 4;

/// Outputs of a group at most.
const OUTPUTS: usize = 4;

/// Bytes of what is copied of a band, about.
const BAND: usize = 256 << 10;

/// Vectors of a task at least, if there are enough of them.
const TASK: usize = 512;

/// Whether this is the better way: also for one element of the result of each kind at least.
pub fn suits(window: &Window) -> bool {
    window.channels == 1
        && window.groups >= GROUPS
        && window.outputs <= OUTPUTS
        && window.samples * window.outputs * window.taps() * window.positions() * window.plane() > 0
}

/// Numbers of a vector.
fn lanes(level: Level) -> usize {
    if level >= Level::Avx512 { 16 } else { 8 }
}

/// Groups abreast, and lines of positions that are worked on together.
struct Bands {
    groups: usize,
    lanes: usize,
    /// The dimension that is cut: the first one that has a length, of slices and rows.
    along: usize,
    /// Slices and rows of all bands.
    sizes: [usize; 2],
    /// Slices or rows of a band, but the last.
    length: usize,
    /// Samples of a task.
    samples: usize,
}

impl Bands {
    /// For positions of these sizes, of which a slice or row takes `bytes` in a task's room; bands of single samples make
    /// enough tasks for the threads.
    fn new(window: &Window, sizes: [usize; 3], lanes: usize, bytes: impl Fn(usize) -> usize, threads: usize) -> Self {
        let along = if window.input[0] > 1 || window.output[0] > 1 { 0 } else { 1 };
        let (all, parts) = (sizes[along], window.groups.div_ceil(lanes));
        let bands = all.div_ceil((BAND / bytes(along)).max(1));
        let wanted = (4 * threads).div_ceil(window.samples * parts).min(all);
        let length = all.div_ceil(bands.max(wanted));
        let samples = if length < all { 1 } else { TASK.div_ceil(sizes.iter().product()) };
        let samples = samples.min((window.samples * parts / (4 * threads)).max(1));
        Bands { groups: window.groups, lanes, along, sizes: [sizes[0], sizes[1]], length, samples }
    }

    /// For the positions of the output.
    fn of_outputs<T>(window: &Window, lanes: usize, threads: usize) -> Self {
        let bytes = |d: usize| {
            let positions = window.positions() / window.output[d] * window.outputs;
            let image = window.input[d + 1..].iter().product::<usize>() * window.step(d);
            (positions + image) * lanes * size_of::<T>()
        };
        Bands::new(window, window.output, lanes, bytes, threads)
    }

    /// Vectors of which each has some of the groups.
    fn parts(&self) -> usize {
        self.groups.div_ceil(self.lanes)
    }

    /// The groups of a vector.
    fn part(&self, part: usize) -> Range<usize> {
        part * self.lanes..((part + 1) * self.lanes).min(self.groups)
    }

    fn count(&self) -> usize {
        self.sizes[self.along].div_ceil(self.length)
    }

    /// The slices and the rows of a band.
    fn band(&self, band: usize) -> [Range<usize>; 2] {
        let mut ranges = self.sizes.map(|size| 0..size);
        ranges[self.along] = band * self.length..((band + 1) * self.length).min(self.sizes[self.along]);
        ranges
    }

    /// Bands of all samples and groups.
    fn tasks(&self, window: &Window) -> usize {
        window.samples.div_ceil(self.samples) * self.parts() * self.count()
    }

    /// A task by its number: bands of the same groups and samples follow each other.
    fn task(&self, window: &Window, task: usize) -> Task {
        let (band, rest) = (task % self.count(), task / self.count());
        let (part, first) = (rest % self.parts(), rest / self.parts() * self.samples);
        Task { samples: first..(first + self.samples).min(window.samples), part, band }
    }

    /// Slices and rows of a band at most.
    fn most(&self) -> [usize; 2] {
        self.band(0).map(|range| range.len())
    }
}

/// What a task computes: a band of some samples' groups.
struct Task {
    samples: Range<usize>,
    part: usize,
    band: usize,
}

/// The images of groups abreast under a band of output positions: with their border, all of a line side by side.
struct Images<'a> {
    window: &'a Window,
    lanes: usize,
    /// Slices, rows, columns.
    sizes: [usize; 3],
}

impl<'a> Images<'a> {
    /// Under so many slices and rows of positions.
    fn new(window: &'a Window, [slices, rows]: [usize; 2], lanes: usize) -> Self {
        let columns = (window.output[2] - 1) * window.stride[2] + (window.kernel[2] - 1) * window.dilation[2] + 1;
        Images { window, lanes, sizes: [window.extent(0, slices), window.extent(1, rows), columns] }
    }

    /// Numbers.
    fn len(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.lanes
    }

    /// Offsets of the taps from that of a position.
    fn taps(&self) -> Vec<isize> {
        let (window, [_, rows, columns]) = (self.window, self.sizes);
        let steps = [rows * columns, columns, 1].map(|step| step * self.lanes);
        let axis =
            |offsets: Offsets, d: usize| offsets.axis(window.kernel[d], (window.dilation[d] * steps[d]) as isize);
        (0..3).fold(Offsets::new(), axis).all()
    }

    fn at(&self, [slice, row]: [usize; 2], column: usize) -> usize {
        ((slice * self.sizes[1] + row) * self.sizes[2] + column) * self.lanes
    }

    /// Offset of the first position of a line of the band.
    fn line(&self, slice: usize, row: usize) -> usize {
        self.at([slice * self.window.step(0), row * self.window.step(1)], 0)
    }

    /// The distance of positions in a line.
    fn step(&self) -> usize {
        self.window.stride[2] * self.lanes
    }

    /// Copies the images under a band, whose inputs begin at `from` for the first of `groups`; without their border where
    /// images of such a band were there before.
    ///
    /// # Safety
    /// The input must be readable, `to` have [`Images::len`] numbers, and the processor be able to run `level`.
    unsafe fn join<S: Element>(
        &self,
        level: Level,
        from: *const S,
        groups: usize,
        band: &[Range<usize>; 2],
        has_border: bool,
        to: *mut S::Real,
    ) {
        let (window, lanes) = (self.window, self.lanes);
        let first = [0, 1].map(|d| band[d].start * window.step(d));
        let start = window.padding[2].min(self.sizes[2]);
        let inside = window.input[2].min(self.sizes[2] - start);
        let [slices, rows] = [0, 1].map(|d| window.extent(d, band[d].len()));
        for (slice, row) in (0..slices).flat_map(|slice| (0..rows).map(move |row| (slice, row))) {
            let line = to.wrapping_add(self.at([slice, row], 0));
            let border = |columns: Range<usize>| {
                if has_border {
                    return;
                }
                // SAFETY: the room of a line.
                unsafe {
                    std::slice::from_raw_parts_mut(line.add(columns.start * lanes), columns.len() * lanes)
                        .fill(S::Real::ZERO);
                }
            };
            match window.input_row(first[0] + slice, first[1] + row) {
                None => border(0..self.sizes[2]),
                Some(i) => {
                    border(0..start);
                    // SAFETY: a row of the input.
                    unsafe {
                        let from = from.add(i * window.input[2]);
                        join(level, from, [groups, window.plane()], inside, line.add(start * lanes));
                    }
                    border(start + inside..self.sizes[2]);
                }
            }
        }
    }
}

/// Calls a function of vectors for `$count` of them from `$first` on, in equal parts, of as many as the numbers say: so many
/// sums hide each other's latency, and fewer in a last part would not.
macro_rules! in_parts {
    ($count:expr, $sizes:tt, $name:ident::<$real:ty, $lanes:ident>($($arg:expr),*)) => {{
        let count: usize = $count;
        let parts = count.div_ceil($sizes.len());
        for part in 0..parts {
            let (first, end) = (part * count / parts, (part + 1) * count / parts);
            in_parts!(@match end - first, $name, $real, $lanes, ($($arg),*), first, $sizes)
        }
    }};
    (@match $size:expr, $name:ident, $real:ty, $lanes:ident, $args:tt, $first:ident, [$($literal:literal),*]) => {
        match $size {
            $($literal => in_parts!(@call $name, $real, $lanes, $literal, $args, $first),)*
            size => unreachable!("a part of {size}"),
        }
    };
    (@call $name:ident, $real:ty, $lanes:ident, $literal:literal, ($($arg:expr),*), $first:ident) => {
        $name::<$real, $lanes, $literal>($($arg,)* $first)
    };
}
use in_parts;

/// Copies `count` numbers of each of some groups, which are `apart`, abreast.
///
/// # Safety
/// The numbers must be readable, `to` have `count` vectors, and the processor be able to run `level`.
unsafe fn join<S: Element>(level: Level, from: *const S, [groups, apart]: [usize; 2], count: usize, to: *mut S::Real) {
    let lanes = lanes(level);
    #[cfg(target_arch = "x86_64")]
    if same::<S, f32>() && level >= Level::Avx2 {
        let rows: [isize; 16] = std::array::from_fn(|lane| (lane * apart) as isize);
        // SAFETY: the caller's promise.
        unsafe { abreast_x86::join(lanes, from.cast(), &rows[..groups], count, to.cast(), [lanes, lanes]) };
        return;
    }
    for lane in 0..lanes {
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe {
                let x = if lane < groups { (*from.add(lane * apart + i)).widen() } else { S::Real::ZERO };
                *to.add(i * lanes + lane) = x;
            }
        }
    }
}

/// Copies `count` vectors to those of groups, which are `apart`.
///
/// # Safety
/// As for [`join`], the other way round.
unsafe fn part<S: Element>(level: Level, from: *const S::Real, count: usize, to: *mut S, [groups, apart]: [usize; 2]) {
    let lanes = lanes(level);
    #[cfg(target_arch = "x86_64")]
    if same::<S, f32>() && level >= Level::Avx2 {
        // SAFETY: the caller's promise.
        unsafe { abreast_x86::part(lanes, from.cast(), [count, lanes], to.cast(), [groups, apart]) };
        return;
    }
    for lane in 0..groups {
        for i in 0..count {
            // SAFETY: the caller's promise.
            unsafe { *to.add(lane * apart + i) = S::narrow(*from.add(i * lanes + lane)) };
        }
    }
}

/// The weights of all groups abreast: by part, output of a group, tap.
#[derive(Clone, Copy)]
struct Weights<T> {
    data: Shared<T>,
    outputs: usize,
    taps: usize,
    lanes: usize,
}

impl<T> Weights<T> {
    fn new<S: Element<Real = T>>(window: &Window, w: &[S], level: Level, arena: &mut Arena, par: &Par) -> Self
    where
        T: Real,
    {
        let (outputs, taps, lanes) = (window.outputs, window.taps(), lanes(level));
        let parts = window.groups.div_ceil(lanes);
        let weights = Weights { data: Shared(arena.take(parts * outputs * taps * lanes)), outputs, taps, lanes };
        par.run(parts, &|part| {
            let first = part * lanes;
            // SAFETY: the part of this task.
            let to = unsafe { weights.data.slice(part * outputs * taps * lanes, outputs * taps * lanes) };
            for (i, to) in to.chunks_exact_mut(lanes).enumerate() {
                for (lane, to) in to.iter_mut().enumerate() {
                    *to = w.get((first + lane) * outputs * taps + i).map_or(T::ZERO, |w| w.widen());
                }
            }
        });
        weights
    }

    fn bytes(window: &Window, lanes: usize) -> usize {
        room::<T>(window.groups.next_multiple_of(lanes) * window.outputs * window.taps())
    }

    /// Those of a part.
    fn of(&self, part: usize) -> *const T {
        self.data.pointer().wrapping_add(part * self.outputs * self.taps * self.lanes)
    }
}

/// The most bytes that `of` says for the vectors of any level.
fn most_bytes(of: impl Fn(usize) -> usize) -> usize {
    Level::available().into_iter().map(|level| of(lanes(level))).max().unwrap_or(0)
}
