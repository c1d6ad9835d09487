//! Images of several samples abreast, for f32 and vectors of AVX2 or AVX-512: every element is a vector, of whose numbers
//! each belongs to another sample. So all positions are computed alike, whatever the sizes, and are neighbours in
//! memory. Every image lies between the zeros of its border.

use super::window::Window;
use crate::Level;
use crate::gemm::Offsets;
use crate::gemm::{pack_avx512, pack_x86};
use std::ops::Range;

/// Numbers in a vector of AVX2.
const EIGHT: usize = 8;

/// Numbers in a vector of any level that has kernels for such images.
pub const LANES: [usize; 2] = [EIGHT, 16];

/// Taps of a kernel at least: with fewer, too little is computed with what is copied, and a product is the better way.
pub const TAPS: usize = 3;

/// Numbers in the longest vectors of a level that suit.
pub fn lanes(level: Level, suit: impl Fn(usize) -> bool) -> Option<usize> {
    let longest = if level >= Level::Avx512 { LANES[1] } else { LANES[0] };
    LANES.into_iter().rev().find(|&lanes| level >= Level::Avx2 && lanes <= longest && suit(lanes))
}

/// Whether so many fill their places, of which there are multiples of `step`, but for an eighth.
pub fn filled(count: usize, step: usize) -> bool {
    count > 0 && 8 * count >= 7 * count.next_multiple_of(step)
}

/// The images of one group of channels.
pub struct Abreast<'a> {
    window: &'a Window,
    /// Samples abreast.
    pub lanes: usize,
    /// Spatial sizes: the input and its border.
    sizes: [usize; 3],
    /// The distance of elements of a channel that are neighbours, and of channels.
    steps: [usize; 2],
}

impl<'a> Abreast<'a> {
    /// Images of a convolution's input, channel by channel.
    pub fn new(window: &'a Window, lanes: usize) -> Self {
        let sizes: [usize; 3] = std::array::from_fn(|d| window.input[d] + 2 * window.padding[d]);
        Abreast { window, lanes, sizes, steps: [lanes, sizes.iter().product::<usize>() * lanes] }
    }

    /// Images of a convolution's input whose channels lie side by side.
    pub fn channels_last(window: &'a Window, lanes: usize) -> Self {
        Abreast { steps: [window.channels * lanes, lanes], ..Abreast::new(window, lanes) }
    }

    /// Numbers of all channels.
    pub fn len(&self) -> usize {
        self.sizes.iter().product::<usize>() * self.window.channels * self.lanes
    }

    fn table(&self, offsets: Offsets, steps: [usize; 3], counts: [usize; 3]) -> Vec<isize> {
        let step = |d: usize| (steps[d] * self.sizes[d + 1..].iter().product::<usize>() * self.steps[0]) as isize;
        (0..3).fold(offsets, |offsets, d| offsets.axis(counts[d], step(d))).all()
    }

    /// Offsets of the output positions.
    pub fn positions(&self) -> Vec<isize> {
        self.table(Offsets::new(), self.window.stride, self.window.output)
    }

    /// Offsets of the kernel's taps in a channel.
    pub fn taps(&self) -> Vec<isize> {
        self.table(Offsets::new(), self.window.dilation, self.window.kernel)
    }

    /// Offsets of the (channel, tap) of the kernel.
    pub fn terms(&self) -> Vec<isize> {
        let channels = Offsets::new().axis(self.window.channels, self.steps[1] as isize);
        self.table(channels, self.window.dilation, self.window.kernel)
    }

    /// Calls `copy(input, image, count)` for what lies together in both, with the places of its first elements: in a channel
    /// of the input, and in one of an image; and `border` with what lies between in the latter.
    fn runs(&self, mut copy: impl FnMut(usize, usize, usize), mut border: impl FnMut(Range<usize>)) {
        let window = self.window;
        if window.padding == [0; 3] {
            return copy(0, 0, window.plane());
        }
        let mut end = 0;
        for line in 0..self.sizes[0] * self.sizes[1] {
            if let Some(i) = window.input_row(line / self.sizes[1], line % self.sizes[1]) {
                let start = line * self.sizes[2] + window.padding[2];
                border(end..start);
                copy(i * window.input[2], start, window.input[2]);
                end = start + window.input[2];
            }
        }
        border(end..self.sizes.iter().product());
    }

    /// Copies a channel of samples, where it begins at `from + samples[..]`, to `wide` numbers of the vectors of one of the
    /// images', which begins at `to`; without a sample they are zeros.
    ///
    /// # Safety
    /// As for [`join`].
    pub unsafe fn join(&self, from: *const f32, samples: &[isize], to: *mut f32, wide: usize) {
        let (lanes, step) = (self.lanes, self.steps[0]);
        self.runs(
            // SAFETY: the caller's promise.
            |input, image, count| unsafe {
                join(lanes, from.add(input), samples, count, to.add(image * step), [step, wide]);
            },
            |range| {
                for i in range {
                    // SAFETY: the caller's promise.
                    unsafe { to.add(i * step).write_bytes(0, wide) };
                }
            },
        );
    }

    /// Copies a channel of the images, which begins at `from`, to those of samples, which are `sample` apart.
    ///
    /// # Safety
    /// As for [`part`].
    pub unsafe fn part(&self, from: *const f32, to: *mut f32, samples: [usize; 2]) {
        let (lanes, step) = (self.lanes, self.steps[0]);
        self.runs(
            // SAFETY: the caller's promise.
            |input, image, count| unsafe { part(lanes, from.add(image * step), [count, step], to.add(input), samples) },
            |_| (),
        );
    }

    /// The distance of channels.
    pub fn channel(&self) -> usize {
        self.steps[1]
    }
}

/// Copies rows of samples to `wide` numbers of `count` vectors, `step` numbers apart; without a sample they are zeros.
///
/// # Safety
/// The vectors must have `lanes` numbers, 8 (then `wide`, too) or 16, and be writable, the rows be readable, and the processor
/// have the instructions for such vectors.
pub unsafe fn join(
    lanes: usize,
    from: *const f32,
    rows: &[isize],
    count: usize,
    to: *mut f32,
    [step, wide]: [usize; 2],
) {
    for first in (0..count).step_by(lanes) {
        // SAFETY: the caller's promise.
        unsafe {
            if lanes == 16 {
                let here = (count - first).min(lanes);
                pack_avx512::square(from.add(first), rows, here, step, wide, to.add(first * step));
            } else if let (Some(rows), Some(last)) = (rows.first_chunk(), count.checked_sub(EIGHT)) {
                // The last eight overlap those before.
                let first = first.min(last);
                pack_x86::square(from.add(first), rows, step, to.add(first * step));
            } else {
                for i in first..(first + EIGHT).min(count) {
                    for lane in 0..EIGHT {
                        *to.add(i * step + lane) = rows.get(lane).map_or(0.0, |&row| *from.offset(row).add(i));
                    }
                }
            }
        }
    }
}

/// Copies `count` vectors, `step` numbers apart, to rows of samples, which are `sample` apart.
///
/// # Safety
/// The vectors must have `lanes` numbers, 8 or 16, and be readable, the rows of `samples` writable, and the processor have
/// the instructions for such vectors.
pub unsafe fn part(
    lanes: usize,
    from: *const f32,
    [count, step]: [usize; 2],
    to: *mut f32,
    [samples, sample]: [usize; 2],
) {
    let mut rows = [0; 16];
    for first in (0..count).step_by(lanes) {
        let here = (count - first).min(lanes);
        for (i, row) in rows[..here].iter_mut().enumerate() {
            *row = ((first + i) * step) as isize;
        }
        let to = to.wrapping_add(first);
        // SAFETY: the caller's promise.
        unsafe {
            if lanes == 16 {
                pack_avx512::square(from, &rows[..here], samples, sample, here, to);
            } else if samples == EIGHT && here == EIGHT {
                pack_x86::square(from, rows.first_chunk().expect("sixteen"), sample, to);
            } else {
                for (i, lane) in (0..here).flat_map(|i| (0..samples).map(move |lane| (i, lane))) {
                    *to.add(lane * sample + i) = *from.offset(rows[i] + lane as isize);
                }
            }
        }
    }
}
