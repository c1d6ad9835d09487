//! Products of small matrices, tile by tile, with the microkernels of `gemm`.

use super::ahead::Ahead;
use super::rows::Matrix;
use crate::gemm::pairs::Span;
use crate::gemm::tile::height;
use meshwork_simd::microkernel::{Access, Call, Kernels, Table};
use std::ptr;

/// Where a product goes.
#[derive(Clone, Copy)]
pub enum Target<R> {
    /// Into rows so far apart; what is behind a row's columns up to whole vectors is overwritten.
    Rows(*mut R, usize),
    /// Into rows of [`Panels`] from this one on; added to what is there, or instead of it.
    Panels(Panels<R>, usize, bool),
}

/// A matrix whose columns are cut into panels as wide as a tile; the last one is one vector wide if that is enough.
#[derive(Clone, Copy)]
pub struct Panels<R> {
    /// The numbers: panel after panel, row after row.
    pub first: *mut R,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
}

impl<R: Copy> Panels<R> {
    /// The panels of the first columns: for each the first column, the width and the numbers.
    ///
    /// # Safety
    /// The numbers must be there, and used by nobody else.
    pub unsafe fn parts<'a>(
        self,
        kernels: &Kernels<R>,
    ) -> impl Iterator<Item = (usize, usize, &'a mut [R])> + use<'a, R> {
        let (width, lanes) = (kernels.columns(), kernels.lanes);
        (0..self.columns).step_by(width).map(move |column| {
            let own = if self.columns - column > lanes { width } else { lanes };
            // SAFETY: the caller's promise.
            let numbers =
                unsafe { std::slice::from_raw_parts_mut(self.first.add(column * self.rows), self.rows * own) };
            (column, own, numbers)
        })
    }
}

/// An operand of products: rows of numbers, or of pairs of them.
#[derive(Clone, Copy)]
pub struct Side<R> {
    /// The rows.
    pub matrix: Matrix<R>,
    /// Distance between what the right operand has of neighbouring tiles.
    pub panel: usize,
    /// What numbers the pairs are made of.
    pub span: Span,
}

impl<R> Side<R> {
    /// The rows from `row` on.
    ///
    /// # Safety
    /// It must be one of the operand.
    pub unsafe fn from(self, row: usize) -> Side<R> {
        // SAFETY: the caller's promise.
        Side { matrix: unsafe { self.matrix.from(row) }, ..self }
    }
}

/// How the left operand lies.
#[derive(Clone, Copy)]
pub enum Left {
    /// Rows of terms.
    Rows,
    /// Terms of rows: the transpose.
    Terms,
}

/// A product of `rows` × `terms` by `terms` × `columns`, whose sums are cut into blocks of `block` terms.
pub struct Product<R> {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Terms of each sum.
    pub terms: usize,
    /// Terms of a block; an even number.
    pub block: usize,
    /// The left operand.
    pub left: (Left, Side<R>),
    /// Terms of columns; what is behind the columns up to whole vectors is read.
    pub right: Side<R>,
}

/// The microkernels of products.
#[derive(Clone, Copy)]
pub struct Engine<R: 'static> {
    /// For numbers.
    pub kernels: Kernels<R>,
    /// For pairs, if operands are pairs: the fast ones, and those for any numbers.
    pub pairs: Option<[Table<R>; 2]>,
}

impl<R: Copy> Engine<R> {
    /// Pairs, or else numbers, that so many terms are.
    pub fn units(&self, terms: usize) -> usize {
        if self.pairs.is_some() { terms.div_ceil(2) } else { terms }
    }

    /// Computes a product, and asks for some of the lines that are needed next. `counter` is room for [`counter`] numbers.
    ///
    /// # Safety
    /// The processor must have the kernels' instructions, operands be readable, and the target be used by nobody else.
    pub unsafe fn compute(&self, product: &Product<R>, counter: *mut R, target: Target<R>, ahead: &Ahead) {
        let Product { rows, columns, ref right, .. } = *product;
        let (lies, left) = &product.left;
        let kernels = &self.kernels;
        let table = match self.pairs {
            None => kernels.table,
            Some([fast, exact]) => {
                if left.span.suits(right.span) {
                    fast
                } else {
                    exact
                }
            }
        };
        let (width, lanes, step) = (kernels.columns(), kernels.lanes, left.matrix.step);
        let (access, row_step) = match lies {
            Left::Rows => (Access::Rows, step),
            Left::Terms => (Access::Panel, 1),
        };
        // A sum is mostly one block, so high tiles are as good as low ones.
        let height = height(kernels, rows);
        for (j, column) in (0..columns).step_by(width).enumerate() {
            let vectors = if columns - column > lanes { 2 } else { 1 };
            let mut row = 0;
            while row < rows {
                let high = height.min(rows - row);
                let tiles = (rows - row) / high;
                // SAFETY: the caller's promise.
                unsafe {
                    let (out, out_row, adds) = match target {
                        Target::Rows(first, step) => (first.add(row * step + column), step, false),
                        Target::Panels(panels, from, adds) => {
                            let step = vectors * lanes;
                            (panels.first.add(column * panels.rows + (from + row) * step), step, adds)
                        }
                    };
                    let before: *const R = out;
                    let mut call = Call {
                        way: 1,
                        tiles,
                        terms: self.units(product.terms),
                        block: self.units(product.block),
                        a: left.matrix.first.offset(row as isize * row_step),
                        a_step: step,
                        a_tile: high as isize * row_step,
                        b: right.matrix.first.add(j * right.panel),
                        b_term: right.matrix.step,
                        b_tile: 0,
                        copy: ptr::null_mut(),
                        copy_tile: 0,
                        counter,
                        start: ptr::null(),
                        merge: &raw const before,
                        merges: usize::from(adds),
                        out,
                        out_row: out_row as isize,
                        out_tile: (high * out_row) as isize,
                        ahead: ptr::null(),
                    };
                    ahead.during(tiles * call.terms, |lines| {
                        call.ahead = lines;
                        table[high - 1][vectors - 1][access as usize](&call);
                    });
                }
                row += tiles * high;
            }
        }
    }
}

/// Numbers of the microkernels' counter.
pub fn counter<R>(kernels: &Kernels<R>) -> usize {
    kernels.rows() * kernels.columns() * meshwork_simd::microkernel::COUNTER
}
