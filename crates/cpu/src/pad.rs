//! Padding with a constant, around and between elements.

use crate::copy::{self, GRAIN};
use crate::number::{Number, by_dtype};
use crate::{Context, Operand, Output, Shared};
use meshwork_graph::ops::Pad;
use smallvec::SmallVec;

/// Fills the output with the constant and puts the elements where they belong.
///
/// # Panics
/// When the output does not have the padded shape.
pub fn run(op: &Pad, inputs: &[Operand], output: Output, context: Context) {
    assert_eq!(inputs[0].dtype, output.dtype, "dtypes of a pad");
    by_dtype!(output.dtype, T => pad::<T>(op, inputs[0], output, context));
}

fn pad<T: Number>(op: &Pad, input: Operand, mut output: Output, context: Context) {
    let (shape, rank) = (input.shape(), input.shape().rank());
    for d in 0..rank {
        let inside = shape[d] + shape[d].saturating_sub(1) * op.interior[d];
        assert_eq!(op.low[d] + inside + op.high[d], output.shape[d], "size {d} of a padded tensor");
    }
    let value = T::from_scalar(op.value);
    let out = Shared(output.first::<T>());
    context.par.ranges(output.shape.numel(), GRAIN, &|range| {
        // SAFETY: ranges are disjoint parts of the output.
        unsafe { out.slice(range.start, range.len()) }.fill(value);
    });
    let strides = output.shape.strides();
    let start: usize = (0..rank).map(|d| op.low[d] * strides[d] as usize).sum();
    let steps: SmallVec<[isize; 6]> = (0..rank).map(|d| strides[d] * (op.interior[d] as isize + 1)).collect();
    // Without elements the first place may lie outside.
    let first = out.pointer().wrapping_add(start);
    // SAFETY: the shapes fit, so these are places of the output, one for each element.
    unsafe { copy::place(&input, &steps, first.cast(), context) };
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Sample, bits, each_context, indices, output};
    use meshwork_graph::ops::Pad;
    use meshwork_graph::{Dims, Scalar, Shape};

    fn check<T: Sample + crate::number::Number>(shape: &[usize], low: &[usize], high: &[usize], interior: &[usize]) {
        let dims = Dims::from_slice;
        let op = Pad { low: dims(low), high: dims(high), interior: dims(interior), value: Scalar::Float(-1.5) };
        let size = |d: usize| shape[d] + shape[d].saturating_sub(1) * interior[d] + low[d] + high[d];
        let padded: Shape = (0..shape.len()).map(size).collect();
        for case in Case::<T>::strided(shape) {
            let value = T::from_scalar(op.value);
            let inside = |index: &[usize]| -> Option<Vec<usize>> {
                let place = |d: usize| {
                    let i = index[d].checked_sub(low[d])?;
                    (i % (interior[d] + 1) == 0 && i / (interior[d] + 1) < shape[d]).then_some(i / (interior[d] + 1))
                };
                (0..shape.len()).map(place).collect()
            };
            let want: Vec<T> = indices(&padded).map(|i| inside(&i).map_or(value, |i| case.at(&i))).collect();
            each_context(|context| {
                let got = output::<T>(&padded, |o| super::run(&op, &[case.operand()], o, context));
                assert_eq!(bits(&got), bits(&want));
            });
        }
    }

    #[test]
    fn elements_move_and_the_rest_is_constant() {
        check::<f32>(&[3, 5, 7], &[1, 0, 2], &[0, 3, 1], &[0, 1, 0]);
        check::<half::f16>(&[4, 3], &[0, 0], &[0, 2], &[2, 1]);
        check::<i64>(&[150, 130], &[1, 1], &[1, 1], &[0, 0]);
        check::<u8>(&[0, 3], &[2, 1], &[0, 0], &[1, 0]);
        check::<f64>(&[], &[], &[], &[]);
    }
}
