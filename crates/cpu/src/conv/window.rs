//! The geometry of a convolution in three spatial dimensions (missing ones have size 1), and where the elements of
//! its unfolded input lie.
//!
//! An *image* is a sample's input as the kernels read it: padded with zeros, and every row cut into `stride` phases
//! (the columns 0, s, 2s, …, then 1, s+1, …), so that the outputs of a row read neighbours whatever the stride. Where
//! the kernel has one tap, what lies between the outputs is read by nobody, and left out. An element's place is then a
//! sum: one offset for channel and tap, one for sample and output position.

use crate::gemm::{Offsets, Side};
use meshwork_graph::Shape;
use meshwork_graph::ops::ConvGeometry;

/// The sizes of a convolution.
#[derive(Clone, Debug)]
pub struct Window {
    /// Samples.
    pub samples: usize,
    /// Groups.
    pub groups: usize,
    /// Input channels of a group.
    pub channels: usize,
    /// Output channels of a group.
    pub outputs: usize,
    /// Spatial sizes of the input.
    pub input: [usize; 3],
    /// Spatial sizes of the kernel.
    pub kernel: [usize; 3],
    /// Spatial sizes of the output.
    pub output: [usize; 3],
    /// Step of the window.
    pub stride: [usize; 3],
    /// Zeros before and after.
    pub padding: [usize; 3],
    /// Distance of the taps.
    pub dilation: [usize; 3],
}

/// Distances between the elements of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Image {
    /// Spatial sizes; the last one is a row with all its phases.
    pub sizes: [usize; 3],
    /// Elements of a phase of a row.
    pub phase: usize,
}

impl Image {
    /// Elements of a channel.
    pub fn plane(&self) -> usize {
        self.sizes.iter().product()
    }
}

/// Sizes of up to three dimensions, with `fill` for missing outer ones.
fn three(sizes: &[usize], fill: usize) -> [usize; 3] {
    let mut out = [fill; 3];
    out[3 - sizes.len()..].copy_from_slice(sizes);
    out
}

impl Window {
    /// The sizes for input, weight and output of these shapes.
    pub fn new(geometry: &ConvGeometry, x: &Shape, w: &Shape, y: &Shape) -> Self {
        Window {
            samples: x[0],
            groups: geometry.groups,
            channels: w[1],
            outputs: w[0] / geometry.groups,
            input: three(&x[2..], 1),
            kernel: three(&w[2..], 1),
            output: three(&y[2..], 1),
            stride: three(&geometry.stride, 1),
            padding: three(&geometry.padding, 0),
            dilation: three(&geometry.dilation, 1),
        }
    }

    /// Taps of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel.iter().product()
    }

    /// Output positions of a sample.
    pub fn positions(&self) -> usize {
        self.output.iter().product()
    }

    /// Input elements of a channel.
    pub fn plane(&self) -> usize {
        self.input.iter().product()
    }

    /// The window whose convolution, with the taps turned round, is the gradient by this one's input; `None` where steps leave
    /// gaps, or where it would be smaller than that of the other gradient.
    pub fn transposed(&self) -> Option<Window> {
        let mut padding = [0; 3];
        for (d, padding) in padding.iter_mut().enumerate() {
            *padding = ((self.kernel[d] - 1) * self.dilation[d]).checked_sub(self.padding[d])?;
        }
        (self.stride == [1; 3]).then(|| Window {
            channels: self.outputs,
            outputs: self.channels,
            input: self.output,
            output: self.input,
            padding,
            ..self.clone()
        })
    }

    /// Whether the input itself can serve as images.
    pub fn in_place(&self) -> bool {
        self.padding == [0; 3] && self.stride[2] == 1
    }

    /// How far apart the elements of neighbouring outputs lie in images.
    pub fn step(&self, d: usize) -> usize {
        if self.kernel[d] == 1 && !self.in_place() { 1 } else { self.stride[d] }
    }

    /// What so many positions read of dimension `d` of images.
    pub fn extent(&self, d: usize, positions: usize) -> usize {
        positions.saturating_sub(1) * self.step(d) + self.kernel[d].saturating_sub(1) * self.dilation[d] + 1
    }

    /// The images of the input.
    pub fn image(&self) -> Image {
        if self.in_place() {
            return Image { sizes: self.input, phase: self.input[2] };
        }
        let mut sizes = std::array::from_fn(|d| self.extent(d, self.output[d]));
        let phase = sizes[2].div_ceil(self.step(2));
        sizes[2] = phase * self.step(2);
        Image { sizes, phase }
    }

    /// Offsets of the taps within a channel of an image.
    pub fn tap_offsets(&self, offsets: Offsets, image: &Image) -> Offsets {
        let row = image.sizes[2];
        let last: Vec<isize> = (0..self.kernel[2])
            .map(|k| {
                let column = k * self.dilation[2];
                (column % self.step(2) * image.phase + column / self.step(2)) as isize
            })
            .collect();
        offsets
            .axis(self.kernel[0], (self.dilation[0] * image.sizes[1] * row) as isize)
            .axis(self.kernel[1], (self.dilation[1] * row) as isize)
            .table(&last)
    }

    /// Offsets of the output positions within a channel of an image.
    pub fn position_offsets(&self, offsets: Offsets, image: &Image) -> Offsets {
        let row = image.sizes[2];
        offsets
            .axis(self.output[0], (self.step(0) * image.sizes[1] * row) as isize)
            .axis(self.output[1], (self.step(1) * row) as isize)
            .axis(self.output[2], 1)
    }

    /// Offsets of (sample, position) and of (channel, tap) in images whose samples are `sample` apart.
    pub fn unfolded(&self, image: &Image, sample: usize) -> Side {
        Side {
            lines: self.position_offsets(Offsets::new().axis(self.samples, sample as isize), image),
            terms: self.tap_offsets(Offsets::new().axis(self.channels, image.plane() as isize), image),
        }
    }

    /// Offsets of the taps, and of the output positions, in a plane of an image.
    pub fn scattered(&self, image: &Image) -> Side {
        Side { lines: self.tap_offsets(Offsets::new(), image), terms: self.position_offsets(Offsets::new(), image) }
    }

    /// For the row of an image that is `coordinates` (slice and row): the row of the input, or `None` in the border.
    pub fn input_row(&self, slice: usize, row: usize) -> Option<usize> {
        let apart = |d: usize| self.stride[d] / self.step(d);
        let inside = |d: usize, i: usize| (i * apart(d)).checked_sub(self.padding[d]).filter(|&i| i < self.input[d]);
        Some(inside(0, slice)? * self.input[1] + inside(1, row)?)
    }

    /// What a phase of an image row holds: its first column with input, the input column there, and how many follow,
    /// `stride` apart in the input.
    pub fn phase(&self, image: &Image, phase: usize) -> (usize, usize, usize) {
        let (stride, padding) = (self.stride[2], self.padding[2]);
        let first = padding.saturating_sub(phase).div_ceil(stride).min(image.phase);
        let input = (first * stride + phase).saturating_sub(padding);
        let count = self.input[2].saturating_sub(input).div_ceil(stride).min(image.phase - first);
        (phase * image.phase + first, input, count)
    }

    /// The taps of dimension `d` that meet position `i` of the input, and the output positions where they do.
    pub fn meets(&self, d: usize, i: usize) -> impl Iterator<Item = (usize, usize)> {
        let (stride, output, dilation) = (self.stride[d], self.output[d], self.dilation[d]);
        let padded = i + self.padding[d];
        (0..self.kernel[d]).filter_map(move |k| {
            let from = padded.checked_sub(k * dilation)?;
            (from.is_multiple_of(stride) && from / stride < output).then_some((k, from / stride))
        })
    }
}
