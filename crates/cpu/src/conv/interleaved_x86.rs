//! Images with their channels side by side, for f32 and vectors of AVX2 or AVX-512: what lies under a row of the kernel, over all channels,
//! are neighbours at every output position. An element of such a row is (column of the kernel, channel).

use super::direct_x86::table;
use super::window::Window;
use crate::gemm::Offsets;
use crate::gemm::pack::{dense, pack};
use crate::gemm::pack_x86::square;
use crate::simd::Level;
use std::ops::Range;

/// Numbers in a vector of AVX2.
const EIGHT: usize = 8;

/// Numbers in a vector of any level that has kernels for such images.
pub const LANES: [usize; 2] = [EIGHT, 16];

/// Numbers in a vector of a level, if it has such kernels.
pub fn lanes(level: Level) -> Option<usize> {
    match level {
        Level::Avx2 => Some(LANES[0]),
        Level::Avx512 | Level::Avx512Bf16 => Some(LANES[1]),
        Level::Portable | Level::Neon => None,
    }
}

/// Channels at most: so many are packed at once.
const CHANNELS: usize = 32;

/// Elements of an image, at most: more would not stay in the caches.
const ELEMENTS: usize = 1 << 14;

/// The images of one group.
pub struct Interleaved<'a> {
    window: &'a Window,
    /// Numbers in a vector of the kernels.
    pub lanes: usize,
    /// Spatial sizes: the input and its border.
    sizes: [usize; 3],
    /// Where the channels lie in the input.
    channels: Vec<isize>,
    /// Where the elements of the input lie that are copied at once: a row, or a channel if there is no border.
    elements: Vec<isize>,
}

/// A row of the kernel.
#[derive(Clone, Copy)]
pub struct Row {
    /// Where its first element lies in an image, counted from the output position.
    pub offset: usize,
    /// Its first tap.
    pub tap: usize,
}

impl<'a> Interleaved<'a> {
    /// The images of a convolution, for kernels with vectors of so many numbers.
    pub fn new(window: &'a Window, lanes: usize) -> Self {
        let run = if window.padding == [0; 3] { window.plane() } else { window.input[2] };
        Interleaved {
            window,
            lanes,
            sizes: std::array::from_fn(|d| window.input[d] + 2 * window.padding[d]),
            channels: (0..window.channels).map(|c| (c * window.plane()) as isize).collect(),
            elements: (0..run as isize).collect(),
        }
    }

    /// Whether there are such images, rows of the kernel about fill their vectors, and the images are small.
    pub fn suits(&self) -> bool {
        self.window.dilation[2] == 1
            && (1..=CHANNELS).contains(&self.window.channels)
            && self.row() >= self.lanes
            && 9 * self.row() >= 8 * self.row().next_multiple_of(self.lanes)
            && self.len() <= ELEMENTS
    }

    /// Elements of an image.
    pub fn len(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.window.channels
    }

    /// Elements of a row of the kernel.
    pub fn row(&self) -> usize {
        self.window.kernel[2] * self.window.channels
    }

    /// The rows of the kernel.
    pub fn rows(&self) -> Vec<Row> {
        let window = self.window;
        let row = |i: usize| {
            let (slice, line) = (i / window.kernel[1], i % window.kernel[1]);
            let place = slice * window.dilation[0] * self.sizes[1] + line * window.dilation[1];
            Row { offset: place * self.sizes[2] * window.channels, tap: i * window.kernel[2] }
        };
        (0..window.kernel[0] * window.kernel[1]).map(row).collect()
    }

    /// For element `i` of a row of the kernel: its place among the (channel, tap) of the kernel.
    pub fn element(&self, row: Row, i: usize) -> usize {
        i % self.window.channels * self.window.taps() + row.tap + i / self.window.channels
    }

    /// Offsets of the output positions.
    pub fn positions(&self) -> Vec<isize> {
        let window = self.window;
        let step =
            |d: usize| (window.stride[d] * self.sizes[d + 1..].iter().product::<usize>() * window.channels) as isize;
        let offsets = (0..3).fold(Offsets::new(), |offsets, d| offsets.axis(window.output[d], step(d)));
        table(&offsets, window.positions())
    }

    /// Calls `copy(from, to)` for every run of [`Self::elements`] of the input: where it begins in a channel, and in the
    /// image; `border(range)` for what lies between them, all in ascending order.
    fn runs(&self, mut copy: impl FnMut(usize, usize), mut border: impl FnMut(Range<usize>)) {
        let (window, width) = (self.window, self.window.channels);
        if window.padding == [0; 3] {
            return copy(0, 0);
        }
        let mut end = 0;
        for line in 0..self.sizes[0] * self.sizes[1] {
            if let Some(i) = window.input_row(line / self.sizes[1], line % self.sizes[1]) {
                let start = (line * self.sizes[2] + window.padding[2]) * width;
                border(end..start);
                copy(i * window.input[2], start);
                end = start + window.input[2] * width;
            }
        }
        border(end..self.len());
    }

    /// Copies the image of a sample, whose channels begin at `from`.
    ///
    /// # Safety
    /// The processor must be able to run `level`, the channels must be readable, and `to` have room for the image and
    /// [`SLACK`](crate::gemm::pack::SLACK) more.
    pub unsafe fn join(&self, level: Level, from: *const f32, to: *mut f32) {
        // SAFETY: the caller's promise. What packing writes too much is overwritten by what follows.
        self.runs(
            |source, target| unsafe {
                let lies = dense(self.window.channels, self.elements.len());
                pack(level, from.add(source), &self.channels, &self.elements, lies, to.add(target));
            },
            |range| unsafe { to.add(range.start).write_bytes(0, range.len()) },
        );
    }

    /// Copies an image to the channels of a sample, which begin at `to`.
    ///
    /// # Safety
    /// The processor must have AVX2, the image must be readable, and the channels writable.
    #[target_feature(enable = "avx2,fma")]
    pub unsafe fn part(&self, from: *const f32, to: *mut f32) {
        let (width, plane, run) = (self.window.channels, self.window.plane(), self.elements.len());
        let lines: [isize; EIGHT] = std::array::from_fn(|i| (i * width) as isize);
        // The last eight overlap those before.
        let eights = |count: usize| (0..count).step_by(EIGHT).map(move |i| i.min(count - EIGHT));
        self.runs(
            |target, source| {
                // SAFETY: elements of the image and of the channels.
                unsafe {
                    let (from, to) = (from.add(source), to.add(target));
                    if run < EIGHT || width < EIGHT {
                        for (i, channel) in (0..run).flat_map(|i| (0..width).map(move |c| (i, c))) {
                            *to.add(channel * plane + i) = *from.add(i * width + channel);
                        }
                        return;
                    }
                    for (channel, i) in eights(width).flat_map(|c| eights(run).map(move |i| (c, i))) {
                        square(from.add(i * width + channel), &lines, plane, to.add(channel * plane + i));
                    }
                }
            },
            |_| (),
        );
    }
}
