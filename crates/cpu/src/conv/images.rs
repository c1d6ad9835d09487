//! The images of a convolution's input as the right operand of a product.

use super::window::{Image, Window};
use crate::gemm::block::Bounds;
use crate::gemm::drive::Source;
use crate::gemm::real::same;
use crate::gemm::{Element, Real};
use std::ops::Range;

/// Which index of the product is (sample, position).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Along {
    /// The columns: the forward convolution.
    Columns,
    /// The terms: the gradient by the weight.
    Terms,
}

/// Images that are read in place or copied sample by sample.
pub struct Images<'a, S> {
    /// The sizes.
    pub window: &'a Window,
    /// The input.
    pub data: *const S,
    /// Which index is (sample, position).
    pub along: Along,
}

// SAFETY: the input is only read.
unsafe impl<S: Sync> Sync for Images<'_, S> {}

impl<S: Element> Images<'_, S> {
    /// Whether images are read in place.
    fn in_place(&self) -> bool {
        same::<S, S::Real>() && self.window.in_place()
    }

    /// Distance between the samples of a group's images.
    pub fn sample(&self) -> usize {
        let w = self.window;
        let image = w.image();
        if self.in_place() { w.groups * w.channels * image.plane() } else { w.channels * image.plane() }
    }

    /// Bytes of scratch memory for the images of so many neighbouring (sample, position).
    pub fn room(&self, most: usize) -> usize {
        if self.in_place() {
            return 0;
        }
        let samples = (most / self.window.positions() + 2).min(self.window.samples);
        samples * self.sample() * size_of::<S::Real>()
    }

    /// Copies the images of some channels of a sample's group.
    ///
    /// # Safety
    /// The input must be readable and `out` have room for all channels of the group.
    unsafe fn copy(&self, image: &Image, sample: usize, group: usize, channels: Range<usize>, out: *mut S::Real) {
        let w = self.window;
        let first = (sample * w.groups + group) * w.channels;
        let mut to = out.wrapping_add(channels.start * image.plane());
        for channel in first + channels.start..first + channels.end {
            // SAFETY: a channel of the input.
            let plane = unsafe { self.data.add(channel * w.plane()) };
            for slice in 0..image.sizes[0] {
                for row in 0..image.sizes[1] {
                    // SAFETY: rows of the input and of the room.
                    unsafe {
                        let line = std::slice::from_raw_parts_mut(to, image.sizes[2]);
                        match w.input_row(slice, row) {
                            None => line.fill(S::Real::ZERO),
                            Some(i) => {
                                let from = std::slice::from_raw_parts(plane.add(i * w.input[2]), w.input[2]);
                                self.copy_row(image, from, line);
                            }
                        }
                        to = to.add(image.sizes[2]);
                    }
                }
            }
        }
    }

    fn copy_row(&self, image: &Image, from: &[S], line: &mut [S::Real]) {
        let w = self.window;
        if w.stride[2] == 1 {
            let start = w.padding[2].min(line.len());
            let end = (start + from.len()).min(line.len());
            line[..start].fill(S::Real::ZERO);
            line[end..].fill(S::Real::ZERO);
            line[start..end].iter_mut().zip(from).for_each(|(to, x)| *to = x.widen());
            return;
        }
        line.fill(S::Real::ZERO);
        for phase in 0..w.step(2) {
            let (to, input, count) = w.phase(image, phase);
            let (to, from) = (&mut line[to..to + count], from.get(input..).unwrap_or(&[]));
            match w.stride[2] {
                2 => copy_every::<_, 2>(from, to),
                3 => copy_every::<_, 3>(from, to),
                4 => copy_every::<_, 4>(from, to),
                stride => to.iter_mut().zip(from.iter().step_by(stride)).for_each(|(to, x)| *to = x.widen()),
            }
        }
    }
}

/// Copies the first of every `STEP` elements: a number that is known makes vectors of them.
fn copy_every<S: Element, const STEP: usize>(from: &[S], to: &mut [S::Real]) {
    let (whole, rest) = from.as_chunks::<STEP>();
    let (inside, end) = to.split_at_mut(whole.len().min(to.len()));
    inside.iter_mut().zip(whole).for_each(|(to, x)| *to = x[0].widen());
    end.iter_mut().zip(rest).for_each(|(to, x)| *to = x.widen());
}

impl<S: Element> Source<S::Real> for Images<'_, S> {
    fn bytes(&self, bounds: &Bounds) -> usize {
        self.room(match self.along {
            Along::Columns => bounds.columns,
            Along::Terms => bounds.chunks.terms.min(bounds.terms),
        })
    }

    unsafe fn stage(
        &self,
        group: usize,
        columns: Range<usize>,
        terms: Range<usize>,
        room: *mut S::Real,
        staged: &mut Range<usize>,
    ) -> *const S::Real {
        let w = self.window;
        let image = w.image();
        if self.in_place() {
            return self.data.wrapping_add(group * w.channels * image.plane()).cast();
        }
        // The product's other index is (channel, tap).
        let (range, other) = match self.along {
            Along::Columns => (columns, terms),
            Along::Terms => (terms, columns),
        };
        let samples = range.start / w.positions()..(range.end - 1) / w.positions() + 1;
        let channels = other.start / w.taps()..other.end.div_ceil(w.taps());
        let copy = |channels: Range<usize>| {
            for (i, sample) in samples.clone().enumerate() {
                // SAFETY: the room has as many samples as a range touches.
                unsafe { self.copy(&image, sample, group, channels.clone(), room.add(i * self.sample())) };
            }
        };
        let first = match self.along {
            // A task keeps its samples; what is staged are channels, those of a chunk of terms after those of the one before.
            Along::Columns => {
                if channels.start < staged.start || channels.start > staged.end {
                    *staged = channels.start..channels.start;
                }
                if channels.end > staged.end {
                    copy(staged.end..channels.end);
                    staged.end = channels.end;
                }
                samples.start
            }
            // A task keeps its channels; what is staged are samples.
            Along::Terms => {
                if samples.start < staged.start || samples.end > staged.end {
                    copy(channels);
                    *staged = samples.clone();
                }
                staged.start
            }
        };
        room.wrapping_sub(first * self.sample())
    }
}
