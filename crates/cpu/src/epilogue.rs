//! Products whose results go on through a region of single elements, tile by tile, while they are in the first cache.
//!
//! Where a product's result does not come in tiles, or machine code cannot step through an operand of the region, both
//! run one after the other.

use crate::element::epilogue::{Follows, Tail};
use crate::gemm::scratch::room;
use crate::operand::Shared;
use crate::{Context, Level, Operand, Output, dot, element};
use meshwork_graph::ops::{Epilogue, Fused};
use meshwork_graph::{Layout, Type};
use meshwork_simd::line::Line;
use smallvec::SmallVec;

/// Columns of a product that has an epilogue, at least: machine code takes a row at a time.
const COLUMNS: usize = 16;

/// Whether the product's kernel is faster with the epilogue, on so many threads.
pub fn pays(op: &Epilogue, inputs: &[&Type], threads: usize) -> bool {
    let layouts: SmallVec<[Layout; 8]> = inputs.iter().map(|ty| Layout::contiguous(&ty.shape)).collect();
    let layouts: SmallVec<[&Layout; 8]> = layouts.iter().collect();
    let columns = dot::columns(&op.dot, layouts[1]);
    columns >= COLUMNS && is_one_kernel(op, &layouts, threads)
}

/// Whether the epilogue runs on tiles of the product.
fn is_one_kernel(op: &Epilogue, layouts: &[&Layout], threads: usize) -> bool {
    let product = Layout::contiguous(&op.product.shape);
    let region = op.inputs_of_region(layouts, &product);
    let level = Level::current();
    dot::finishes(&op.dot, op.product.dtype, layouts, threads, level)
        && Tail::fits(follows(op, layouts[1]), &region, level)
}

fn follows<'a>(op: &'a Epilogue, right: &Layout) -> Follows<'a> {
    let fused: &Fused = &op.fused;
    Follows { op: fused, at: op.at, columns: dot::columns(&op.dot, right) }
}

/// Bytes of scratch memory for [`run`]: those of the product, and its result where that must be in memory.
pub fn scratch(op: &Epilogue, layouts: &[&Layout], threads: usize) -> usize {
    let result = if is_one_kernel(op, layouts, threads) { 0 } else { room::<u8>(op.product.bytes()) };
    result + dot::scratch(&op.dot, op.product.dtype, &layouts[..2], threads)
}

/// Computes the results of the region.
///
/// # Panics
/// When the operands are not those of the epilogue.
pub fn run(op: &Epilogue, inputs: &[Operand], outputs: &[Output], scratch: &mut [u8], context: Context) {
    let layout = Layout::contiguous(&op.product.shape);
    let region = |product: *const u8| {
        // SAFETY: nobody reads the product's elements before they are there.
        op.inputs_of_region(inputs, unsafe { Operand::new(product, op.product.dtype, &layout) })
    };
    let tail = Tail::new(follows(op, inputs[1].layout), &region(std::ptr::null()), outputs, context.level);
    if let Some(tail) = tail
        && dot::run_with(&op.dot, inputs, op.product.dtype, &tail, scratch, context)
    {
        return;
    }
    let bytes = room::<u8>(op.product.bytes());
    let layouts = [inputs[0].layout, inputs[1].layout];
    let needed = bytes + dot::scratch(&op.dot, op.product.dtype, &layouts, context.par.lanes());
    // Another level than the current one may need what nobody asked for.
    let mut own = Vec::new();
    let scratch = if needed <= scratch.len() { scratch } else { lines(&mut own, needed) };
    let (product, rest) = scratch.split_at_mut(bytes);
    let product = Shared(product.as_mut_ptr());
    // SAFETY: the room has the product's bytes, and is read only when they are written.
    unsafe {
        let result = Output::new(product.pointer(), op.product.dtype, &op.product.shape);
        dot::run(&op.dot, &inputs[..2], result, rest, context);
    }
    element::run(&op.fused, &region(product.pointer()), outputs, context);
}

/// Bytes at the start of a line of the caches.
fn lines(room: &mut Vec<Line>, bytes: usize) -> &mut [u8] {
    room.resize(bytes.div_ceil(size_of::<Line>()), Line([0; 64]));
    // SAFETY: lines are plain bytes.
    unsafe { std::slice::from_raw_parts_mut(room.as_mut_ptr().cast(), room.len() * size_of::<Line>()) }
}
