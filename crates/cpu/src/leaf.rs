//! Constants and positions.

use crate::number::{Number, by_dtype};
use crate::{Context, Output, Shared};
use meshwork_graph::Scalar;
use meshwork_graph::ops::{Const, Iota};
use meshwork_graph::region::Region;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;

/// Fills the output (of no dimensions, or of any) with the constant.
pub fn constant(op: &Const, mut output: Output) {
    assert_eq!(op.dtype, output.dtype, "dtype of a constant");
    by_dtype!(op.dtype, T => output.slice::<T>().fill(T::from_scalar(op.value)));
}

/// Writes the positions along the operation's dimension, of the region that it computes.
pub fn iota(op: &Iota, output: Output, context: Context) {
    let shape = op.region.as_ref().map_or(op.shape.clone(), Region::shape);
    assert_eq!((op.dtype, &shape), (output.dtype, output.shape), "type of an iota");
    by_dtype!(op.dtype, T => positions::<T>(op, output, context));
}

fn positions<T: Number>(op: &Iota, mut output: Output, context: Context) {
    let shape = output.shape;
    let first = op.region.as_ref().map_or(0, |region| region.starts[op.dim]);
    let (size, inner) = (shape[op.dim], shape[op.dim + 1..].iter().product::<usize>());
    if shape.numel() == 0 {
        return;
    }
    let out = Shared(output.first::<T>());
    context.par.ranges(shape.numel() / inner, GRAIN / inner + 1, &|rows| {
        for row in rows {
            // SAFETY: this task owns the row.
            let row_out = unsafe { out.slice(row * inner, inner) };
            row_out.fill(T::from_scalar(Scalar::Int((first + row % size) as i64)));
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{bits, each_context, indices, output};
    use half::f16;
    use meshwork_graph::{DType, Shape};

    #[test]
    fn constants_are_rounded_once() {
        let scalar = Shape::new(&[]);
        let constant = |value, dtype| Const { value, dtype };
        let third = Scalar::Float(1.0 / 3.0);
        assert_eq!(output::<f32>(&scalar, |o| super::constant(&constant(third, DType::F32), o)), [1.0f32 / 3.0]);
        let above = Scalar::Float(1.0 + 2f64.powi(-11) + 1e-15);
        let got = output::<f16>(&scalar, |o| super::constant(&constant(above, DType::F16), o));
        assert_eq!(got[0].to_bits(), 0x3c01);
        assert_eq!(output::<i64>(&scalar, |o| super::constant(&constant(Scalar::Int(-3), DType::I64), o)), [-3]);
        assert_eq!(output::<bool>(&scalar, |o| super::constant(&constant(Scalar::Float(0.5), DType::Bool), o)), [true]);
    }

    #[test]
    fn positions_count_along_one_dimension() {
        let op = Iota::new([2, 3, 2], 1, DType::F32);
        let long = Iota::new([50_001], 0, DType::I32);
        let empty = Iota::new([3, 0], 0, DType::I32);
        each_context(|context| {
            let got = output::<f32>(&op.shape, |o| iota(&op, o, context));
            assert_eq!(bits(&got), bits(&[0f32, 0., 1., 1., 2., 2., 0., 0., 1., 1., 2., 2.]));
            assert_eq!(output::<i32>(&long.shape, |o| iota(&long, o, context)), (0..50_001).collect::<Vec<i32>>());
            assert!(output::<i32>(&empty.shape, |o| iota(&empty, o, context)).is_empty());
        });
    }

    #[test]
    fn regions_of_positions_are_those_of_the_whole() {
        let part = |dim, starts: [usize; 3], sizes: [usize; 3]| Iota {
            region: Some(Region { starts: starts.into_iter().collect(), sizes: sizes.into_iter().collect() }),
            ..Iota::new([5, 300, 70], dim, DType::I64)
        };
        each_context(|context| {
            for (starts, sizes) in [([1, 7, 3], [4, 200, 50]), ([4, 0, 69], [1, 300, 1]), ([0, 299, 0], [5, 1, 70])] {
                for dim in 0..3 {
                    let op = part(dim, starts, sizes);
                    let shape = Shape::from(sizes);
                    let want: Vec<i64> = indices(&shape).map(|index| (starts[dim] + index[dim]) as i64).collect();
                    assert_eq!(output::<i64>(&shape, |o| iota(&op, o, context)), want);
                }
            }
        });
    }
}
