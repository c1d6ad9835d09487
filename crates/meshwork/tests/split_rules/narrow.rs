//! Sums of f16 and bf16 accumulate in f32, so their parts must not be rounded: operands are widened, parts summed in f32,
//! and the merged sum is rounded once.

use crate::cases::{dot, side_by_side};
use crate::cut::{Case, case, cuts};
use meshwork::graph::Kind;
use meshwork::graph::canonical::Blocking;
use meshwork::graph::ops::*;
use meshwork::tensor::{manual_seed, randn};
use meshwork::{DType, Tensor};
use smallvec::smallvec;

/// Sums with many blocks.
fn sums(dtype: DType) -> Vec<Case> {
    manual_seed(5);
    let r = |shape: &[usize]| randn(shape).to_dtype(dtype);
    let index = Tensor::from_slice(&(0..70).map(|i| i * i % 9).collect::<Vec<i64>>(), &[70]);
    let patches = side_by_side([2, 2], 1);
    vec![
        case(dot([&[], &[1]], [&[], &[1]], Blocking::Features), &[r(&[9, 700]), r(&[11, 700])]),
        case(dot([&[], &[0, 1]], [&[], &[0, 1]], Blocking::Samples), &[r(&[40, 3, 9]), r(&[40, 3, 5])]),
        case(Reduce::new(ReduceOp::Sum, &[0]), &[r(&[100, 70])]),
        case(Reduce::new(ReduceOp::Sum, &[1, 2]), &[r(&[5, 90, 9])]),
        case(Reduce::new(ReduceOp::Prod, &[0]), &[(randn(&[100, 70]) * 0.1 + 1.0).to_dtype(dtype)]),
        case(Conv::new(patches.clone()), &[r(&[3, 60, 6, 6]), r(&[5, 60, 2, 2])]),
        case(ConvInput::new(side_by_side([1, 1], 1), smallvec![3, 3]), &[r(&[3, 150, 3, 3]), r(&[150, 8, 1, 1])]),
        case(ConvWeight::new(patches, smallvec![2, 2]), &[r(&[40, 4, 6, 6]), r(&[40, 5, 3, 3])]),
        case(IndexAdd::new(0, 9), &[r(&[70, 30]), index]),
    ]
}

fn widened(case: &Case) -> Case {
    let widen = |x: &Tensor| if x.dtype().is_float() { x.to_dtype(DType::F32) } else { x.clone() };
    Case { op: case.op.clone(), inputs: case.inputs.iter().map(widen).collect() }
}

#[test]
fn narrow_sums_are_rounded_once_after_their_parts_are_merged() {
    for dtype in [DType::F16, DType::BF16] {
        for case in sums(dtype) {
            let (whole, wide) = (case.whole(), widened(&case));
            let wide_whole = wide.whole();
            let is_sum = |kind| matches!(kind, Kind::Sum | Kind::Prod);
            let factor = wide.factors(&wide_whole).into_iter().find(|f| is_sum(f.kind)).expect("a sum");
            let size = wide.size(&factor, &wide_whole);
            let (mut cut, mut rounded_alike) = (0, 0);
            for bounds in cuts(size, factor.granularity) {
                let merged = wide.merged(&factor, size, &bounds, &wide_whole).to_dtype(dtype);
                assert!(merged.to_bytes() == whole.to_bytes(), "{} of {dtype} at {bounds:?}", case.name());
                let rounded = case.merged(&factor, size, &bounds, &whole);
                rounded_alike += usize::from(rounded.to_bytes() == whole.to_bytes());
                cut += 1;
            }
            assert!(cut > 0 && rounded_alike < cut, "{} of {dtype} shows nothing", case.name());
        }
    }
}
