//! The gradient of a convolution by its input: a product gives the sums of all taps as columns. These are gathered
//! straight into the result (`conv/gather_x86.rs`), or added tap by tap to an image plane in the first-level cache.
//! Where there are samples for all numbers of a vector, tiles of the product are added to their images instead
//! (`conv/input_x86.rs`).

use super::window::{Image, Window};
#[cfg(target_arch = "x86_64")]
use super::{abreast_x86, along_x86, gather_x86, input_x86};
use super::{block, depthwise, pointwise};
use crate::Context;
use crate::Level;
use crate::gemm::block::{Bounds, Chunks, Product, compute};
use crate::gemm::left::{Left, pack_left, packed_left};
#[cfg(target_arch = "x86_64")]
use crate::gemm::real::same;
use crate::gemm::scratch::{Arena, room};
use crate::gemm::tile::Tile;
use crate::gemm::{Element, Offsets, Place, Real, Side, Size};
use crate::number::for_float;
use crate::operand::{Operand, Output, Shared};
use crate::par::with_slots;
use meshwork_graph::ops::ConvInput;
use meshwork_graph::{DType, Layout, Shape};

/// Bytes of columns that a thread holds at once, about.
const COLUMNS: usize = 256 << 10;

/// Numbers that are packed by one thread.
const PACKED: usize = 4096;

/// Tiles that the columns of a task should about fill.
const COLUMN_TILES: usize = 16;

/// How the gradient is cut into tasks.
#[derive(Clone, Debug)]
struct Plan {
    window: Window,
    image: Image,
    /// One product: `(channel, tap) × (sample, position)` over the outputs of a group.
    size: Size,
    /// Samples of a task.
    samples: usize,
    /// Channels of a task.
    channels: usize,
    bounds: Bounds,
}

impl Plan {
    fn new<S: Element>(level: Level, window: &Window, block: usize, threads: usize) -> Self {
        let kernels = S::Real::kernels(level);
        let (taps, positions) = (window.taps(), window.positions());
        let rows = window.channels * taps;
        let size = Size { rows, columns: window.samples * positions, terms: window.outputs, block, run: 1 };
        let tile = Tile::of(&kernels, &size, false);
        let height = tile.rows;
        // Tasks begin at whole tiles and whole channels.
        let step = (1..=height).find(|c| (c * taps).is_multiple_of(height)).expect("height itself");
        // Enough columns to waste little on the last tile, then as many channels as the room takes.
        let samples =
            (COLUMN_TILES * tile.columns / positions.max(1) + 1).clamp(1, window.samples.div_ceil(2 * threads).max(1));
        let room = COLUMNS / (samples * positions * taps * size_of::<S::Real>()).max(1);
        let mut channels = window.channels.min((room / step).max(1) * step);
        let tasks =
            |channels: usize| window.samples.div_ceil(samples) * window.groups * window.channels.div_ceil(channels);
        while tasks(channels) < 2 * threads && channels > step {
            channels = (channels / 2 / step).max(1) * step;
        }
        let numbers = [channels * taps, samples * positions, size.terms];
        let bounds = Bounds::new(&kernels, numbers, tile, Chunks::new(&size, kernels.depth));
        Plan { window: window.clone(), image: window.image(), size, samples, channels, bounds }
    }

    /// Bytes of: packed weights; for each slot the product's rooms, the columns, the plane.
    fn bytes<S: Element>(&self) -> [usize; 4] {
        [
            room::<S::Real>(packed_left(&self.size, self.bounds.tile.rows)) * self.window.groups,
            self.bounds.bytes::<S::Real>(),
            room::<S::Real>(self.bounds.rows * self.bounds.columns),
            room::<S::Real>(self.image.plane()),
        ]
    }
}

fn input_shape(op: &ConvInput, dy: &Shape, w: &Shape) -> Shape {
    let mut shape = Shape::new(&[dy[0], w[1] * op.geometry.groups]);
    shape.0.extend(op.size.iter().copied());
    shape
}

/// Bytes of scratch memory for [`run`].
pub fn scratch(op: &ConvInput, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    let (dy, w) = (&inputs[0].shape, &inputs[1].shape);
    let window = Window::new(&op.geometry, &input_shape(op, dy, w), w, dy);
    let block = block(&op.blocks(w));
    fn of<S: Element>(window: &Window, block: usize, threads: usize) -> usize {
        let of = |level| {
            let [packed, rest @ ..] = Plan::new::<S>(level, window, block, threads).bytes::<S>();
            packed + threads * rest.iter().sum::<usize>()
        };
        let bytes = Level::available().into_iter().map(of).max().unwrap_or(0);
        if depthwise::input::suits(window, block) {
            return bytes.max(depthwise::input::bytes::<S::Real>(window, threads));
        }
        let bytes = bytes.max(pointwise::bytes::<S>(window, block, threads).unwrap_or(0));
        #[cfg(target_arch = "x86_64")]
        if same::<S, f32>() {
            return abreast_x86::LANES.into_iter().fold(bytes, |bytes, lanes| {
                let abreast = input_x86::suits(window, block, threads, lanes);
                let along = along_x86::suits_input(window, block, threads, lanes);
                let bytes = bytes.max(if abreast { input_x86::bytes(window, threads, lanes) } else { 0 });
                bytes.max(if along { along_x86::input_bytes(window, threads, lanes) } else { 0 })
            });
        }
        bytes
    }
    for_float!("convolution", dtype, of(&window, block, threads))
}

/// The gradient: inputs dy and w, which must be dense.
pub fn run(op: &ConvInput, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    let window = Window::new(&op.geometry, output.shape, inputs[1].shape(), inputs[0].shape());
    let block = block(&op.blocks(inputs[1].shape()));
    for_float!("convolution", output.dtype, gradient(&window, block, inputs, output, scratch, context))
}

fn gradient<S: Element>(
    window: &Window,
    block: usize,
    inputs: &[Operand],
    mut output: Output,
    scratch: &mut [u8],
    context: Context,
) {
    let (taps, positions) = (window.taps(), window.positions());
    if taps * positions * window.outputs == 0 || output.shape.numel() == 0 {
        output.slice::<S>().fill(S::narrow(S::Real::ZERO));
        return;
    }
    let (level, threads) = (context.level, context.par.lanes());
    if depthwise::input::suits(window, block) {
        let (dy, w) = (inputs[0].slice::<S>(), inputs[1].slice::<S>());
        // SAFETY: the operands are dense and hold their elements, the output its own; a context's level is one that the
        // processor can run, and the arena checks its size.
        unsafe { depthwise::input::run(window, dy, w, output.first::<S>(), Arena::new(scratch), context) };
        return;
    }
    let (dy, w) = (inputs[0].slice::<S>().as_ptr(), inputs[1].slice::<S>().as_ptr());
    // SAFETY: as above.
    if unsafe { pointwise::run(window, block, dy, w, output.first::<S>(), Arena::new(scratch), context) } {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if same::<S, f32>()
        && let Some(lanes) = abreast_x86::lanes(level, |lanes| input_x86::suits(window, block, threads, lanes))
    {
        let (dy, w) = (dy.cast(), w.cast());
        // SAFETY: as above.
        unsafe { input_x86::gradient((window, block, lanes), dy, w, output.first(), Arena::new(scratch), context) };
        return;
    }
    #[cfg(target_arch = "x86_64")]
    if same::<S, f32>()
        && let Some(lanes) = along_x86::lanes(level, |lanes| along_x86::suits_input(window, block, threads, lanes))
    {
        let (dy, w) = (dy.cast(), w.cast());
        // SAFETY: as above.
        let done =
            unsafe { along_x86::input((window, block, lanes), dy, w, output.first(), Arena::new(scratch), context) };
        if done {
            return;
        }
    }
    let plan = Plan::new::<S>(level, window, block, threads);
    let [_, product_bytes, column_bytes, plane_bytes] = plan.bytes::<S>();
    let (dy, w) = (Shared(inputs[0].slice::<S>().as_ptr().cast_mut()), inputs[1].slice::<S>());
    let dx = Shared(output.first::<S>());
    let size = plan.size;
    let mut arena = Arena::new(scratch);
    let sample_parts = window.samples.div_ceil(plan.samples);
    let channel_parts = window.channels.div_ceil(plan.channels);
    let tasks = sample_parts * window.groups * channel_parts;
    let bytes = product_bytes + column_bytes + plane_bytes;
    let slots = threads.min(tasks);
    let rooms = arena.slots(slots, bytes);

    let weight_side =
        Side { lines: Offsets::new().axis(size.rows, 1), terms: Offsets::new().axis(size.terms, size.rows as isize) };
    let packed: Vec<Shared<S::Real>> =
        (0..window.groups).map(|_| Shared(arena.take(packed_left(&size, plan.bounds.tile.rows)))).collect();
    let panels = size.rows.div_ceil(plan.bounds.tile.rows);
    context.par.ranges(window.groups * panels, 1 + PACKED / (size.terms * plan.bounds.tile.rows), &|range| {
        for i in range {
            let (group, panel) = (i / panels, i % panels);
            // SAFETY: the group's weights and a panel of its own room.
            unsafe {
                let data = w.as_ptr().add(group * size.rows * size.terms);
                let (height, to) = (plan.bounds.tile.rows, { packed[group] }.0);
                pack_left(level, data, &weight_side, &size, height, panel, to);
            }
        }
    });

    let right_side = Side {
        lines: Offsets::new()
            .axis(window.samples, (window.groups * window.outputs * positions) as isize)
            .axis(positions, 1),
        terms: Offsets::new().axis(window.outputs, positions as isize),
    };
    let scattered = window.scattered(&plan.image);
    let adder = Adder {
        taps: scattered.lines.all(),
        rows: scattered.terms.all().into_iter().step_by(window.output[2]).collect(),
        length: window.output[2],
    };
    let across = plan.bounds.columns;
    let place =
        Place { rows: Offsets::new().axis(size.rows, across as isize), columns: Offsets::new().axis(size.columns, 1) };
    #[cfg(target_arch = "x86_64")]
    let gather = gather_x86::suits::<S>(level, window).then(|| gather_x86::Gather::new(window, across));
    with_slots(context.par, slots, tasks, |slot, task| {
        let (part, rest) = (task % channel_parts, task / channel_parts);
        let (group, samples) = (rest % window.groups, rest / window.groups * plan.samples);
        let samples = samples..(samples + plan.samples).min(window.samples);
        let channels = part * plan.channels..((part + 1) * plan.channels).min(window.channels);
        let mut room = rooms.room(slot);
        let columns: *mut S::Real = room.take(plan.bounds.rows * plan.bounds.columns);
        let plane: *mut S::Real = room.take(plan.image.plane());
        let product = Product::<S, S::Real> {
            size,
            left: Left::Panels({ packed[group] }.0),
            right_side: &right_side,
            packed: None,
            out: columns.wrapping_sub(channels.start * taps * across + samples.start * positions),
            place: &place,
            upwards: false,
            finish: None,
            from_zero: false,
        };
        let gradient = { dy }.0.wrapping_add(group * window.outputs * positions).cast_const();
        let rows = channels.start * taps..channels.end * taps;
        let range = samples.start * positions..samples.end * positions;
        // SAFETY: the columns have room for the task's channels and samples, the slot is this task's alone.
        unsafe {
            compute(level, &product, &mut |_| gradient, &plan.bounds, rows, range, 0..size.terms, room);
        }
        let index = |sample: usize, channel: usize| (sample * window.groups + group) * window.channels + channel;
        #[cfg(target_arch = "x86_64")]
        if let Some(gather) = &gather {
            let planes: Vec<_> = samples
                .enumerate()
                .flat_map(|(s, sample)| channels.clone().enumerate().map(move |(c, channel)| (s, sample, c, channel)))
                .map(|(s, sample, c, channel)| {
                    let sums = columns.wrapping_add(c * taps * across + s * positions).cast_const();
                    (sums.cast(), { dx }.0.wrapping_add(index(sample, channel) * window.plane()).cast())
                })
                .collect();
            // SAFETY: the type is f32 and the level has AVX2, see `suits`; the columns have just been written, and the
            // channels of the result belong to this task.
            unsafe { gather.run(&planes) };
            return;
        }
        for (s, sample) in samples.enumerate() {
            for (c, channel) in channels.clone().enumerate() {
                // SAFETY: the plane is the slot's, the columns have just been written, and the channel of the
                // result belongs to this task.
                unsafe {
                    let plane = std::slice::from_raw_parts_mut(plane, plan.image.plane());
                    plane.fill(S::Real::ZERO);
                    let first = c * taps * across + s * positions;
                    let length = (taps - 1) * across + positions;
                    let columns = std::slice::from_raw_parts(columns.add(first), length);
                    add(level, plane, columns, across, &adder);
                    let out = { dx }.slice(index(sample, channel) * window.plane(), window.plane());
                    store(window, &plan.image, plane, out);
                }
            }
        }
    });
}

/// Where the sums of taps go in a plane.
struct Adder {
    /// Offsets of the taps.
    taps: Vec<isize>,
    /// Offsets of the rows of output positions.
    rows: Vec<isize>,
    /// Positions in a row.
    length: usize,
}

/// Adds the columns of one channel and sample, which are `across` apart, to its plane, tap by tap.
///
/// Rows of usual lengths are unrolled: they are too short for loops.
#[inline(always)]
fn add_columns<T: Real>(plane: &mut [T], columns: &[T], across: usize, adder: &Adder) {
    macro_rules! by_length {
        ($($length:literal)*) => {
            match adder.length {
                $($length => add_rows::<T, $length>(plane, columns, across, adder),)*
                _ => add_rows::<T, 0>(plane, columns, across, adder),
            }
        };
    }
    by_length!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16)
}

/// See [`add_columns`]; `LENGTH` is that of the rows, or 0.
#[inline(always)]
fn add_rows<T: Real, const LENGTH: usize>(plane: &mut [T], columns: &[T], across: usize, adder: &Adder) {
    let length = if LENGTH == 0 { adder.length } else { LENGTH };
    let furthest = |offsets: &[isize]| offsets.iter().copied().max().unwrap_or(0);
    let end = (furthest(&adder.taps) + furthest(&adder.rows)) as usize + length;
    assert!(end <= plane.len() && (adder.taps.len() - 1) * across + adder.rows.len() * length <= columns.len());
    let (plane, mut from) = (plane.as_mut_ptr(), columns.as_ptr());
    for &offset in &adder.taps {
        let mut from_row = from;
        for &row in &adder.rows {
            // SAFETY: rows end before `end`, and columns where the assertion says; offsets are not negative.
            unsafe {
                let to = plane.offset(row + offset);
                let mut i = 0;
                while i + 8 <= length {
                    add_vector::<T, 8>(to.add(i), from_row.add(i));
                    i += 8;
                }
                if length - i >= 4 {
                    add_vector::<T, 4>(to.add(i), from_row.add(i));
                    i += 4;
                }
                while i < length {
                    *to.add(i) = *to.add(i) + *from_row.add(i);
                    i += 1;
                }
                from_row = from_row.add(length);
            }
        }
        from = from.wrapping_add(across);
    }
}

/// # Safety
/// Both must have `N` numbers, and not overlap.
#[inline(always)]
unsafe fn add_vector<T: Real, const N: usize>(to: *mut T, from: *const T) {
    // SAFETY: the caller's promise; arrays are aligned as their elements.
    unsafe {
        let (a, b) = (*to.cast::<[T; N]>(), *from.cast::<[T; N]>());
        *to.cast::<[T; N]>() = std::array::from_fn(|i| a[i] + b[i]);
    }
}

meshwork_simd::multiversion! {
    fn add<T: Real>(plane: &mut [T], columns: &[T], across: usize, adder: &Adder) = add_columns;
}

/// Copies the inside of a plane to the result.
fn store<S: Element>(window: &Window, image: &Image, plane: &[S::Real], out: &mut [S]) {
    out.fill(S::narrow(S::Real::ZERO));
    for slice in 0..image.sizes[0] {
        for row in 0..image.sizes[1] {
            let Some(line) = window.input_row(slice, row) else { continue };
            let from = &plane[(slice * image.sizes[1] + row) * image.sizes[2]..][..image.sizes[2]];
            let out = &mut out[line * window.input[2]..][..window.input[2]];
            if window.stride[2] == 1 {
                let inside = from.get(window.padding[2]..).unwrap_or(&[]);
                out.iter_mut().zip(inside).for_each(|(to, &x)| *to = S::narrow(x));
                continue;
            }
            for phase in 0..window.step(2) {
                let (first, input, count) = window.phase(image, phase);
                let to = out.iter_mut().skip(input).step_by(window.stride[2]);
                to.zip(&from[first..first + count]).for_each(|(to, &x)| *to = S::narrow(x));
            }
        }
    }
}
