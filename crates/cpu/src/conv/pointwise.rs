//! The gradient by the input where every element meets the only tap of the kernel: one product, whose sums are added to +0 like
//! those of more taps.

use super::images::{Along, Images};
use super::window::Window;
use crate::Context;
use crate::gemm::drive::{Batch, Source, multiply_staged, staged_bytes};
use crate::gemm::scratch::Arena;
use crate::gemm::{Element, Offsets, Place, Side, Size};

/// Positions of a sample from which on this is the better way: of fewer, a task of the other one (`conv/input.rs`) has rows for
/// several tiles, and stores planes as a whole.
const POSITIONS: usize = 1 << 14;

/// The window of the product: the convolution of the other gradient, or `None` where elements meet more or fewer taps, or
/// this is not the better way.
fn product(window: &Window) -> Option<Window> {
    let is_one = |product: &Window| window.taps() == 1 && product.in_place() && product.positions() >= POSITIONS;
    window.transposed().filter(is_one)
}

fn size(product: &Window, block: usize) -> Size {
    let (terms, columns) = (product.channels, product.samples * product.positions());
    Size { rows: product.outputs, columns, terms, block, run: 1 }
}

/// Bytes of scratch memory for [`run`], if it computes such a gradient.
pub fn bytes<S: Element>(window: &Window, block: usize, threads: usize) -> Option<usize> {
    let product = product(window)?;
    let images = Images::<S> { window: &product, data: std::ptr::null(), along: Along::Columns };
    Some(staged_bytes::<S::Real>(size(&product, block), window.groups, threads, &|bounds| images.bytes(bounds)))
}

/// The gradient. Says whether it was computed: not where another way is better, or where the product is cut along its terms.
///
/// # Safety
/// The operands must be dense and hold their elements, the output its own; the arena must have [`bytes`], and the processor be able
/// to run the context's level.
pub unsafe fn run<S: Element>(
    window: &Window,
    block: usize,
    dy: *const S,
    w: *const S,
    dx: *mut S,
    arena: Arena,
    context: Context,
) -> bool {
    let Some(product) = product(window) else { return false };
    let (size, positions) = (size(&product, block), product.positions());
    let image = product.image();
    let images = Images::<S> { window: &product, data: dy, along: Along::Columns };
    let sample = (window.groups * size.rows * positions) as isize;
    let place = Place {
        rows: Offsets::new().axis(size.rows, positions as isize),
        columns: Offsets::new().axis(window.samples, sample).axis(positions, 1),
    };
    let batch = Batch {
        size,
        left: w,
        left_side: &Side {
            lines: Offsets::new().axis(size.rows, 1),
            terms: Offsets::new().axis(size.terms, size.rows as isize),
        },
        right_side: &product.unfolded(&image, images.sample()),
        out: dx,
        place: &place,
        lefts: &Offsets::new().axis(window.groups, (size.rows * size.terms) as isize),
        outs: &Offsets::new().axis(window.groups, (size.rows * positions) as isize),
        finish: None,
        from_zero: true,
    };
    // SAFETY: the caller's promise.
    unsafe { multiply_staged(&batch, &images, arena, context) }
}
