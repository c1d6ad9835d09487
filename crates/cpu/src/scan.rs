//! Running sums.

use crate::reduce::{Accumulate, Term};
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared};
use half::{bf16, f16};
use meshwork_graph::DType;
use meshwork_graph::ops::CumSum;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;
/// Neighbouring sums that run together.
const WIDTH: usize = 64;

/// Computes the running sums; threads share the independent ones.
///
/// # Panics
/// When shapes or dtypes differ, and for bool.
pub fn run(op: &CumSum, inputs: &[Operand], output: Output, context: Context) {
    let input = inputs[0];
    assert_eq!((input.dtype, input.shape()), (output.dtype, output.shape), "type of a running sum");
    match input.dtype {
        DType::F64 => scan::<f64>(op, input, output, context),
        DType::F32 => scan::<f32>(op, input, output, context),
        DType::F16 => scan::<f16>(op, input, output, context),
        DType::BF16 => scan::<bf16>(op, input, output, context),
        DType::I64 => scan::<i64>(op, input, output, context),
        DType::I32 => scan::<i32>(op, input, output, context),
        DType::U8 => scan::<u8>(op, input, output, context),
        DType::Bool => panic!("cumsum of bool"),
    }
}

fn scan<T: Term>(op: &CumSum, input: Operand, output: Output, context: Context) {
    let shape = input.shape();
    if shape.numel() == 0 {
        return;
    }
    let size = shape[op.dim];
    let inner: usize = shape[op.dim + 1..].iter().product();
    let stride = input.layout.strides[op.dim];
    let others = (0..shape.rank()).filter(|&d| d != op.dim).map(|d| (shape[d], input.layout.strides[d]));
    let others = Walk::over(others);
    // SAFETY: the offset is that of an element.
    let first = unsafe { input.bytes().cast::<T>().add(input.layout.offset) };
    let (first, out) = (Shared(first.cast_mut()), Shared(output.bytes().cast::<T>()));
    context.par.ranges(others.len(), GRAIN / size + 1, &|range| {
        let mut at = range.start;
        while at < range.end {
            // Neighbours in one row of the inner dimensions.
            let count = WIDTH.min(inner - at % inner).min(range.end - at);
            let mut starts = [0isize; WIDTH];
            for (i, start) in starts[..count].iter_mut().enumerate() {
                *start = others.position(at + i);
            }
            let mut sums = [T::Sum::ZERO; WIDTH];
            for step in 0..size {
                let i = if op.reverse { size - 1 - step } else { step };
                // SAFETY: the positions are those of elements; this task owns these outputs.
                unsafe {
                    let row = out.slice((at / inner * size + i) * inner + at % inner, count);
                    let from = first.pointer().offset(i as isize * stride);
                    for ((y, sum), &start) in row.iter_mut().zip(&mut sums).zip(&starts) {
                        let x = (*from.offset(start)).widen();
                        // The first term stands alone.
                        *sum = if step == 0 { x } else { sum.add(x) };
                        *y = T::narrow(*sum);
                    }
                }
            }
            at += count;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Sample, bits, each_context, indices, output};

    fn check<T: Sample + Term>(shape: &[usize]) {
        for case in Case::<T>::strided(shape) {
            for dim in 0..shape.len() {
                for reverse in [false, true] {
                    let value = |index: &[usize]| -> T {
                        let mut place = index.to_vec();
                        let mut terms: Vec<usize> =
                            if reverse { (index[dim]..shape[dim]).rev().collect() } else { (0..=index[dim]).collect() };
                        place[dim] = terms.remove(0);
                        let mut sum = case.at(&place).widen();
                        for i in terms {
                            place[dim] = i;
                            sum = sum.add(case.at(&place).widen());
                        }
                        T::narrow(sum)
                    };
                    let want: Vec<T> = indices(&case.layout.shape).map(|index| value(&index)).collect();
                    each_context(|context| {
                        let op = CumSum { dim, reverse };
                        let got = output::<T>(&case.layout.shape, |o| run(&op, &[case.operand()], o, context));
                        assert_eq!(bits(&got), bits(&want), "{op:?} {:?}", case.layout);
                    });
                }
            }
        }
    }

    #[test]
    fn terms_are_added_one_by_one() {
        check::<f32>(&[5, 17, 3]);
        check::<bf16>(&[9, 4]);
        check::<i32>(&[130, 7]);
        check::<f64>(&[3, 0]);
        check::<u8>(&[40]);
        check::<f16>(&[70, 80]);
    }
}
