//! Several operands behind each other.

use crate::number::by_size;
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared};
use meshwork_graph::ops::Concat;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;

/// Copies every operand to its place along the dimension.
///
/// # Panics
/// When the sizes do not add up to the output's.
pub fn run(op: &Concat, inputs: &[Operand], output: Output, context: Context) {
    let total: usize = inputs.iter().map(|i| i.shape()[op.dim]).sum();
    assert_eq!(total, output.shape[op.dim], "size {} of a concatenation", op.dim);
    let inner: usize = output.shape[op.dim + 1..].iter().product();
    let mut start = 0;
    for input in inputs {
        assert_eq!(input.dtype, output.dtype, "dtypes of a concatenation");
        by_size!(output.dtype, T => part::<T>(input, &output, start, total * inner, op.dim, context));
        start += input.shape()[op.dim] * inner;
    }
}

/// Copies one operand: pieces of its rows go to `start` of the output's rows of `row` elements.
fn part<T: Copy + Send + Sync>(
    input: &Operand,
    output: &Output,
    start: usize,
    row: usize,
    dim: usize,
    context: Context,
) {
    let walk = Walk::new(input.layout);
    let piece: usize = input.shape()[dim..].iter().product();
    if walk.is_empty() {
        return;
    }
    // SAFETY: the offset is that of an element.
    let first = unsafe { input.bytes().cast::<T>().add(input.layout.offset) };
    let (first, out) = (Shared(first.cast_mut()), Shared(output.bytes().cast::<T>()));
    context.par.ranges(walk.len(), GRAIN, &|range| {
        let mut at = range.start;
        while at < range.end {
            let count = (piece - at % piece).min(range.end - at);
            // SAFETY: these elements of the output belong to this part of this operand.
            unsafe {
                let to = out.slice(at / piece * row + start + at % piece, count);
                walk.gather(first.pointer(), at, to, |x: T| x);
            }
            at += count;
        }
    });
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Sample, bits, each_context, indices, output};
    use meshwork_graph::Shape;
    use meshwork_graph::ops::Concat;

    fn check<T: Sample>(shapes: &[&[usize]], dim: usize) {
        let cases: Vec<Vec<Case<T>>> = shapes.iter().map(|s| Case::strided(s)).collect();
        let mut shape = Shape::new(shapes[0]);
        shape.0[dim] = shapes.iter().map(|s| s[dim]).sum();
        for kind in 0..cases[0].len() {
            let parts: Vec<&Case<T>> = cases.iter().enumerate().map(|(i, c)| &c[(kind + i) % c.len()]).collect();
            let want: Vec<T> = indices(&shape)
                .map(|mut index| {
                    let mut part = 0;
                    while index[dim] >= shapes[part][dim] {
                        index[dim] -= shapes[part][dim];
                        part += 1;
                    }
                    parts[part].at(&index)
                })
                .collect();
            let operands: Vec<_> = parts.iter().map(|c| c.operand()).collect();
            each_context(|context| {
                let got = output::<T>(&shape, |o| super::run(&Concat { dim }, &operands, o, context));
                assert_eq!(bits(&got), bits(&want));
            });
        }
    }

    #[test]
    fn parts_follow_each_other() {
        check::<f32>(&[&[3, 2, 5], &[3, 4, 5], &[3, 0, 5], &[3, 1, 5]], 1);
        check::<half::f16>(&[&[7, 3], &[1, 3]], 0);
        check::<bool>(&[&[70, 300], &[70, 101]], 1);
        check::<f64>(&[&[4]], 0);
    }
}
