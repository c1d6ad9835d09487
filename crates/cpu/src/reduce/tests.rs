use super::*;
use crate::testing::{self, Case, Sample, bits, each_context};
use meshwork_graph::canonical::{Blocking, TreeSum, lane_tree};
use meshwork_graph::{Dims, Shape};

/// The order of the design, literally: terms of an output in row-major order, blocks, lanes, trees.
fn reference<T: Sample + Term>(op: &Reduce, case: &Case<T>) -> Vec<T> {
    let shape = &case.layout.shape;
    let rank = shape.rank();
    let kept: Vec<usize> = (0..rank).filter(|d| !op.dims.contains(d)).collect();
    let pick = |dims: &[usize]| -> Shape { dims.iter().map(|&d| shape[d]).collect() };
    type Combine<A> = fn(A, A) -> A;
    let (identity, combine): (T::Sum, Combine<T::Sum>) = match op.op {
        ReduceOp::Sum => (T::Sum::ZERO, T::Sum::add),
        ReduceOp::Prod => (T::Sum::ONE, T::Sum::multiply),
        ReduceOp::Max => (T::Sum::LOWEST, T::Sum::larger),
        ReduceOp::Min => (T::Sum::HIGHEST, T::Sum::smaller),
    };
    let blocks = op.blocks(shape);
    let mut results = vec![];
    for outer in testing::indices(&pick(&kept)) {
        let mut index = vec![0; rank];
        kept.iter().zip(&outer).for_each(|(&d, &i)| index[d] = i);
        let terms: Vec<T> = testing::indices(&pick(&op.dims))
            .map(|inner| {
                op.dims.iter().zip(&inner).for_each(|(&d, &i)| index[d] = i);
                case.at(&index)
            })
            .collect();
        let mut tree = TreeSum::new();
        for block in 0..blocks.count() {
            let range = blocks.range(block);
            let mut lanes = [identity; LANES];
            for (i, x) in terms[range.start * blocks.inner..range.end * blocks.inner].iter().enumerate() {
                lanes[i % LANES] = combine(lanes[i % LANES], x.widen());
            }
            tree.push(lane_tree(lanes, combine), combine);
        }
        results.push(T::narrow(tree.finish(combine).unwrap_or(identity)));
    }
    results
}

fn compute<T: Sample>(op: &Reduce, case: &Case<T>, context: Context) -> Vec<T> {
    let kept: Shape =
        (0..case.layout.shape.rank()).filter(|d| !op.dims.contains(d)).map(|d| case.layout.shape[d]).collect();
    let bytes = super::scratch(op, T::DTYPE, &[&case.layout], context.par.lanes());
    let mut scratch = vec![0u64; bytes.div_ceil(8)];
    // SAFETY: the bytes of numbers.
    let scratch = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast(), bytes) };
    testing::output::<T>(&kept, |output| run(op, &[case.operand()], output, scratch, context))
}

fn check<T: Sample + Term>(shape: &[usize], ops: &[ReduceOp]) {
    let rank = shape.len();
    let cases = Case::<T>::strided(shape);
    for subset in 0..1 << rank {
        let dims: Dims = (0..rank).filter(|d| subset >> d & 1 == 1).collect();
        for &op in ops {
            if matches!(op, ReduceOp::Max | ReduceOp::Min) && dims.iter().any(|&d| shape[d] == 0) {
                continue;
            }
            for blocking in [Blocking::Samples, Blocking::Features] {
                let op = Reduce { op, dims: dims.clone(), blocking };
                let wants: Vec<Vec<u64>> = cases.iter().map(|case| bits(&reference(&op, case))).collect();
                each_context(|context| {
                    for (case, want) in cases.iter().zip(&wants) {
                        assert_eq!(bits(&compute(&op, case, context)), *want, "{op:?} {} {:?}", T::DTYPE, case.layout);
                    }
                });
            }
        }
    }
}

const ALL: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max, ReduceOp::Min];

#[test]
fn every_layout_gives_the_canonical_bits() {
    check::<f32>(&[41, 202], &[ReduceOp::Sum]);
    check::<f32>(&[70, 20], &[ReduceOp::Sum, ReduceOp::Max]);
    check::<f32>(&[9, 751], &[ReduceOp::Sum]);
    check::<f32>(&[67, 5, 19], &ALL);
    check::<f32>(&[3, 7, 4, 49], &[ReduceOp::Sum]);
    check::<f64>(&[23, 41], &ALL);
    check::<f16>(&[40, 6, 9], &[ReduceOp::Sum, ReduceOp::Max]);
    check::<bf16>(&[40, 6, 9], &[ReduceOp::Sum, ReduceOp::Min]);
}

#[test]
fn integers_and_bytes_wrap() {
    check::<i64>(&[31, 37], &ALL);
    check::<i32>(&[7, 2, 65], &ALL);
    check::<u8>(&[300, 5], &ALL);
}

#[test]
fn small_and_empty_shapes_have_values() {
    for shape in [&[][..], &[0], &[1], &[0, 3], &[3, 0], &[2, 0, 3], &[1, 1, 1], &[5, 1], &[16], &[17]] {
        check::<f32>(shape, &ALL);
        check::<i32>(shape, &[ReduceOp::Sum, ReduceOp::Prod]);
    }
}

#[test]
fn large_sums_use_all_threads_and_give_the_same() {
    for (shape, dims) in [
        (&[70_001][..], &[0][..]),
        (&[3, 40_000], &[1]),
        (&[5000, 20], &[0]),
        (&[300, 301], &[0]),
        (&[70, 10_500], &[0]),
        (&[200, 10_241], &[0]),
        (&[9, 2, 2500], &[0]),
        (&[5000, 10], &[1]),
        (&[700, 131], &[1]),
        (&[256, 20], &[0]),
        (&[40, 5, 9, 9], &[0, 2, 3]),
        (&[64, 3, 19, 17], &[0, 2, 3]),
        (&[300, 301], &[0, 1]),
        (&[2, 20_000, 3], &[1]),
    ] {
        let case = Case::<f32>::dense(5, shape);
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            for blocking in [Blocking::Samples, Blocking::Features] {
                let op = Reduce { op, dims: Dims::from_slice(dims), blocking };
                let want = bits(&reference(&op, &case));
                each_context(|context| assert_eq!(bits(&compute(&op, &case, context)), want, "{op:?} {shape:?}"));
            }
        }
    }
}

/// A block of wide rows goes by lanes: of one row, of some, of several rounds, with the last columns beside or over others.
#[test]
fn wide_rows_give_the_canonical_bits() {
    fn check<T: Sample + Term>(shape: &[usize], dims: &[usize], blocking: Blocking) {
        let case = Case::<T>::dense(7, shape);
        for op in [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Max] {
            let op = Reduce { op, dims: Dims::from_slice(dims), blocking };
            let want = bits(&reference(&op, &case));
            each_context(|context| assert_eq!(bits(&compute(&op, &case, context)), want, "{op:?} {shape:?}"));
        }
    }
    for rows in (1..=20).chain([31, 32, 33, 48, 63, 64, 65, 129, 200]) {
        check::<f32>(&[rows, 256 + rows % 67], &[0], Blocking::Every(rows));
        check::<f32>(&[rows, 300], &[0], Blocking::Every(rows.div_ceil(3)));
    }
    check::<f32>(&[3, 77, 256], &[1], Blocking::Every(77));
    check::<f32>(&[5, 4, 7, 257], &[0, 2], Blocking::Every(3));
    check::<f64>(&[70, 319], &[0], Blocking::Every(70));
    check::<f16>(&[70, 320], &[0], Blocking::Every(35));
    check::<bf16>(&[16, 321], &[0], Blocking::Every(8));
    check::<i64>(&[70, 319], &[0], Blocking::Every(70));
    check::<u8>(&[70, 319], &[0], Blocking::Every(64));
    // Lanes start at +0.
    let case = Case { data: vec![-0.0f32; 33 * 256], layout: Layout::contiguous(&Shape::new(&[33, 256])) };
    each_context(|context| {
        let sums = compute(&Reduce::new(ReduceOp::Sum, &[0]), &case, context);
        assert!(sums.iter().all(|sum| sum.to_bits() == 0));
    });
}

/// Trees of whole blocks of a row come all at once.
#[test]
fn rows_of_many_blocks_give_the_canonical_bits() {
    for (terms, unit) in [(16 * 16 * 5 + 3, 16), (64 * 37, 64), (48 * 19 + 47, 48), (32 * 4, 32), (32 * 67 + 1, 32)] {
        let case = Case::<f32>::dense(3, &[9, terms]);
        for op in [ReduceOp::Sum, ReduceOp::Prod] {
            let op = Reduce { op, dims: Dims::from_slice(&[1]), blocking: Blocking::Every(unit) };
            let want = bits(&reference(&op, &case));
            each_context(|context| assert_eq!(bits(&compute(&op, &case, context)), want, "{op:?} {terms}"));
        }
    }
}

/// Extrema of rows that fill no lanes, that fill some, and whose last terms count twice, of floats with NaNs of both signs.
#[test]
fn extrema_of_rows_of_any_length_are_those_of_their_terms_one_by_one() {
    fn check<T: Sample + Term>(columns: usize, odd: impl Fn(usize) -> Option<T>) {
        let mut case = Case::<T>::dense(19, &[37, columns]);
        for (row, terms) in case.data.chunks_mut(columns).enumerate() {
            if let Some(odd) = odd(row) {
                terms[row * 7 % columns] = odd;
            }
        }
        for op in [ReduceOp::Max, ReduceOp::Min].map(|op| Reduce::new(op, &[1])) {
            let want = bits(&reference(&op, &case));
            each_context(|context| assert_eq!(bits(&compute(&op, &case, context)), want, "{op:?} of {columns}"));
        }
    }
    for columns in (1..=70).chain([127, 1000, 20_000]) {
        let odd = |row| [None, Some(f32::NAN), Some(-f32::NAN), Some(f32::NEG_INFINITY), Some(f32::INFINITY)][row % 5];
        check(columns, odd);
        check::<bf16>(columns, |row| odd(row).map(bf16::from_f32));
        check::<f64>(columns, |row| odd(row).map(f64::from));
        check::<i64>(columns, |row| [None, Some(i64::MIN), Some(i64::MAX)][row % 3]);
        check::<u8>(columns, |_| None);
    }
}

#[test]
fn bools_are_any_and_all() {
    let case = Case::<bool>::dense(1, &[6, 2]);
    each_context(|context| {
        for (op, join) in [(ReduceOp::Max, true), (ReduceOp::Min, false)] {
            let got = compute(&Reduce::new(op, &[1]), &case, context);
            let want: Vec<bool> = case.data.chunks(2).map(|c| if join { c[0] | c[1] } else { c[0] & c[1] }).collect();
            assert_eq!(got, want);
        }
    });
}

#[test]
fn not_a_number_wins_and_zeros_have_an_order() {
    let layout = Layout::contiguous(&Shape::new(&[2, 20]));
    let mut data = vec![1.0f32; 40];
    data[13] = f32::NAN;
    (data[20..40]).fill(-0.0);
    data[31] = 0.0;
    let case = Case { data, layout };
    each_context(|context| {
        let max = compute(&Reduce::new(ReduceOp::Max, &[1]), &case, context);
        assert!(max[0].is_nan());
        assert_eq!(max[1].to_bits(), 0.0f32.to_bits());
        let min = compute(&Reduce::new(ReduceOp::Min, &[1]), &case, context);
        assert!(min[0].is_nan());
        assert_eq!(min[1].to_bits(), (-0.0f32).to_bits());
        let sum = compute(&Reduce::new(ReduceOp::Sum, &[1]), &case, context);
        assert!(sum[0].is_nan());
        assert_eq!(sum[1].to_bits(), 0.0f32.to_bits());
    });
}

/// Columns of zeros, of numbers, and with NaNs, wherever they stand.
#[test]
fn extrema_of_columns_are_those_of_their_terms_one_by_one() {
    let zeros = [0.0, -0.0];
    let numbers = [-0.0, 0.0, f32::NEG_INFINITY, f32::INFINITY, 1.5, -2.5, f32::MIN, 1e-45];
    let odd = [f32::NAN, -f32::NAN, 1.0, f32::INFINITY, -1.0, -0.0, f32::NEG_INFINITY];
    for rows in 1..10 {
        for columns in [256, 257, 273] {
            let number = |i: usize| {
                let (row, column) = (i / columns, i % columns);
                let draw = (row * 7919 + column * 104_729 + row * column * 13) / 3;
                match column % 3 {
                    0 => zeros[draw % zeros.len()],
                    1 => numbers[draw % numbers.len()],
                    _ => odd[draw % odd.len()],
                }
            };
            let data: Vec<f32> = (0..rows * columns).map(number).collect();
            let case = Case { data, layout: Layout::contiguous(&Shape::new(&[rows, columns])) };
            for op in [ReduceOp::Max, ReduceOp::Min].map(|op| Reduce::new(op, &[0])) {
                let want = bits(&reference(&op, &case));
                each_context(|context| assert_eq!(bits(&compute(&op, &case, context)), want, "{rows} × {columns}"));
            }
        }
    }
}

#[test]
fn all_at_once_is_one_after_the_other() {
    fn check<A: Accumulate>(terms: &[A]) {
        for count in 1..=terms.len() {
            for terms in [&terms[..count], &terms[terms.len() - count..]] {
                assert_eq!(Max::all(terms).word(), terms.iter().copied().fold(A::LOWEST, A::larger).word());
                assert_eq!(Min::all(terms).word(), terms.iter().copied().fold(A::HIGHEST, A::smaller).word());
            }
        }
    }
    // Every NaN has a sign and a payload of its own; what comes out has neither.
    let nan = |payload: u32| f32::from_bits(0x7f80_0000 | payload);
    let odd = [-0.0, 0.0, f32::NEG_INFINITY, f32::INFINITY, f32::MIN, f32::MAX, -1e-45, 1e-45, nan(3), -nan(0x40_0001)];
    for (i, first) in odd.into_iter().enumerate() {
        for second in odd {
            let mut terms = vec![first; 71];
            terms[7 * i + 3] = second;
            check(&terms);
            check(&terms.iter().copied().map(f64::from).collect::<Vec<_>>());
        }
    }
    let numbers: Vec<f32> = (0..71).map(|i| ((i * 37) % 71) as f32 - 35.5).collect();
    check(&numbers);
    check(&numbers.iter().map(|&x| x as i64).collect::<Vec<_>>());
    check(&numbers.iter().map(|&x| x as u8).collect::<Vec<_>>());
}
