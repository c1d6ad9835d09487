//! The position of the maximum or minimum along one dimension.

use crate::number::Number;
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared, narrow};
use half::{bf16, f16};
use meshwork_graph::DType;
use meshwork_graph::ops::ArgReduce;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;
/// Neighbouring searches that run together.
const WIDTH: usize = 64;

/// What elements are compared as.
trait Ordered: Number {
    type Key: PartialOrd + Copy;
    fn key(self) -> Self::Key;
}

macro_rules! ordered {
    ($($type:ty as $key:ty: $x:ident => $value:expr;)*) => {
        $(
            impl Ordered for $type {
                type Key = $key;
                #[inline(always)]
                fn key(self) -> $key {
                    let $x = self;
                    $value
                }
            }
        )*
    };
}

ordered! {
    f64 as f64: x => x;
    f32 as f32: x => x;
    f16 as f32: x => narrow::f16_to_f32(x);
    bf16 as f32: x => narrow::bf16_to_f32(x);
    i64 as i64: x => x;
    i32 as i32: x => x;
    u8 as u8: x => x;
    bool as bool: x => x;
}

/// Whether `x` replaces `best`: it is beyond it, or is the first NaN.
#[inline(always)]
#[allow(clippy::eq_op)]
fn replaces<K: PartialOrd + Copy>(x: K, best: K, largest: bool) -> bool {
    let beyond = if largest { x > best } else { x < best };
    beyond | (x != x) & (best == best)
}

/// Searches; threads share the outputs.
///
/// # Panics
/// When the output is not i64 of the reduced shape.
pub fn run(op: &ArgReduce, inputs: &[Operand], output: Output, context: Context) {
    let input = inputs[0];
    assert_eq!(output.dtype, DType::I64, "dtype of positions");
    assert_eq!(input.shape().numel(), output.shape.numel() * input.shape()[op.dim], "elements of positions");
    crate::number::by_dtype!(input.dtype, T => search::<T>(op, input, output, context));
}

fn search<T: Ordered>(op: &ArgReduce, input: Operand, mut output: Output, context: Context) {
    let shape = input.shape();
    if shape.numel() == 0 {
        return;
    }
    let (size, stride) = (shape[op.dim], input.layout.strides[op.dim]);
    let others = (0..shape.rank()).filter(|&d| d != op.dim).map(|d| (shape[d], input.layout.strides[d]));
    let others = Walk::over(others);
    let (first, out) = (Shared(input.first::<T>().cast_mut()), Shared(output.first::<i64>()));
    context.par.ranges(others.len(), GRAIN / size + 1, &|range| {
        for at in range.clone().step_by(WIDTH) {
            let count = WIDTH.min(range.end - at);
            let mut starts = [0isize; WIDTH];
            for (i, start) in starts[..count].iter_mut().enumerate() {
                *start = others.position(at + i);
            }
            // SAFETY: the positions are those of elements; this task owns these outputs.
            let (read, positions) = unsafe {
                (
                    |i: usize, start: isize| (*first.pointer().offset(i as isize * stride + start)).key(),
                    out.slice(at, count),
                )
            };
            positions.fill(0);
            let mut best = [read(0, starts[0]); WIDTH];
            for (best, &start) in best[..count].iter_mut().zip(&starts) {
                *best = read(0, start);
            }
            for i in 1..size {
                for ((position, best), &start) in positions.iter_mut().zip(&mut best).zip(&starts) {
                    let x = read(i, start);
                    if replaces(x, *best, op.largest) {
                        (*best, *position) = (x, i as i64);
                    }
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Sample, each_context, indices, output};
    use meshwork_graph::{Layout, Shape};

    fn check<T: Sample + Ordered>(shape: &[usize]) {
        for case in Case::<T>::strided(shape) {
            for dim in (0..shape.len()).filter(|&d| shape[d] > 0) {
                for largest in [false, true] {
                    let mut kept = Shape::new(shape);
                    kept.0.remove(dim);
                    let find = |mut index: Vec<usize>| {
                        index.insert(dim, 0);
                        let keys: Vec<T::Key> = (0..shape[dim])
                            .map(|i| {
                                index[dim] = i;
                                case.at(&index).key()
                            })
                            .collect();
                        let wins =
                            |&i: &usize| keys.iter().all(|k| if largest { keys[i] >= *k } else { keys[i] <= *k });
                        (0..shape[dim]).find(wins).unwrap() as i64
                    };
                    let want: Vec<i64> = indices(&kept).map(find).collect();
                    each_context(|context| {
                        let op = ArgReduce { largest, dim };
                        let got = output::<i64>(&kept, |o| run(&op, &[case.operand()], o, context));
                        assert_eq!(got, want, "{op:?} {:?}", case.layout);
                    });
                }
            }
        }
    }

    #[test]
    fn the_first_extremum_is_found() {
        check::<f32>(&[7, 5, 9]);
        check::<bf16>(&[70, 6]);
        check::<bool>(&[5, 11]);
        check::<i64>(&[200]);
        check::<u8>(&[3, 0, 2]);
    }

    #[test]
    fn not_a_number_is_first_of_all() {
        let data = vec![1.0, f32::NAN, 3.0, f32::NAN, f32::NAN, 2.0, -1.0, 0.0];
        let case = Case { data, layout: Layout::contiguous(&Shape::new(&[2, 4])) };
        each_context(|context| {
            for largest in [false, true] {
                let op = ArgReduce { largest, dim: 1 };
                assert_eq!(output::<i64>(&Shape::new(&[2]), |o| run(&op, &[case.operand()], o, context)), [1, 0]);
            }
        });
    }
}
