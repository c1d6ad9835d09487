//! Where the rows of operands and results lie, and copies of them.

use super::softmax::Number;
use crate::gemm::{Element, Real};
use crate::{Operand, Stored};
use meshwork_graph::Layout;
use meshwork_simd::multiversion;
use std::marker::PhantomData;

/// Columns of copied rows are filled up to multiples of this: the widest vector's elements.
pub const PADDING: usize = 16;

/// Columns of a copied row of `width` elements.
pub fn padded(width: usize) -> usize {
    width.next_multiple_of(PADDING)
}

/// Whether the rows of an operand lie densely, or are single numbers.
pub fn is_readable(layout: &Layout) -> bool {
    layout.shape.rank() < 4 || layout.shape[3] <= 1 || layout.strides[3] == 1
}

/// Rows of elements, `step` apart.
#[derive(Clone, Copy)]
pub struct Matrix<T> {
    /// The first element.
    pub first: *const T,
    /// Distance between rows.
    pub step: isize,
}

impl<T> Matrix<T> {
    /// The rows from `row` on.
    ///
    /// # Safety
    /// It must be one of the matrix.
    pub unsafe fn from(self, row: usize) -> Matrix<T> {
        // SAFETY: the caller's promise.
        Matrix { first: unsafe { self.first.offset(row as isize * self.step) }, step: self.step }
    }
}

/// An operand `[B, positions, heads, X]` whose rows lie densely, or `[B, positions, heads]`.
#[derive(Clone, Copy)]
pub struct Rows<'a, T> {
    first: *const T,
    strides: [isize; 3],
    life: PhantomData<&'a T>,
}

impl<'a, T: Stored> Rows<'a, T> {
    /// The rows of an operand.
    pub fn new(operand: &Operand<'a>) -> Self {
        let strides = &operand.layout.strides;
        assert!(is_readable(operand.layout), "attention needs rows that lie densely");
        Rows { first: operand.first(), strides: [strides[0], strides[1], strides[2]], life: PhantomData }
    }

    /// The rows of a sample's head from a position on.
    ///
    /// # Safety
    /// The first one must be the operand's.
    pub unsafe fn at(&self, [sample, position, head]: [usize; 3]) -> Matrix<T> {
        let [b, p, h] = self.strides;
        let offset = sample as isize * b + position as isize * p + head as isize * h;
        // SAFETY: the caller's promise.
        Matrix { first: unsafe { self.first.offset(offset) }, step: p }
    }
}

/// So many rows, each of `width` elements, that are there.
#[derive(Clone, Copy)]
struct Source<T> {
    rows: Matrix<T>,
    count: usize,
    width: usize,
}

multiversion! {
    fn copy<S: Element<Real: Number>>(source: Source<S>, out: &mut [S::Real]) = copy_of;
}

#[inline(always)]
fn copy_of<S: Element<Real: Number>>(source: Source<S>, out: &mut [S::Real]) {
    let Source { rows, count, width } = source;
    for (i, out) in (0..count).zip(out.chunks_exact_mut(padded(width).max(1))) {
        // SAFETY: the rows are there.
        let row = unsafe { std::slice::from_raw_parts(rows.first.offset(i as isize * rows.step), width) };
        let ((whole, rest), (to, _)) = (row.as_chunks::<PADDING>(), out.as_chunks_mut::<PADDING>());
        for (to, from) in to.iter_mut().zip(whole) {
            *to = from.map(S::widen);
        }
        if let Some(to) = to.get_mut(whole.len()) {
            *to = std::array::from_fn(|i| rest.get(i).map_or(S::Real::ZERO, |x| x.widen()));
        }
    }
}

/// Copies `count` rows of `width` elements into rows of [`padded`] columns.
///
/// # Safety
/// The rows must be readable, and `out` have room for them.
pub unsafe fn copy_rows<S: Element<Real: Number>>(
    level: crate::Level,
    rows: Matrix<S>,
    count: usize,
    width: usize,
    out: *mut S::Real,
) -> Matrix<S::Real> {
    let columns = padded(width);
    // SAFETY: the caller's promise; scratch memory is initialised.
    copy(level, Source { rows, count, width }, unsafe { std::slice::from_raw_parts_mut(out, count * columns) });
    Matrix { first: out, step: columns as isize }
}

/// Rows of a result, `step` apart, that a task may write.
#[derive(Clone, Copy)]
struct Sink<S> {
    first: *mut S,
    step: usize,
}

multiversion! {
    fn store<S: Element<Real: Number>>(numbers: &[S::Real], own: usize, columns: usize, factors: &[S::Real], out: Sink<S>) = store_of;
}

#[inline(always)]
fn store_of<S: Element<Real: Number>>(
    numbers: &[S::Real],
    own: usize,
    columns: usize,
    factors: &[S::Real],
    out: Sink<S>,
) {
    for (i, (row, &factor)) in numbers.chunks_exact(own).zip(factors).enumerate() {
        // SAFETY: the rows may be written.
        let out = unsafe { std::slice::from_raw_parts_mut(out.first.add(i * out.step), columns) };
        // A sum of zeros has no sign.
        out.iter_mut().zip(row).for_each(|(to, x)| *to = S::narrow(*x * factor + S::Real::ZERO));
    }
}

/// Stores the first `columns` of rows of `own` numbers, each times its factor, in rows that are `step` apart.
///
/// # Safety
/// There must be room for the elements, which nobody else uses.
pub unsafe fn store_rows<S: Element<Real: Number>>(
    level: crate::Level,
    numbers: &[S::Real],
    own: usize,
    columns: usize,
    factors: &[S::Real],
    first: *mut S,
    step: usize,
) {
    store(level, numbers, own, columns, factors, Sink { first, step });
}
