//! Average and maximum pooling and their gradients; operands are dense.
//!
//! Order: a mean adds its window's elements in row-major order from +0 and divides by their number. Gradients add,
//! for every input position from +0, what the windows give it, in row-major order of the windows. f16 and bf16
//! are widened to f32 and rounded once, at the end.
//!
//! Windows that are evenly apart are taken many at a time (`phases`), those of 2 × 2 side by side as they lie; any others,
//! of adaptive pooling that does not divide the input evenly, one by one (`windows`). Planes (a channel of a sample), or parts
//! of them, are shared out among the threads.

pub mod avg;
mod axis;
mod copies;
pub mod max;
mod passes;
mod phases;
mod rows;
mod turn;
mod windows;

use crate::Context;
use crate::gemm::Element;
use crate::gemm::real::same;
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use crate::par::with_slots;
use meshwork_graph::Shape;
use windows::Plane;

/// Elements of a task, about.
const TASK: usize = 1 << 14;

/// Calls `task` for ranges of the planes of a shape, on all threads.
fn planes(shape: &Shape, context: Context, task: &(dyn Fn(usize) + Sync)) {
    let plane: usize = shape[2..].iter().product();
    context.par.ranges(shape[0] * shape[1], 1 + TASK / plane.max(1), &|range| range.for_each(task));
}

/// Bytes of scratch memory that [`accumulate`] needs: a plane of numbers a thread, where results are stored in
/// another type.
fn plane_bytes<S: Element>(size: &[usize], threads: usize) -> usize {
    if same::<S, S::Real>() { 0 } else { threads * room::<S::Real>(size.iter().product()) }
}

/// Calls `write(plane, numbers)` for every plane of a result, with numbers of no meaning, and stores what it writes.
fn accumulate<S: Element>(
    out: &mut [S],
    plane: &Plane,
    scratch: &mut [u8],
    context: Context,
    write: &(dyn Fn(usize, &mut [S::Real]) + Sync),
) {
    let size = plane.input_len();
    if size == 0 {
        return;
    }
    let (count, out) = (out.len() / size, Shared(out.as_mut_ptr()));
    if same::<S, S::Real>() {
        return context.par.ranges(count, 1 + TASK / size, &|range| {
            for i in range {
                // SAFETY: the plane belongs to this task, and its type is the one it is stored in.
                let numbers = unsafe { Shared({ out }.0.cast::<S::Real>()).slice(i * size, size) };
                write(i, numbers);
            }
        });
    }
    let bytes = room::<S::Real>(size);
    let rooms = Arena::new(scratch).slots(context.par.lanes(), bytes);
    let tasks = count.div_ceil(1 + TASK / size);
    with_slots(context.par, context.par.lanes(), tasks, |slot, task| {
        for i in task * count / tasks..(task + 1) * count / tasks {
            // SAFETY: the slot's plane, and a plane of the result that belongs to this task.
            let (numbers, out) = unsafe {
                let numbers: *mut S::Real = rooms.room(slot).take(size);
                (std::slice::from_raw_parts_mut(numbers, size), { out }.slice(i * size, size))
            };
            write(i, numbers);
            out.iter_mut().zip(numbers).for_each(|(to, x)| *to = S::narrow(*x));
        }
    });
}
