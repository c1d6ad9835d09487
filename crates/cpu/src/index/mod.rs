//! Reading and adding at indices that are data.
//!
//! Additions follow the canonical order that `meshwork_graph::ops` states. A place that few blocks touch costs
//! only those: blocks without a term count as +0, which changes no sum that started at +0.

mod add;
#[cfg(test)]
mod tests;

pub use add::{index_add, index_add_scratch, scatter_add, scatter_add_scratch};

use crate::number::by_size;
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared};
use meshwork_graph::DType;
use meshwork_graph::ops::{Gather, IndexSelect, PartOf};

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;

/// Indices of either integer type, in row-major order, into data that may be a part of what they index.
struct Indices<'a> {
    operand: Operand<'a>,
    walk: Walk,
    /// The dimension they go into, for messages.
    dim: usize,
    place: Place,
}

/// Indices that data have, of those of a whole dimension.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    start: usize,
    count: usize,
    size: usize,
}

impl Place {
    /// `count` indices, all that there are or a part.
    pub(crate) fn new(part_of: Option<PartOf>, count: usize) -> Self {
        let PartOf { start, size } = part_of.unwrap_or(PartOf { start: 0, size: count });
        Place { start, count, size }
    }

    /// Where an index is in the data, if it is there.
    ///
    /// # Errors
    /// When there is no such index in the whole dimension.
    #[inline(always)]
    pub(crate) fn find(&self, index: i64) -> Result<Option<usize>, ()> {
        // As unsigned numbers, negative ones are too large.
        if index as u64 >= self.size as u64 {
            return Err(());
        }
        let at = (index as usize).wrapping_sub(self.start);
        Ok((at < self.count).then_some(at))
    }

    /// What is wrong with an index.
    #[cold]
    pub(crate) fn refusal(&self, index: i64, dim: usize) -> String {
        format!("index {index} is out of range for dimension {dim} of size {}", self.size)
    }
}

impl<'a> Indices<'a> {
    fn new(operand: Operand<'a>, dim: usize, place: Place) -> Self {
        assert!(matches!(operand.dtype, DType::I64 | DType::I32), "indices of dtype {}", operand.dtype);
        Indices { operand, walk: Walk::new(operand.layout), dim, place }
    }

    /// Calls `visit(i, place)` for the indices `start + i`, with their places in the data that have them.
    ///
    /// # Panics
    /// When one is outside of the dimension.
    fn each(&self, start: usize, count: usize, visit: impl FnMut(usize, Option<usize>)) {
        if count == 0 {
            return;
        }
        match self.operand.dtype {
            DType::I32 => self.each_of(self.operand.first::<i32>(), start, count, visit),
            _ => self.each_of(self.operand.first::<i64>(), start, count, visit),
        }
    }

    fn each_of<I: Copy + Into<i64>>(
        &self,
        first: *const I,
        start: usize,
        count: usize,
        mut visit: impl FnMut(usize, Option<usize>),
    ) {
        self.walk.runs(start, count, |done, position, run, stride| {
            for i in 0..run {
                // SAFETY: the position is that of an element.
                let index: i64 = unsafe { *first.offset(position + i as isize * stride) }.into();
                visit(done + i, self.check(index));
            }
        });
    }

    /// Calls `visit(i, place)` for those of `count` indices from `position`, `stride` apart, that the data have.
    fn line(&self, position: isize, stride: isize, count: usize, visit: &mut dyn FnMut(usize, usize)) {
        for i in 0..count {
            let at = position + i as isize * stride;
            // SAFETY: the caller walks over elements.
            let index = unsafe {
                match self.operand.dtype {
                    DType::I32 => (*self.operand.first::<i32>().offset(at)).into(),
                    _ => *self.operand.first::<i64>().offset(at),
                }
            };
            if let Some(at) = self.check(index) {
                visit(i, at);
            }
        }
    }

    #[inline(always)]
    fn check(&self, index: i64) -> Option<usize> {
        self.place.find(index).unwrap_or_else(|()| panic!("{}", self.place.refusal(index, self.dim)))
    }
}

/// The bits of what is read where a part has nothing: the value that changes no sum, −0 for floats.
fn nothing(dtype: DType) -> u64 {
    match dtype {
        DType::F64 => (-0f64).to_bits(),
        DType::F32 => (-0f32).to_bits().into(),
        DType::F16 | DType::BF16 => 1 << 15,
        DType::I64 | DType::I32 | DType::U8 | DType::Bool => 0,
    }
}

/// Reads one element per index along the dimension; inputs are `(x, index)`.
///
/// # Panics
/// When an index is out of range, or shapes do not fit.
pub fn gather(op: &Gather, inputs: &[Operand], output: Output, context: Context) {
    let (x, index) = (inputs[0], inputs[1]);
    assert_eq!((index.shape(), x.dtype), (output.shape, output.dtype), "type of a gather");
    by_size!(x.dtype, T => gather_of::<T>(op, x, index, nothing(x.dtype) as T, output, context));
}

fn gather_of<T: Copy + Send + Sync>(
    op: &Gather,
    x: Operand,
    index: Operand,
    nothing: T,
    output: Output,
    context: Context,
) {
    let shape = output.shape;
    let along = x.layout.strides[op.dim];
    // Where the lines of x begin, for every output.
    let lines = (0..shape.rank()).map(|d| (shape[d], if d == op.dim { 0 } else { x.layout.strides[d] }));
    let lines = Walk::over(lines);
    let indices = Indices::new(index, op.dim, Place::new(op.part_of, x.shape()[op.dim]));
    // SAFETY: the offset is that of an element, or there is none.
    let first = unsafe { x.bytes().cast::<T>().add(x.layout.offset) };
    let (first, out) = (Shared(first.cast_mut()), Shared(output.bytes().cast::<T>()));
    context.par.ranges(shape.numel(), GRAIN, &|range| {
        // SAFETY: ranges are disjoint parts of the output.
        let out = unsafe { out.slice(range.start, range.len()) };
        const CHUNK: usize = 256;
        for done in (0..range.len()).step_by(CHUNK) {
            let out = &mut out[done..(done + CHUNK).min(range.len())];
            let mut places = [0isize; CHUNK];
            lines.runs(range.start + done, out.len(), |at, position, count, stride| {
                for i in 0..count {
                    places[at + i] = position + i as isize * stride;
                }
            });
            indices.each(range.start + done, out.len(), |i, at| {
                // SAFETY: the index was checked, so this is an element of x.
                let element = |at: usize| unsafe { *first.pointer().offset(places[i] + at as isize * along) };
                out[i] = at.map_or(nothing, element);
            });
        }
    });
}

/// Copies the slices that the indices name; inputs are `(x, index)`.
///
/// # Panics
/// When an index is out of range, or shapes do not fit.
pub fn index_select(op: &IndexSelect, inputs: &[Operand], output: Output, context: Context) {
    let (x, index) = (inputs[0], inputs[1]);
    assert_eq!(x.dtype, output.dtype, "dtypes of an index_select");
    by_size!(x.dtype, T => select_of::<T>(op, x, index, nothing(x.dtype) as T, output, context));
}

fn select_of<T: Copy + Send + Sync>(
    op: &IndexSelect,
    x: Operand,
    index: Operand,
    nothing: T,
    output: Output,
    context: Context,
) {
    let dims = |range: std::ops::Range<usize>| Walk::over(range.map(|d| (x.shape()[d], x.layout.strides[d])));
    let (before, behind) = (dims(0..op.dim), dims(op.dim + 1..x.shape().rank()));
    let along = x.layout.strides[op.dim];
    let (count, columns) = (index.shape().numel(), behind.len());
    assert_eq!(before.len() * count * columns, output.shape.numel(), "elements of an index_select");
    let indices = Indices::new(index, op.dim, Place::new(op.part_of, x.shape()[op.dim]));
    // SAFETY: the offset is that of an element, or there is none.
    let first = unsafe { x.bytes().cast::<T>().add(x.layout.offset) };
    let (first, out) = (Shared(first.cast_mut()), Shared(output.bytes().cast::<T>()));
    context.par.ranges(before.len() * count, GRAIN / columns.max(1) + 1, &|rows| {
        let mut row = rows.start;
        while row < rows.end {
            // Rows of one outer index.
            let (outer, start) = (row / count, row % count);
            let here = (count - start).min(rows.end - row);
            let base = before.position(outer);
            indices.each(start, here, |i, at| {
                if columns == 0 {
                    return;
                }
                // SAFETY: this task owns its rows.
                let out = unsafe { out.slice((row + i) * columns, columns) };
                match at {
                    // SAFETY: the index was checked, so the slice is in x.
                    Some(at) => unsafe {
                        let source = first.pointer().offset(base + at as isize * along);
                        behind.gather(source, 0, out, |x: T| x);
                    },
                    None => out.fill(nothing),
                }
            });
            row += here;
        }
    });
}
