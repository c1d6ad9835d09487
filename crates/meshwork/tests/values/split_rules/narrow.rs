//! Sums of f16 and bf16 accumulate in f32, so their parts must not be rounded: operands are widened, parts summed in f32,
//! and the merged sum is rounded once.

use crate::operations::cases::narrow_cases;
use crate::operations::cut::{Case, cuts};
use meshwork::graph::Kind;
use meshwork::{DType, Tensor};

fn widened(case: &Case) -> Case {
    let widen = |x: &Tensor| if x.dtype().is_float() { x.to_dtype(DType::F32) } else { x.clone() };
    Case { op: case.op.clone(), inputs: case.inputs.iter().map(widen).collect() }
}

#[test]
fn narrow_sums_are_rounded_once_after_their_parts_are_merged() {
    for dtype in [DType::F16, DType::BF16] {
        for case in narrow_cases(dtype) {
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
