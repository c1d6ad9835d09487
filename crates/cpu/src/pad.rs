//! Padding with a constant, around and between elements.

use crate::number::{Number, by_dtype};
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared};
use meshwork_graph::ops::Pad;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;

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
    if shape.numel() == 0 {
        return;
    }
    // Both sides are walked in the input's row-major order, the output with the steps of its elements.
    let strides = output.shape.strides();
    let start: usize = (0..rank).map(|d| op.low[d] * strides[d] as usize).sum();
    let columns = shape.last().copied().unwrap_or(1);
    let rows = shape.numel() / columns;
    let outer = rank.saturating_sub(1);
    let step = |d: usize| strides[d] * (op.interior[d] as isize + 1);
    let (read, along) = match rank {
        0 => (0, 1),
        _ => (input.layout.strides[outer], step(outer)),
    };
    let from = Walk::over((0..outer).map(|d| (shape[d], input.layout.strides[d])));
    let to = Walk::over((0..outer).map(|d| (shape[d], step(d))));
    let first = Shared(input.first::<T>().cast_mut());
    context.par.ranges(rows, GRAIN / columns + 1, &|range| {
        for row in range {
            // SAFETY: the positions are those of elements; this task owns the row.
            unsafe {
                let source = first.pointer().offset(from.position(row));
                let target = out.pointer().add(start).offset(to.position(row));
                if read == 1 && along == 1 {
                    std::ptr::copy_nonoverlapping(source, target, columns);
                } else {
                    for i in 0..columns as isize {
                        *target.offset(i * along) = *source.offset(i * read);
                    }
                }
            }
        }
    });
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
