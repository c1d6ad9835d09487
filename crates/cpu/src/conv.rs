//! Convolution and its two gradients, as products with the unfolded input.
//!
//! Order, for every group by itself:
//! - [`forward`]: the sum over (channel, tap), row-major, in blocks of [`Conv::blocks`]. Positions in the
//!   border take part as zeros.
//! - [`weight`]: the sum over (sample, position), row-major, in blocks of [`ConvWeight::blocks`]: whole samples.
//!   Positions in the border take part as zeros.
//! - [`input`]: for every tap the sum over the output channels in blocks of [`ConvInput::blocks`](meshwork_graph::ops::ConvInput::blocks); the sums of
//!   the taps that exist are added one by one in row-major order of the taps, beginning at +0.
//!
//! Inside a block a sum is one chain of fused multiply-adds beginning at +0; blocks are combined by the tree of
//! adjacent pairs. f16 and bf16 are widened to f32 and rounded once, at the end. The input is never unfolded
//! in memory: panels are packed straight from images of a few samples (`conv/window.rs`), or microkernels read images: those of
//! single samples (`conv/direct_x86.rs`, `conv/along_x86.rs`), or of as many abreast as a vector has numbers
//! (`conv/abreast_x86.rs`).

#[cfg(target_arch = "x86_64")]
mod abreast_x86;
#[cfg(target_arch = "x86_64")]
mod along_x86;
mod depthwise;
#[cfg(target_arch = "x86_64")]
mod direct_x86;
#[cfg(target_arch = "x86_64")]
mod forward_x86;
#[cfg(target_arch = "x86_64")]
mod gather_x86;
mod images;
pub mod input;
#[cfg(target_arch = "x86_64")]
mod input_x86;
mod pointwise;
#[cfg(target_arch = "x86_64")]
mod tile_x86;
#[cfg(target_arch = "x86_64")]
mod weight_x86;
mod window;
use crate::number::for_float;

use crate::Context;
use crate::gemm::drive::{Batch, Source, multiply_staged, staged_bytes};
#[cfg(target_arch = "x86_64")]
use crate::gemm::real::same;
use crate::gemm::scratch::Arena;
use crate::gemm::{Element, Offsets, Place, Side, Size};
use crate::operand::{Operand, Output};
#[cfg(target_arch = "x86_64")]
use abreast_x86::LANES;
use images::{Along, Images};
use meshwork_graph::canonical::Blocks;
use meshwork_graph::ops::{Conv, ConvGeometry, ConvWeight};
use meshwork_graph::{DType, Layout, Shape};
#[cfg(target_arch = "x86_64")]
use window::Window;

/// A convolution as one product per group, the unfolded input on the right.
struct Unfolded {
    window: Window,
    along: Along,
    size: Size,
    left: Side,
    place: Place,
    lefts: Offsets,
    outs: Offsets,
}

fn block(blocks: &Blocks) -> usize {
    (blocks.unit * blocks.inner).max(1)
}

impl Unfolded {
    /// Left: the weight, `outputs × (channel, tap)`; result `outputs × (sample, position)`.
    fn forward(op: &Conv, x: &Shape, w: &Shape, y: &Shape) -> Self {
        let window = Window::new(&op.geometry, x, w, y);
        let (outputs, positions) = (window.outputs, window.positions());
        let terms = window.channels * window.taps();
        let sample = (window.groups * outputs * positions) as isize;
        Unfolded {
            along: Along::Columns,
            size: Size {
                rows: outputs,
                columns: window.samples * positions,
                terms,
                block: block(&op.blocks(w)),
                run: terms,
            },
            left: Side { lines: Offsets::new().axis(outputs, terms as isize), terms: Offsets::new().axis(terms, 1) },
            place: Place {
                rows: Offsets::new().axis(outputs, positions as isize),
                columns: Offsets::new().axis(window.samples, sample).axis(positions, 1),
            },
            lefts: Offsets::new().axis(window.groups, (outputs * terms) as isize),
            outs: Offsets::new().axis(window.groups, (outputs * positions) as isize),
            window,
        }
    }

    /// Left: the output's gradient, `outputs × (sample, position)`; result `outputs × (channel, tap)`.
    fn weight(op: &ConvWeight, x: &Shape, w: &Shape, y: &Shape) -> Self {
        let window = Window::new(&op.geometry, x, w, y);
        let (outputs, positions) = (window.outputs, window.positions());
        let columns = window.channels * window.taps();
        let sample = (window.groups * outputs * positions) as isize;
        Unfolded {
            along: Along::Terms,
            size: Size {
                rows: outputs,
                columns,
                terms: window.samples * positions,
                block: block(&op.blocks(y)),
                run: positions,
            },
            left: Side {
                lines: Offsets::new().axis(outputs, positions as isize),
                terms: Offsets::new().axis(window.samples, sample).axis(positions, 1),
            },
            place: Place {
                rows: Offsets::new().axis(outputs, columns as isize),
                columns: Offsets::new().axis(columns, 1),
            },
            lefts: Offsets::new().axis(window.groups, (outputs * positions) as isize),
            outs: Offsets::new().axis(window.groups, (outputs * columns) as isize),
            window,
        }
    }

    fn scratch<S: Element>(&self, threads: usize) -> usize {
        let images = Images::<S> { window: &self.window, data: std::ptr::null(), along: self.along };
        let bytes = staged_bytes::<S::Real>(self.size, self.window.groups, threads, &|bounds| images.bytes(bounds));
        let bytes = bytes.max(match self.along {
            Along::Columns if depthwise::forward::suits(self) => {
                depthwise::forward::bytes::<S::Real>(&self.window, threads)
            }
            Along::Terms if depthwise::weight::suits(self) => depthwise::weight::bytes::<S::Real>(self, threads),
            _ => 0,
        });
        #[cfg(target_arch = "x86_64")]
        if same::<S, f32>() {
            let images = Images::<f32> { window: &self.window, data: std::ptr::null(), along: self.along };
            return bytes.max(match self.along {
                Along::Columns if direct_x86::suits_forward(&self.window) => {
                    direct_x86::forward_bytes(&images, threads)
                }
                Along::Terms if direct_x86::suits_weight(self, threads) => {
                    direct_x86::weight_bytes(self, &images, threads)
                }
                Along::Columns => {
                    let bytes = |lanes| {
                        let abreast = forward_x86::suits(self, threads, lanes);
                        let along = along_x86::suits(self, threads, lanes);
                        let abreast = if abreast { forward_x86::bytes(self, threads, lanes) } else { 0 };
                        abreast.max(if along { along_x86::bytes(self, threads, lanes) } else { 0 })
                    };
                    LANES.into_iter().map(bytes).max().unwrap_or(0)
                }
                Along::Terms => {
                    let suited = LANES.into_iter().filter_map(|lanes| weight_x86::fill(self, threads, lanes));
                    suited.map(|fill| weight_x86::bytes(self, threads, fill)).max().unwrap_or(0)
                }
            });
        }
        bytes
    }

    /// Computes the products of `left` and the images of `x` without packing the images, where that is better;
    /// says whether it did.
    #[cfg(target_arch = "x86_64")]
    fn direct<S: Element>(
        &self,
        left: Operand,
        x: Operand,
        output: &mut Output,
        scratch: &mut [u8],
        context: Context,
    ) -> bool {
        if !same::<S, f32>() || !direct_x86::runs(context.level) {
            return false;
        }
        let (level, threads) = (context.level, context.par.lanes());
        let images = Images::<f32> { window: &self.window, data: x.slice().as_ptr(), along: self.along };
        let (left, out) = (left.slice::<f32>().as_ptr(), output.first::<f32>());
        let arena = Arena::new(scratch);
        // SAFETY: as in `run`; the level has vectors of such lengths.
        unsafe {
            match self.along {
                Along::Columns if direct_x86::suits_forward(&self.window) => {
                    direct_x86::forward(self, &images, left, out, arena, context);
                }
                Along::Terms if direct_x86::suits_weight(self, threads) => {
                    direct_x86::weight(self, &images, left, out, arena, context);
                }
                Along::Columns => {
                    let suits = |lanes| forward_x86::suits(self, threads, lanes);
                    if let Some(lanes) = abreast_x86::lanes(level, suits) {
                        forward_x86::forward((self, lanes), images.data, left, out, arena, context);
                        return true;
                    }
                    let suits = |lanes| along_x86::suits(self, threads, lanes);
                    let Some(lanes) = along_x86::lanes(level, suits) else { return false };
                    along_x86::forward((self, lanes), images.data, left, out, arena, context);
                }
                Along::Terms => {
                    let fill = |lanes| weight_x86::fill(self, threads, lanes);
                    let Some(fill) = abreast_x86::lanes(level, |lanes| fill(lanes).is_some()).and_then(fill) else {
                        return false;
                    };
                    weight_x86::weight((self, fill), images.data, left, out, arena, context);
                }
            }
        }
        true
    }

    /// Computes the products of `left` and the images of `x` with groups abreast, where that is better; says whether it did.
    fn abreast<S: Element>(
        &self,
        left: Operand,
        x: Operand,
        output: &mut Output,
        scratch: &mut [u8],
        context: Context,
    ) -> bool {
        let (x, left, out, arena) = (x.slice::<S>(), left.slice::<S>(), output.first::<S>(), Arena::new(scratch));
        // SAFETY: as in `run`.
        unsafe {
            match self.along {
                Along::Columns if depthwise::forward::suits(self) => {
                    depthwise::forward::run(self, x, left, out, arena, context);
                }
                Along::Terms if depthwise::weight::suits(self) => {
                    depthwise::weight::run(self, x, left, out, arena, context);
                }
                _ => return false,
            }
        }
        true
    }

    /// Computes the products of `left` and the images of `x`.
    fn run<S: Element>(&self, left: Operand, x: Operand, mut output: Output, scratch: &mut [u8], context: Context) {
        if self.abreast::<S>(left, x, &mut output, scratch, context) {
            return;
        }
        #[cfg(target_arch = "x86_64")]
        if self.direct::<S>(left, x, &mut output, scratch, context) {
            return;
        }
        let images = Images::<S> { window: &self.window, data: x.slice::<S>().as_ptr(), along: self.along };
        let unfolded = self.window.unfolded(&self.window.image(), images.sample());
        let right_side = match self.along {
            Along::Columns => unfolded,
            Along::Terms => Side { lines: unfolded.terms, terms: unfolded.lines },
        };
        let batch = Batch {
            size: self.size,
            left: left.slice::<S>().as_ptr(),
            left_side: &self.left,
            right_side: &right_side,
            out: output.first::<S>(),
            place: &self.place,
            lefts: &self.lefts,
            outs: &self.outs,
            finish: None,
            from_zero: false,
        };
        // SAFETY: the operands are dense and hold their elements, the output its own; a context's level is one
        // that the processor can run, and the arena checks its size.
        unsafe { _ = multiply_staged(&batch, &images, Arena::new(scratch), context) };
    }
}

fn output_shape(geometry: &ConvGeometry, x: &Shape, w: &Shape) -> Shape {
    let mut shape = Shape::new(&[x[0], w[0]]);
    shape.0.extend(geometry.output(&x[2..], &w[2..]).expect("a kernel that fits"));
    shape
}

/// `y = x ⋆ w`: inputs x and w.
pub mod forward {
    use super::*;

    /// Bytes of scratch memory for [`run`].
    pub fn scratch(op: &Conv, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
        let (x, w) = (&inputs[0].shape, &inputs[1].shape);
        let unfolded = Unfolded::forward(op, x, w, &output_shape(&op.geometry, x, w));
        fn of<S: Element>(unfolded: &Unfolded, threads: usize) -> usize {
            unfolded.scratch::<S>(threads)
        }
        for_float!("convolution", dtype, of(&unfolded, threads))
    }

    /// Whether a convolution of a few samples needs little more than its arithmetic.
    pub fn starts_cheaply(op: &Conv, x: &Shape, w: &Shape, y: &Shape) -> bool {
        #[cfg(target_arch = "x86_64")]
        return direct_x86::suits_forward(&Window::new(&op.geometry, x, w, y));
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// The convolution; inputs must be dense.
    pub fn run(op: &Conv, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
        let unfolded = Unfolded::forward(op, inputs[0].shape(), inputs[1].shape(), output.shape);
        fn of<S: Element>(u: &Unfolded, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
            u.run::<S>(inputs[1], inputs[0], output, scratch, context);
        }
        for_float!("convolution", output.dtype, of(&unfolded, inputs, output, scratch, context))
    }
}

/// The gradient by the weight: inputs x and dy.
pub mod weight {
    use super::*;

    fn shape(op: &ConvWeight, x: &Shape, dy: &Shape) -> Shape {
        let mut shape = Shape::new(&[dy[1], x[1] / op.geometry.groups]);
        shape.0.extend(op.kernel.iter().copied());
        shape
    }

    /// Bytes of scratch memory for [`run`].
    pub fn scratch(op: &ConvWeight, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
        let (x, dy) = (&inputs[0].shape, &inputs[1].shape);
        let unfolded = Unfolded::weight(op, x, &shape(op, x, dy), dy);
        fn of<S: Element>(unfolded: &Unfolded, threads: usize) -> usize {
            unfolded.scratch::<S>(threads)
        }
        for_float!("convolution", dtype, of(&unfolded, threads))
    }

    /// Whether the gradient over a few samples needs little more than its arithmetic.
    pub fn starts_cheaply(op: &ConvWeight, x: &Shape, dy: &Shape) -> bool {
        #[cfg(target_arch = "x86_64")]
        return direct_x86::suits_weight(&Unfolded::weight(op, x, &shape(op, x, dy), dy), 1);
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// The gradient; inputs must be dense.
    pub fn run(op: &ConvWeight, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
        let unfolded = Unfolded::weight(op, inputs[0].shape(), output.shape, inputs[1].shape());
        fn of<S: Element>(u: &Unfolded, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
            u.run::<S>(inputs[1], inputs[0], output, scratch, context);
        }
        for_float!("convolution", output.dtype, of(&unfolded, inputs, output, scratch, context))
    }
}
