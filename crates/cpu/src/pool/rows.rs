//! Rows of the input, whose columns lie in phases.

use super::axis::Axis;
use super::turn::{turn, turn_back};
use crate::gemm::Element;
use std::ops::Range;

/// Strides up to which all runs of a row are copied together.
pub const WOVEN: usize = 4;

/// A run of a row of the input that lies in one phase.
struct Run {
    /// The first element of the phase's row, and of the run.
    row: usize,
    first: usize,
    count: usize,
}

/// Some columns of rows of the input, in their phases.
pub struct Columns {
    /// Columns of the input.
    pub range: Range<usize>,
    /// The runs that begin at the first column, the second, …, as many as the stride.
    runs: Vec<Run>,
    /// Where they begin.
    places: Vec<usize>,
    /// Elements of a phase's row.
    pub extent: usize,
}

impl Columns {
    /// Those of a part at `at` of its own positions, in phases `distance` apart.
    pub fn new(axis: &Axis, first: isize, at: Range<usize>, extent: usize, distance: usize) -> Self {
        let stride = axis.stride;
        let column = |at: usize| (first + at as isize) * stride as isize - axis.padding as isize;
        let range = column(at.start).clamp(0, axis.size as isize)..column(at.end).clamp(0, axis.size as isize);
        let lead = (range.start - column(0)) as usize;
        let range = range.start as usize..range.end as usize;
        let run = |c: usize| Run {
            row: (lead + c) % stride * distance,
            first: ((lead + c) / stride).min(extent),
            count: range.len().saturating_sub(c).div_ceil(stride),
        };
        let runs: Vec<Run> = (0..stride).map(run).collect();
        Columns { places: runs.iter().map(|run| run.row + run.first).collect(), runs, range, extent }
    }

    /// Copies the columns of a row of the input to their phases, with a border around.
    ///
    /// # Safety
    /// `from` must have the columns, and `to` the rows of all phases.
    #[inline(always)]
    pub unsafe fn split<S: Element>(&self, from: *const S, to: *mut S::Real, border: S::Real) {
        for run in &self.runs {
            // SAFETY: a row of a phase.
            let row = unsafe { std::slice::from_raw_parts_mut(to.add(run.row), self.extent) };
            row[..run.first].fill(border);
            row[run.first + run.count..].fill(border);
        }
        // SAFETY: the columns.
        let from = unsafe { std::slice::from_raw_parts(from, self.range.len()) };
        let base = to;
        let to = |run: usize| to.wrapping_add(self.places[run]);
        // SAFETY: every run has room in its row.
        unsafe {
            match self.runs.len() {
                1 => split_runs::<S, 1>(from, to),
                2 => split_runs::<S, 2>(from, to),
                3 => split_runs::<S, 3>(from, to),
                4 => split_runs::<S, 4>(from, to),
                stride => {
                    let (groups, places) = (from.len() / stride, &self.places);
                    let rest = from.len() - groups * stride;
                    turn(from.as_ptr(), stride, groups, base, places);
                    turn(
                        from.as_ptr().add(groups * stride),
                        0,
                        usize::from(rest > 0),
                        base.add(groups),
                        &places[..rest],
                    );
                }
            }
        }
    }

    /// Copies the columns of a row from their phases.
    ///
    /// # Safety
    /// `from` must have the rows of all phases, and `to` the columns.
    #[inline(always)]
    pub unsafe fn join<S: Element>(&self, from: *const S::Real, to: *mut S) {
        // SAFETY: the columns.
        let to = unsafe { std::slice::from_raw_parts_mut(to, self.range.len()) };
        let base = from;
        let from = |run: usize| from.wrapping_add(self.places[run]);
        // SAFETY: every run lies in its row.
        unsafe {
            match self.runs.len() {
                1 => join_runs::<S, 1>(from, to),
                2 => join_runs::<S, 2>(from, to),
                3 => join_runs::<S, 3>(from, to),
                4 => join_runs::<S, 4>(from, to),
                stride => {
                    let (groups, places) = (to.len() / stride, &self.places);
                    let rest = to.len() - groups * stride;
                    let to = to.as_mut_ptr();
                    turn_back(base, places, to, stride, groups);
                    turn_back(base.add(groups), &places[..rest], to.add(groups * stride), 0, usize::from(rest > 0));
                }
            }
        }
    }
}

/// Calls a function of so many elements at a time, the last ones of which overlap those before, since rows are often shorter than
/// what a loop would be unrolled to.
macro_rules! overlapping {
    ($count:expr, $name:ident::<$element:ty $(, $stride:ident)?>($($arg:expr),*)) => {
        match $count {
            16.. => $name::<$element, $($stride,)? 16>($($arg),*),
            8.. => $name::<$element, $($stride,)? 8>($($arg),*),
            4.. => $name::<$element, $($stride,)? 4>($($arg),*),
            _ => $name::<$element, $($stride,)? 1>($($arg),*),
        }
    };
}
pub(super) use overlapping;

/// Copies every `STRIDE`-th element to a run of its own.
///
/// # Safety
/// There must be room where `to` says that each run begins.
#[inline(always)]
unsafe fn split_runs<S: Element, const STRIDE: usize>(from: &[S], to: impl Fn(usize) -> *mut S::Real) {
    let (groups, rest) = from.as_chunks::<STRIDE>();
    let to: [_; STRIDE] = std::array::from_fn(to);
    // SAFETY: the caller's promise.
    unsafe {
        overlapping!(groups.len(), split_groups::<S, STRIDE>(groups, to));
        for (x, to) in rest.iter().zip(to) {
            *to.add(groups.len()) = x.widen();
        }
    }
}

#[inline(always)]
unsafe fn split_groups<S: Element, const STRIDE: usize, const N: usize>(
    from: &[[S; STRIDE]],
    to: [*mut S::Real; STRIDE],
) {
    for i in (0..from.len()).step_by(N) {
        let i = i.min(from.len() - N);
        let from = &from[i..][..N];
        for (c, to) in to.iter().enumerate() {
            let run: [S::Real; N] = std::array::from_fn(|k| from[k][c].widen());
            // SAFETY: the caller's promise.
            unsafe { to.add(i).cast::<[S::Real; N]>().write_unaligned(run) };
        }
    }
}

/// Copies runs to every `STRIDE`-th element.
///
/// # Safety
/// There must be elements where `from` says that each run begins.
#[inline(always)]
unsafe fn join_runs<S: Element, const STRIDE: usize>(from: impl Fn(usize) -> *const S::Real, to: &mut [S]) {
    let (groups, rest) = to.as_chunks_mut::<STRIDE>();
    let from: [_; STRIDE] = std::array::from_fn(from);
    // SAFETY: the caller's promise.
    unsafe {
        overlapping!(groups.len(), join_groups::<S, STRIDE>(from, groups));
        for (from, to) in from.into_iter().zip(rest) {
            *to = S::narrow(*from.add(groups.len()));
        }
    }
}

#[inline(always)]
unsafe fn join_groups<S: Element, const STRIDE: usize, const N: usize>(
    from: [*const S::Real; STRIDE],
    to: &mut [[S; STRIDE]],
) {
    let count = to.len();
    for i in (0..count).step_by(N) {
        let i = i.min(count - N);
        // SAFETY: the caller's promise.
        let runs = from.map(|from| unsafe { from.add(i).cast::<[S::Real; N]>().read_unaligned() });
        let groups: [[S; STRIDE]; N] = std::array::from_fn(|k| std::array::from_fn(|c| S::narrow(runs[c][k])));
        to[i..][..N].copy_from_slice(&groups);
    }
}

/// Copies a row of numbers to elements.
#[inline(always)]
pub fn narrow_row<S: Element>(from: &[S::Real], to: &mut [S]) {
    let from = from[..to.len()].as_ptr();
    // SAFETY: one run of as many elements.
    unsafe { join_runs::<S, 1>(|_| from, to) };
}

/// Copies a row of elements to numbers.
#[inline(always)]
pub fn widen_row<S: Element>(from: &[S], to: &mut [S::Real]) {
    let to = to[..from.len()].as_mut_ptr();
    // SAFETY: room for one run of as many elements.
    unsafe { split_runs::<S, 1>(from, |_| to) };
}
