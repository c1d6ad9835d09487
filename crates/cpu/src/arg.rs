//! The position of the maximum or minimum along one dimension.

use crate::reduce::{Max, Min, Monoid, Term};
use crate::walk::Walk;
use crate::{Context, Operand, Output, Shared};
use half::{bf16, f16};
use meshwork_graph::DType;
use meshwork_graph::ops::ArgReduce;
use meshwork_simd::multiversion;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;
/// Neighbouring searches that run together.
const WIDTH: usize = 64;
/// Elements of a row that is searched as a whole, at least.
const ROW: usize = 16;
/// Elements that are compared before it is seen whether the one that is looked for is among them.
const CHUNK: usize = 32;

/// Elements whose sums are compared.
trait Searched: Term<Sum: PartialOrd> {}

impl<T: Term<Sum: PartialOrd>> Searched for T {}

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
pub fn run(op: &ArgReduce, inputs: &[Operand], mut output: Output, context: Context) {
    let input = inputs[0];
    let shape = input.shape();
    assert_eq!(output.dtype, DType::I64, "dtype of positions");
    assert_eq!(shape.numel(), output.shape.numel() * shape[op.dim], "elements of positions");
    if shape.numel() == 0 {
        return;
    }
    let others = (0..shape.rank()).filter(|&d| d != op.dim).map(|d| (shape[d], input.layout.strides[d]));
    // SAFETY: the offset is that of an element.
    let first = unsafe { input.bytes().add(input.layout.offset * input.dtype.size()) };
    let search = Search {
        first: Shared(first.cast_mut()),
        out: Shared(output.first::<i64>()),
        others: Walk::over(others),
        size: shape[op.dim],
        stride: input.layout.strides[op.dim],
        largest: op.largest,
    };
    match input.dtype {
        DType::F64 => search.run::<f64>(context),
        DType::F32 => search.run::<f32>(context),
        DType::F16 => search.run::<f16>(context),
        DType::BF16 => search.run::<bf16>(context),
        DType::I64 => search.run::<i64>(context),
        DType::I32 => search.run::<i32>(context),
        // Bools are bytes 0 and 1.
        DType::U8 | DType::Bool => search.run::<u8>(context),
    }
}

struct Search {
    first: Shared<u8>,
    out: Shared<i64>,
    /// Where searches begin.
    others: Walk,
    /// Elements of each, and their distance.
    size: usize,
    stride: isize,
    largest: bool,
}

impl Search {
    fn run<T: Searched>(&self, context: Context) {
        let first = Shared(self.first.0.cast::<T>());
        context.par.ranges(self.others.len(), GRAIN / self.size + 1, &|range| {
            for at in range.clone().step_by(WIDTH) {
                let count = WIDTH.min(range.end - at);
                let mut starts = [0; WIDTH];
                starts[..count].iter_mut().enumerate().for_each(|(i, start)| *start = self.others.position(at + i));
                // SAFETY: this task owns these outputs.
                let positions = unsafe { self.out.slice(at, count) };
                let first = first.pointer().cast_const();
                match self.stride == 1 && self.size >= ROW {
                    true => in_rows(context.level, first, &starts[..count], self.size, self.largest, positions),
                    false => term_by_term(first, &starts[..count], (self.size, self.stride), self.largest, positions),
                }
            }
        });
    }
}

/// Searches from several elements on, each through elements so far apart.
fn term_by_term<T: Searched>(
    first: *const T,
    starts: &[isize],
    (size, stride): (usize, isize),
    largest: bool,
    positions: &mut [i64],
) {
    // SAFETY: the caller passes places of elements.
    let read = |i: usize, start: isize| unsafe { (*first.offset(i as isize * stride + start)).widen() };
    positions.fill(0);
    let mut best = [read(0, starts[0]); WIDTH];
    for (best, &start) in best.iter_mut().zip(starts) {
        *best = read(0, start);
    }
    for i in 1..size {
        for ((position, best), &start) in positions.iter_mut().zip(&mut best).zip(starts) {
            let x = read(i, start);
            if replaces(x, *best, largest) {
                (*best, *position) = (x, i as i64);
            }
        }
    }
}

/// Searches rows of elements that lie together: for the extremum, and then for where it is.
#[inline(always)]
fn in_rows_body<T: Searched>(first: *const T, starts: &[isize], size: usize, largest: bool, positions: &mut [i64]) {
    for (position, &start) in positions.iter_mut().zip(starts) {
        // SAFETY: the caller passes places of rows.
        let row = unsafe { std::slice::from_raw_parts(first.offset(start), size) };
        let best = if largest { Max::all(row) } else { Min::all(row) };
        *position = match is_nan(best) {
            true => find(row, is_nan),
            false => find(row, |x| x == best),
        } as i64;
    }
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<A: PartialOrd + Copy>(x: A) -> bool {
    x != x
}

/// The first element of which something is true; it is of one.
#[inline(always)]
fn find<T: Term>(row: &[T], is_it: impl Fn(T::Sum) -> bool) -> usize {
    let (chunks, rest) = row.as_chunks::<CHUNK>();
    let has_it = |chunk: &[T; CHUNK]| chunk.iter().fold(false, |found, x| found | is_it(x.widen()));
    let (before, terms) = match chunks.iter().position(has_it) {
        Some(chunk) => (chunk * CHUNK, &chunks[chunk][..]),
        None => (row.len() - rest.len(), rest),
    };
    before + terms.iter().position(|x| is_it(x.widen())).expect("the extremum of a row is in it")
}

multiversion! {
    fn in_rows<T: Searched>(first: *const T, starts: &[isize], size: usize, largest: bool, positions: &mut [i64]) = in_rows_body;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Sample, each_context, indices, output};
    use meshwork_graph::{Layout, Shape};

    fn check<T: Sample + PartialOrd>(shape: &[usize]) {
        for case in Case::<T>::strided(shape) {
            for dim in (0..shape.len()).filter(|&d| shape[d] > 0) {
                for largest in [false, true] {
                    let mut kept = Shape::new(shape);
                    kept.0.remove(dim);
                    let find = |mut index: Vec<usize>| {
                        index.insert(dim, 0);
                        let keys: Vec<T> = (0..shape[dim])
                            .map(|i| {
                                index[dim] = i;
                                case.at(&index)
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
        check::<f32>(&[5, 16]);
        check::<f16>(&[3, 33]);
        check::<i32>(&[70, 100]);
        check::<f64>(&[2, 64]);
        check::<bool>(&[3, 75]);
    }

    #[test]
    fn not_a_number_is_first_of_all() {
        let data = vec![1.0, f32::NAN, 3.0, f32::NAN, f32::NAN, 2.0, -1.0, 0.0];
        let mut long = vec![0.0; 100];
        long[3..6].copy_from_slice(&[-1e30, 1e30, -0.0]);
        (long[40], long[77]) = (-f32::NAN, f32::NAN);
        let of = |data: &[f32], rows: usize| Case {
            data: data.to_vec(),
            layout: Layout::contiguous(&Shape::new(&[rows, data.len() / rows])),
        };
        each_context(|context| {
            for largest in [false, true] {
                let op = ArgReduce { largest, dim: 1 };
                let find = |data: &[f32], rows: usize| {
                    let case = of(data, rows);
                    output::<i64>(&Shape::new(&[rows]), |o| run(&op, &[case.operand()], o, context))
                };
                assert_eq!(find(&data, 2), [1, 0]);
                assert_eq!(find(&long, 1), [40]);
                assert_eq!(find(&[&long[..40], &long[60..]].concat(), 2), [if largest { 4 } else { 3 }, 17]);
            }
        });
    }

    #[test]
    fn zeros_are_equal() {
        let mut data = vec![-3.0f32; 50];
        (data[20], data[45]) = (-0.0, 0.0);
        let case = Case { data, layout: Layout::contiguous(&Shape::new(&[1, 50])) };
        each_context(|context| {
            let op = ArgReduce { largest: true, dim: 1 };
            assert_eq!(output::<i64>(&Shape::new(&[1]), |o| run(&op, &[case.operand()], o, context)), [20]);
        });
    }
}
