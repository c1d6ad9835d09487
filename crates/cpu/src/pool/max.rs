//! In every window the element of `v` where `x` has its maximum, and the gradient by `v` ([`gradient`]).
//!
//! The first maximum counts, and the first NaN before all others. A window without any position inside the input
//! gives −∞ and takes no gradient.

use super::rows::{Step, TOGETHER, along};
use super::spans::Plane;
use super::{accumulate, plane_bytes, planes};
use crate::Context;
use crate::gemm::{Element, Real};
use crate::number::for_float;
use crate::operand::{Operand, Output, Shared};
use meshwork_graph::ops::{MaxPool, MaxPoolInput};
use meshwork_graph::{DType, Layout};

/// The elements: inputs x and v.
pub fn run(op: &MaxPool, inputs: &[Operand], output: Output, context: Context) {
    for_float!("pooling", output.dtype, forward(op, inputs, output, context))
}

fn forward<S: Element>(op: &MaxPool, inputs: &[Operand], mut output: Output, context: Context) {
    let (x, v, shape) = (inputs[0].slice::<S>(), inputs[1].slice::<S>(), inputs[0].shape());
    let plane = Plane::new(&op.windows, &shape[2..], false);
    let (from, to) = (plane.input_len(), plane.output_len());
    let out = Shared(output.slice::<S>().as_mut_ptr());
    planes(shape, context, &|i| {
        // SAFETY: the plane of the result belongs to this task.
        let out = unsafe { { out }.slice(i * to, to) };
        select(context.level, &plane, &x[i * from..][..from], &v[i * from..][..from], out);
    });
}

crate::multiversion! {
    fn select<S: Element>(plane: &Plane, x: &[S], v: &[S], out: &mut [S]) = select_from;
}

/// Whether a later element takes the place of the best one so far.
#[inline(always)]
#[allow(clippy::eq_op, clippy::neg_cmp_op_on_partial_ord)]
fn beats<T: Real>(x: T, best: T) -> bool {
    // Only NaN differs from itself. No short circuits: this becomes a mask.
    (best == best) & !(x <= best)
}

/// The better of two pairs of x and something else.
#[inline(always)]
fn better<T: Real, V: Copy>(best: (T, V), other: (T, V)) -> (T, V) {
    let takes = beats(other.0, best.0);
    (if takes { other.0 } else { best.0 }, if takes { other.1 } else { best.1 })
}

#[inline(always)]
fn select_from<S: Element>(plane: &Plane, x: &[S], v: &[S], out: &mut [S]) {
    if plane.halves {
        let (width, half) = (plane.input[2], plane.output[2]);
        let rows = x.chunks_exact(2 * width).zip(v.chunks_exact(2 * width)).zip(out.chunks_exact_mut(half.max(1)));
        for ((x, v), out) in rows {
            let pairs = |rows: &'_ [S]| -> (*const [S; 2], *const [S; 2]) {
                (rows[..width].as_ptr().cast(), rows[width..].as_ptr().cast())
            };
            let ((x_top, x_bottom), (v_top, v_bottom)) = (pairs(x), pairs(v));
            for (i, to) in out.iter_mut().enumerate() {
                // SAFETY: both rows have two elements for each of the windows.
                let (x, y, v, w) = unsafe { (*x_top.add(i), *x_bottom.add(i), *v_top.add(i), *v_bottom.add(i)) };
                let top = better((x[0].widen(), v[0]), (x[1].widen(), v[1]));
                *to = better(better(top, (y[0].widen(), w[0])), (y[1].widen(), w[1])).1;
            }
        }
        return;
    }
    if let Some(row) = &plane.row {
        let (mut best, mut values) = ([S::Real::LEAST; TOGETHER], [S::narrow(S::Real::LEAST); TOGETHER]);
        return plane.rows(|first, lines| {
            for windows in row.ranges() {
                values[..windows.len()].fill(S::narrow(S::Real::LEAST));
                row.forward(plane, lines, &windows, |step| {
                    let (x, v) = (&x[step.position..], &v[step.position..][..x.len() - step.position]);
                    // SAFETY: there are as many elements of v, and `improve` has checked those of x.
                    let value = |at: usize| unsafe { *v.get_unchecked(at) };
                    improve(row.stride, &step, x, value, &mut best, &mut values);
                });
                let out = &mut out[first + windows.start..first + windows.end];
                out.copy_from_slice(&values[..windows.len()]);
            }
        });
    }
    plane.windows(|i, window| {
        let best = first_maximum(plane, window, x);
        out[i] = best.map_or(S::narrow(S::Real::LEAST), |p| v[p]);
    });
}

/// Takes a tap of the windows of a step, `x` from where it lies for the first of them; `v` gives what belongs to its elements.
#[inline(always)]
fn improve<S: Element, V: Copy>(
    stride: usize,
    step: &Step,
    x: &[S],
    v: impl Fn(usize) -> V,
    best: &mut [S::Real],
    values: &mut [V],
) {
    let (best, values) = (&mut best[step.windows.clone()], &mut values[step.windows.clone()]);
    let (fresh, rest) = (step.fresh, best.len() - step.fresh);
    // SAFETY: the elements are those of windows inside of the plane, as `along` has checked.
    unsafe {
        along(stride, fresh, x.len(), |i, at| (best[i], values[i]) = (x.get_unchecked(at).widen(), v(at)));
        let (best, values, first) = (&mut best[fresh..], &mut values[fresh..], fresh * stride);
        along(stride, rest, x.len().saturating_sub(first), |i, at| {
            let other = (x.get_unchecked(first + at).widen(), v(first + at));
            (best[i], values[i]) = better((best[i], values[i]), other);
        });
    }
}

/// The position of a window's maximum.
#[inline(always)]
fn first_maximum<S: Element>(plane: &Plane, window: [&super::spans::Span; 3], x: &[S]) -> Option<usize> {
    let mut best: Option<(S::Real, usize)> = None;
    plane.positions(window, |p| {
        let other = (x[p].widen(), p);
        best = Some(best.map_or(other, |best| better(best, other)));
    });
    best.map(|best| best.1)
}

/// The gradient by v: inputs x and dy.
pub mod gradient {
    use super::*;

    /// Bytes of scratch memory for [`run`].
    pub fn scratch(_: &MaxPoolInput, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
        for_float!("pooling", dtype, plane_bytes(&inputs[0].shape[2..], threads))
    }

    /// The gradient by v.
    pub fn run(op: &MaxPoolInput, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
        for_float!("pooling", output.dtype, backward(op, inputs, output, scratch, context))
    }

    fn backward<S: Element>(
        op: &MaxPoolInput,
        inputs: &[Operand],
        mut output: Output,
        scratch: &mut [u8],
        context: Context,
    ) {
        let (x, dy, shape) = (inputs[0].slice::<S>(), inputs[1].slice::<S>(), inputs[0].shape());
        let plane = Plane::new(&op.windows, &shape[2..], false);
        let (from, windows) = (plane.input_len(), plane.output_len());
        accumulate(output.slice::<S>(), &plane, scratch, context, &|i, sums| {
            scatter(context.level, &plane, &x[i * from..][..from], &dy[i * windows..][..windows], sums);
        });
    }

    crate::multiversion! {
        fn scatter<S: Element>(plane: &Plane, x: &[S], dy: &[S], sums: &mut [S::Real]) = scatter_to;
    }

    #[inline(always)]
    fn scatter_to<S: Element>(plane: &Plane, x: &[S], dy: &[S], sums: &mut [S::Real]) {
        if plane.halves {
            let (width, half) = (plane.input[2], plane.output[2]);
            let written = plane.whole_rows() * width;
            sums[written..].fill(S::Real::ZERO);
            let rows = x.chunks_exact(2 * width).zip(dy.chunks_exact(half.max(1)));
            for ((x, dy), sums) in rows.zip(sums[..written].chunks_exact_mut(2 * width)) {
                let (top, bottom) = x.split_at(width);
                let (to_top, to_bottom) = sums.split_at_mut(width);
                to_top[2 * half..].fill(S::Real::ZERO);
                to_bottom[2 * half..].fill(S::Real::ZERO);
                let from = top.as_chunks::<2>().0.iter().zip(bottom.as_chunks::<2>().0).zip(dy);
                let to = to_top.as_chunks_mut::<2>().0.iter_mut().zip(to_bottom.as_chunks_mut::<2>().0);
                for (((x, y), d), (t, b)) in from.zip(to) {
                    let top = better((x[0].widen(), 0u32), (x[1].widen(), 1));
                    let place = better(better(top, (y[0].widen(), 2)), (y[1].widen(), 3)).1;
                    let d = S::Real::ZERO + d.widen();
                    let at = |i: u32| if place == i { d } else { S::Real::ZERO };
                    (*t, *b) = ([at(0), at(1)], [at(2), at(3)]);
                }
            }
            return;
        }
        sums.fill(S::Real::ZERO);
        if let Some(row) = &plane.row {
            let (mut best, mut taps) = ([S::Real::LEAST; TOGETHER], [u32::MAX; TOGETHER]);
            return plane.rows(|first, lines| {
                for windows in row.ranges() {
                    taps[..windows.len()].fill(u32::MAX);
                    row.forward(plane, lines, &windows, |step| {
                        improve(row.stride, &step, &x[step.position..], |_| step.number, &mut best, &mut taps);
                    });
                    let dy = &dy[first + windows.start..first + windows.end];
                    row.backward(plane, lines, &windows, |step| {
                        let (dy, taps) = (&dy[step.windows.clone()], &taps[step.windows.clone()]);
                        let sums = &mut sums[step.position..];
                        // A sum that begins with +0 is never −0, so +0 changes none.
                        // SAFETY: the elements are those of windows inside of the plane, as `along` has checked.
                        along(row.stride, dy.len(), sums.len(), |i, at| unsafe {
                            let d = if taps[i] == step.number { dy[i].widen() } else { S::Real::ZERO };
                            *sums.get_unchecked_mut(at) = *sums.get_unchecked(at) + d;
                        });
                    });
                }
            });
        }
        plane.windows(|i, window| {
            if let Some(p) = first_maximum(plane, window, x) {
                sums[p] = sums[p] + dy[i].widen();
            }
        });
    }
}
