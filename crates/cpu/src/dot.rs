//! The generalised matrix product.
//!
//! Order: the contracted dimensions form one index, row-major in the order of the operation; it is cut by
//! [`Dot::blocks`]. A block is one chain of fused multiply-adds in index order beginning at +0, the blocks are
//! combined by the tree of adjacent pairs. f16 and bf16 are widened to f32 and rounded once, at the end.
//! Integers wrap around, so their order does not matter.

use crate::element::epilogue::{Rectangle, Tail};
use crate::gemm::block::{Finish, Part};
use crate::gemm::drive::{self, Batch, multiply, scratch_bytes};
use crate::gemm::scratch::Arena;
use crate::gemm::{Element, Offsets, Place, Side, Size};
use crate::operand::{Operand, Output, Shared, Stored};
use crate::{Context, Level};
use half::{bf16, f16};
use meshwork_graph::ops::Dot;
use meshwork_graph::{DType, Layout};
use smallvec::SmallVec;

/// The product as matrices: rows are lhs's free dimensions, columns rhs's.
struct Matrices {
    size: Size,
    left: Side,
    right: Side,
    place: Place,
    /// Offsets of the products' left operands, right operands and results.
    batch: [Offsets; 3],
}

fn over(layout: &Layout, dims: &[usize]) -> Offsets {
    dims.iter().fold(Offsets::new(), |offsets, &d| offsets.axis(layout.shape[d], layout.strides[d]))
}

impl Matrices {
    fn new(op: &Dot, lhs: &Layout, rhs: &Layout) -> Self {
        let (lhs_free, rhs_free) = (op.lhs_free(&lhs.shape), op.rhs_free(&rhs.shape));
        let left = Side { lines: over(lhs, &lhs_free), terms: over(lhs, &op.lhs_contract) };
        let right = Side { lines: over(rhs, &rhs_free), terms: over(rhs, &op.rhs_contract) };
        let blocks = op.blocks(&lhs.shape);
        let size = Size {
            rows: left.lines.len,
            columns: right.lines.len,
            terms: left.terms.len,
            block: (blocks.unit * blocks.inner).max(1),
            run: 1,
        };
        let place = Place {
            rows: Offsets::new().axis(size.rows, size.columns as isize),
            columns: Offsets::new().axis(size.columns, 1),
        };
        let (left_batch, right_batch) = (over(lhs, &op.lhs_batch), over(rhs, &op.rhs_batch));
        let out_batch = Offsets::new().axis(left_batch.len, (size.rows * size.columns) as isize);
        Matrices { size, left, right, place, batch: [left_batch, right_batch, out_batch] }
    }
}

/// Bytes of scratch memory for [`run`].
pub fn scratch(op: &Dot, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    let m = Matrices::new(op, inputs[0], inputs[1]);
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => scratch_bytes::<f32>(m.size, m.batch[0].len, threads),
        DType::F64 => scratch_bytes::<f64>(m.size, m.batch[0].len, threads),
        _ => 0,
    }
}

/// `out[batch…, m…, n…] = Σ_k lhs[batch, m, k] · rhs[batch, k, n]`; operands may have any strides.
pub fn run(op: &Dot, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    let m = Matrices::new(op, inputs[0].layout, inputs[1].layout);
    match output.dtype {
        DType::F32 => _ = float::<f32>(&m, inputs, To::Memory(output), scratch, context),
        DType::F64 => _ = float::<f64>(&m, inputs, To::Memory(output), scratch, context),
        DType::F16 => _ = float::<f16>(&m, inputs, To::Memory(output), scratch, context),
        DType::BF16 => _ = float::<bf16>(&m, inputs, To::Memory(output), scratch, context),
        DType::I64 => whole::<i64>(&m, inputs, output, context),
        DType::I32 => whole::<i32>(&m, inputs, output, context),
        DType::U8 => whole::<u8>(&m, inputs, output, context),
        DType::Bool => panic!("matmul is not defined for bool"),
    }
}

/// Columns of the result as a matrix.
pub fn columns(op: &Dot, rhs: &Layout) -> usize {
    op.rhs_free(&rhs.shape).iter().map(|&d| rhs.shape[d]).product()
}

/// Whether [`run_with`] computes the product on so many threads, wherever its operands lie.
pub fn finishes(op: &Dot, dtype: DType, inputs: &[&Layout], threads: usize, level: Level) -> bool {
    let m = Matrices::new(op, inputs[0], inputs[1]);
    match dtype {
        DType::F32 | DType::F16 | DType::BF16 => drive::finishes::<f32>(level, m.size, m.batch[0].len, threads),
        DType::F64 => drive::finishes::<f64>(level, m.size, m.batch[0].len, threads),
        _ => false,
    }
}

/// As [`run`] with scratch memory as [`scratch()`] says, but the result goes into an epilogue, tile by tile. Says whether it
/// did so: see [`finishes`].
pub fn run_with(op: &Dot, inputs: &[Operand], dtype: DType, tail: &Tail, scratch: &mut [u8], context: Context) -> bool {
    let m = Matrices::new(op, inputs[0].layout, inputs[1].layout);
    match dtype {
        DType::F32 => float::<f32>(&m, inputs, To::Tail(tail), scratch, context),
        DType::F64 => float::<f64>(&m, inputs, To::Tail(tail), scratch, context),
        DType::F16 => float::<f16>(&m, inputs, To::Tail(tail), scratch, context),
        DType::BF16 => float::<bf16>(&m, inputs, To::Tail(tail), scratch, context),
        _ => false,
    }
}

/// Where a result goes.
enum To<'a> {
    Memory(Output<'a>),
    Tail(&'a Tail),
}

/// An epilogue of products of so many rows.
struct Tiles<'a> {
    tail: &'a Tail,
    rows: usize,
}

impl<O> Finish<O> for Tiles<'_> {
    fn take(&self, part: Part, first: *mut O, steps: [usize; 2]) {
        assert!(steps[1] == 1 || part.columns.len() == 1, "elements of a row lie side by side");
        // All products are one below the other.
        let start = [part.product * self.rows + part.rows.start, part.columns.start];
        let sizes = [part.rows.len(), part.columns.len()];
        // SAFETY: a part of the product, which is of the region's dtype; parts do not overlap, and who runs the product with
        // the epilogue runs both at the same level and has its operands.
        unsafe { self.tail.run(&Rectangle { start, sizes, first: first.cast(), step: steps[0] }) };
    }
}

fn float<S: Element>(m: &Matrices, inputs: &[Operand], to: To, scratch: &mut [u8], context: Context) -> bool {
    let (out, tiles) = match to {
        To::Memory(mut output) => (output.first::<S>(), None),
        To::Tail(tail) => (std::ptr::null_mut(), Some(Tiles { tail, rows: m.size.rows })),
    };
    let batch = Batch {
        size: m.size,
        left: inputs[0].first::<S>(),
        left_side: &m.left,
        right_side: &m.right,
        out,
        place: &m.place,
        lefts: &m.batch[0],
        outs: &m.batch[2],
        finish: tiles.as_ref().map(|tiles| tiles as &dyn Finish<S>),
        from_zero: false,
    };
    // SAFETY: the operands hold their layouts' elements and the output its own, if there is one; a context's level is one
    // that the processor can run, and the arena checks its size.
    unsafe { multiply(&batch, inputs[1].first::<S>(), &m.batch[1], Arena::new(scratch), context) }
}

/// Arithmetic modulo 2^bits.
trait Whole: Stored {
    const ZERO: Self;
    fn multiply_add(self, b: Self, c: Self) -> Self;
}

macro_rules! whole {
    ($($type:ty),*) => {
        $(
            impl Whole for $type {
                const ZERO: Self = 0;

                #[inline(always)]
                fn multiply_add(self, b: Self, c: Self) -> Self {
                    self.wrapping_mul(b).wrapping_add(c)
                }
            }
        )*
    };
}

whole!(i64, i32, u8);

fn whole<T: Whole>(m: &Matrices, inputs: &[Operand], mut output: Output, context: Context) {
    let Size { rows, columns, terms, .. } = m.size;
    let (left, right, out) = (Shared(inputs[0].first::<T>().cast_mut()), inputs[1], Shared(output.first::<T>()));
    let right = Shared(right.first::<T>().cast_mut());
    let table = |offsets: &Offsets| {
        let mut table: SmallVec<[isize; 64]> = SmallVec::from_elem(0, offsets.len);
        offsets.fill(0, &mut table);
        table
    };
    let (left_terms, right_terms, right_lines) = (table(&m.left.terms), table(&m.right.terms), table(&m.right.lines));
    context.par.ranges(m.batch[0].len * rows, 1 + 4096 / (1 + columns * terms), &|range| {
        let (left, right, out) = ({ left }, { right }, { out });
        for line in range {
            let (product, row) = (line / rows, line % rows);
            let from = m.batch[0].at(product) + m.left.lines.at(row);
            let other = m.batch[1].at(product);
            // SAFETY: the line belongs to this task; the operands hold their layouts' elements.
            unsafe {
                let line = out.slice(line * columns, columns);
                line.fill(T::ZERO);
                for (&l, &r) in left_terms.iter().zip(&right_terms) {
                    let a = *left.0.offset(from + l);
                    for (x, &column) in line.iter_mut().zip(&right_lines) {
                        *x = a.multiply_add(*right.0.offset(other + r + column), *x);
                    }
                }
            }
        }
    });
}
