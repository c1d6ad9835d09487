//! The mean of every window, and its gradient ([`gradient`]).

use super::rows::{Row, TOGETHER, along};
use super::spans::{Plane, Span};
use super::{accumulate, plane_bytes, planes};
use crate::Context;
use crate::gemm::{Element, Real};
use crate::number::for_float;
use crate::operand::{Operand, Output, Shared};
use meshwork_graph::ops::{AvgPool, AvgPoolInput};
use meshwork_graph::{DType, Layout};

/// The means: input x.
pub fn run(op: &AvgPool, inputs: &[Operand], output: Output, context: Context) {
    for_float!("pooling", output.dtype, forward(op, inputs, output, context))
}

fn forward<S: Element>(op: &AvgPool, inputs: &[Operand], mut output: Output, context: Context) {
    let (x, shape) = (inputs[0].slice::<S>(), inputs[0].shape());
    let plane = Plane::new(&op.windows, &shape[2..], op.count_include_pad);
    let (from, to) = (plane.input_len(), plane.output_len());
    let out = Shared(output.slice::<S>().as_mut_ptr());
    planes(shape, context, &|i| {
        // SAFETY: the plane of the result belongs to this task.
        let out = unsafe { { out }.slice(i * to, to) };
        means(context.level, &plane, &x[i * from..][..from], out);
    });
}

crate::multiversion! {
    fn means<S: Element>(plane: &Plane, x: &[S], out: &mut [S]) = means_of;
}

fn count<T: Real>(window: [&Span; 3]) -> T {
    T::count(window.iter().map(|s| s.count).product())
}

#[inline(always)]
fn means_of<S: Element>(plane: &Plane, x: &[S], out: &mut [S]) {
    if plane.halves {
        let (width, half) = (plane.input[2], plane.output[2]);
        for (rows, out) in x.chunks_exact(2 * width).zip(out.chunks_exact_mut(half.max(1))) {
            let (top, bottom) = rows.split_at(width);
            let (top, bottom) = (top.as_chunks::<2>().0, bottom.as_chunks::<2>().0);
            match half {
                8.. => halve::<S, 8>(top, bottom, out),
                4.. => halve::<S, 4>(top, bottom, out),
                _ => halve::<S, 1>(top, bottom, out),
            }
        }
        return;
    }
    if let Some(row) = &plane.row {
        return means_of_rows(plane, row, x, out);
    }
    plane.windows(|i, window| {
        let mut sum = S::Real::ZERO;
        plane.positions(window, |p| sum = sum + x[p].widen());
        out[i] = S::narrow(sum / count(window));
    });
}

/// The means of windows of two rows, `N` at a time, since rows are often shorter than what a loop would be unrolled to; the last ones
/// overlap those before.
#[inline(always)]
fn halve<S: Element, const N: usize>(top: &[[S; 2]], bottom: &[[S; 2]], out: &mut [S]) {
    for i in (0..out.len()).step_by(N) {
        let i = i.min(out.len() - N);
        let mut means = [S::narrow(S::Real::ZERO); N];
        for ((mean, t), b) in means.iter_mut().zip(&top[i..][..N]).zip(&bottom[i..][..N]) {
            let sum = S::Real::ZERO + t[0].widen() + t[1].widen() + b[0].widen() + b[1].widen();
            *mean = S::narrow(sum / S::Real::count(4));
        }
        out[i..][..N].copy_from_slice(&means);
    }
}

#[inline(always)]
fn means_of_rows<S: Element>(plane: &Plane, row: &Row, x: &[S], out: &mut [S]) {
    let mut room = [S::Real::ZERO; TOGETHER];
    plane.rows(|first, lines| {
        for windows in row.ranges() {
            let sums = &mut room[..windows.len()];
            sums.fill(S::Real::ZERO);
            row.forward(plane, lines, &windows, |step| {
                let (x, sums) = (&x[step.position..], &mut sums[step.windows]);
                // SAFETY: the elements are those of windows inside of the plane, as `along` has checked.
                along(row.stride, sums.len(), x.len(), |i, at| unsafe {
                    sums[i] = sums[i] + x.get_unchecked(at).widen();
                });
            });
            let out = &mut out[first + windows.start..first + windows.end];
            for ((to, sum), &count) in out.iter_mut().zip(sums).zip(row.counts(&windows)) {
                *to = S::narrow(*sum / S::Real::count(lines[0].count * lines[1].count * count));
            }
        }
    });
}

/// The gradient: input dy.
pub mod gradient {
    use super::*;

    /// Bytes of scratch memory for [`run`].
    pub fn scratch(op: &AvgPoolInput, dtype: DType, _: &[&Layout], threads: usize) -> usize {
        for_float!("pooling", dtype, plane_bytes(&op.size, threads))
    }

    /// The gradient by the input.
    pub fn run(op: &AvgPoolInput, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
        for_float!("pooling", output.dtype, backward(op, inputs, output, scratch, context))
    }

    fn backward<S: Element>(
        op: &AvgPoolInput,
        inputs: &[Operand],
        mut output: Output,
        scratch: &mut [u8],
        context: Context,
    ) {
        let dy = inputs[0].slice::<S>();
        let plane = Plane::new(&op.pool.windows, &op.size, op.pool.count_include_pad);
        let windows = plane.output_len();
        accumulate(output.slice::<S>(), &plane, scratch, context, &|i, sums| {
            share(context.level, &plane, &dy[i * windows..][..windows], sums);
        });
    }

    crate::multiversion! {
        fn share<S: Element>(plane: &Plane, dy: &[S], sums: &mut [S::Real]) = share_out;
    }

    #[inline(always)]
    fn share_out<S: Element>(plane: &Plane, dy: &[S], sums: &mut [S::Real]) {
        if plane.halves {
            let (width, half) = (plane.input[2], plane.output[2]);
            let written = plane.whole_rows() * width;
            for (rows, dy) in sums[..written].chunks_exact_mut(2 * width).zip(dy.chunks_exact(half.max(1))) {
                let (top, bottom) = rows.split_at_mut(width);
                // What is left of a row of odd length.
                for row in [&mut *top, &mut *bottom] {
                    if let Some(last) = row.get_mut(2 * half) {
                        *last = S::Real::ZERO;
                    }
                }
                let (top, bottom) = (top.as_chunks_mut::<2>().0, bottom.as_chunks_mut::<2>().0);
                match half {
                    8.. => double::<S, 8>(dy, top, bottom),
                    4.. => double::<S, 4>(dy, top, bottom),
                    _ => double::<S, 1>(dy, top, bottom),
                }
            }
            sums[written..].fill(S::Real::ZERO);
            return;
        }
        sums.fill(S::Real::ZERO);
        if let Some(row) = &plane.row {
            return share_out_rows(plane, row, dy, sums);
        }
        plane.windows(|i, window| {
            let part = dy[i].widen() / count(window);
            plane.positions(window, |p| sums[p] = sums[p] + part);
        });
    }

    /// What windows give to two rows, `N` at a time, as [`halve`] does.
    #[inline(always)]
    fn double<S: Element, const N: usize>(dy: &[S], top: &mut [[S::Real; 2]], bottom: &mut [[S::Real; 2]]) {
        for i in (0..dy.len()).step_by(N) {
            let i = i.min(dy.len() - N);
            let mut parts = [[S::Real::ZERO; 2]; N];
            for (part, d) in parts.iter_mut().zip(&dy[i..][..N]) {
                *part = [S::Real::ZERO + d.widen() / S::Real::count(4); 2];
            }
            top[i..][..N].copy_from_slice(&parts);
            bottom[i..][..N].copy_from_slice(&parts);
        }
    }

    #[inline(always)]
    fn share_out_rows<S: Element>(plane: &Plane, row: &Row, dy: &[S], sums: &mut [S::Real]) {
        let mut parts = [S::Real::ZERO; TOGETHER];
        plane.rows(|first, lines| {
            for windows in row.ranges() {
                let dy = &dy[first + windows.start..first + windows.end];
                for ((part, d), &count) in parts.iter_mut().zip(dy).zip(row.counts(&windows)) {
                    *part = d.widen() / S::Real::count(lines[0].count * lines[1].count * count);
                }
                row.backward(plane, lines, &windows, |step| {
                    let (parts, sums) = (&parts[step.windows], &mut sums[step.position..]);
                    // SAFETY: the elements are those of windows inside of the plane, as `along` has checked.
                    along(row.stride, parts.len(), sums.len(), |i, at| unsafe {
                        *sums.get_unchecked_mut(at) = *sums.get_unchecked(at) + parts[i];
                    });
                });
            }
        });
    }
}
