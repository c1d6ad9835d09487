//! Regions of single elements that read the same elements along every row, or one for each row, as regions of such rows:
//! machine code goes from row to row by itself then, where a tile would end with each row or be spread out before.

use super::cut::{TILE, goes_by_rows};
use super::native;
use crate::{Level, Operand};
use meshwork_graph::Layout;
use meshwork_graph::canonical::LANES;
use meshwork_graph::ops::{Code, Fused, Instr, Source};

/// Elements of such a row, at least.
const LEAST: usize = 16;
/// Elements of a region for which it is worth finding out.
const MANY: usize = 1 << 14;

/// A region of rows that computes the same as one of single elements.
pub struct ByRows {
    pub op: Fused,
    /// How its inputs lie.
    pub layouts: Vec<Layout>,
}

/// How an input lies along rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Along {
    /// Its elements lie together, in all rows or in one that comes again and again; or all are one.
    Elements,
    /// One element for each row.
    OneEach,
}

impl ByRows {
    /// The region by rows, of which the first dimensions number as few as possible, if it can be one.
    pub fn new(op: &Fused, inputs: &[Operand], level: Level) -> Option<ByRows> {
        let shape = &op.space.shape;
        let is_of_elements = op.space.row_dims == shape.rank() && shape.numel() >= MANY;
        if !is_of_elements || inputs.iter().all(|x| is_simple(x.layout)) {
            return None;
        }
        (1..shape.rank()).find_map(|row_dims| {
            let columns: usize = shape[row_dims..].iter().product();
            // Without masks the end of each row would be a call of its own.
            let ends_well = native::cuts_rows(columns, level) || columns.is_multiple_of(LANES);
            if !(LEAST..=TILE).contains(&columns) || !ends_well {
                return None;
            }
            let lies: Option<Vec<Along>> = inputs.iter().map(|x| along(x.layout, row_dims)).collect();
            let by_rows = Self::of(op, inputs, row_dims, &lies?);
            goes_by_rows(&by_rows.op, level).then_some(by_rows)
        })
    }

    fn of(op: &Fused, inputs: &[Operand], row_dims: usize, lies: &[Along]) -> ByRows {
        let count = op.inputs.len();
        let each: Vec<usize> = (0..count).filter(|&i| lies[i] == Along::OneEach).collect();
        // Values of rows are spread over their elements first.
        let register = |register: u16| match usize::from(register) {
            old if old >= count => (old + each.len()) as u16,
            old => each.iter().position(|&i| i == old).map_or(register, |number| (count + number) as u16),
        };
        let spread =
            |&i: &usize| Instr { op: Code::Spread, args: [i as u16, 0, 0], of_rows: false, dtype: op.inputs[i].dtype };
        let others = op.code.iter().map(|instr| {
            let mut instr = instr.clone();
            let arity = instr.op.arity();
            instr.args[..arity].iter_mut().for_each(|arg| *arg = register(*arg));
            instr
        });
        let mut space = op.space.clone();
        space.row_dims = row_dims;
        let source = |(i, source): (usize, &Source)| Source { of_rows: lies[i] == Along::OneEach, ..*source };
        let layout = |(x, lies): (&Operand, &Along)| {
            let mut layout = x.layout.clone();
            if *lies == Along::OneEach {
                layout.shape.0[row_dims..].fill(1);
            }
            layout
        };
        ByRows {
            op: Fused {
                space,
                inputs: op.inputs.iter().enumerate().map(source).collect(),
                code: each.iter().map(spread).chain(others).collect(),
                outputs: op.outputs.iter().map(|&output| register(output)).collect(),
            },
            layouts: inputs.iter().zip(lies).map(layout).collect(),
        }
    }
}

/// Whether tiles of single elements read it where it lies, from one end to the other, or the same element of it.
fn is_simple(layout: &Layout) -> bool {
    layout.is_contiguous() || (0..layout.shape.rank()).all(|d| layout.shape[d] == 1 || layout.strides[d] == 0)
}

/// How an operand lies along rows, of which the first dimensions are the numbers, if that is simple.
fn along(layout: &Layout, row_dims: usize) -> Option<Along> {
    let dims = || (0..layout.shape.rank()).filter(|&d| layout.shape[d] != 1);
    let mut dense = dims().rev().scan(1, |next, d| {
        let is_dense = layout.strides[d] == *next;
        *next *= layout.shape[d] as isize;
        Some((d, is_dense))
    });
    let is_dense_in_rows = dense.all(|(d, is_dense)| is_dense || d < row_dims);
    let is_fixed = |d: usize| layout.strides[d] == 0;
    let [same_rows, same_columns] =
        [dims().filter(|&d| d < row_dims).all(is_fixed), dims().filter(|&d| d >= row_dims).all(is_fixed)];
    match () {
        () if layout.is_contiguous() || same_rows && (is_dense_in_rows || same_columns) => Some(Along::Elements),
        () if same_columns => Some(Along::OneEach),
        () => None,
    }
}
