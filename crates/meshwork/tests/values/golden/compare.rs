//! How close is equal.
//!
//! The golden values carry one rounding. Ours carry those of the computation in the case's dtype: a few units in the
//! last place for functions of one element, more where terms are summed or cancel. Errors of sums grow with the
//! terms, not with the result, so an absolute part goes with the largest element of the tensor.

use crate::golden::case::Case;
use meshwork::{DType, Tensor};

/// Differences up to `relative · |value| + absolute · (largest element of the tensor)` are none.
#[derive(Clone)]
pub struct Tolerance {
    relative: f64,
    absolute: f64,
    exact: bool,
    signed_zeros: bool,
    /// Where these are NaN, the result is.
    nan: Option<Vec<f64>>,
}

/// Operations that apply one function to each element: no sum, no cancellation between elements.
const FUNCTIONS: [&str; 23] = [
    "add",
    "sub",
    "mul",
    "div",
    "neg",
    "exp",
    "log",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "sin",
    "cos",
    "tanh",
    "sigmoid",
    "log1p",
    "expm1",
    "abs",
    "relu",
    "erf",
    "floor",
    "ceil",
    "round",
    "sign",
];

impl Tolerance {
    pub fn of(case: &Case) -> Tolerance {
        Tolerance {
            relative: 1e-5,
            absolute: if FUNCTIONS.contains(&case.op.as_str()) { 0.0 } else { 1e-6 },
            exact: case.op == "cast",
            // Our relu is max(x, 0), which gives +0 for −0; of ±0 extremes and clamps may keep either one.
            signed_zeros: (FUNCTIONS.contains(&case.op.as_str()) && case.op != "relu") || case.op == "cast",
            // Our sign keeps NaN, where PyTorch 1.13 says 0.
            nan: if case.op == "sign" { case.maybe_input("x").map(Tensor::to_f64) } else { None },
        }
    }

    /// For a tensor of `dtype`; `derived` ones (gradients) are sums over broadcast elements and products.
    fn in_dtype(&self, dtype: DType, derived: bool) -> Tolerance {
        let scaled = |relative: f64, absolute: f64| Tolerance { relative, absolute, ..self.clone() };
        let absolute = if derived { 1e-6 } else { self.absolute };
        match dtype {
            _ if self.exact => scaled(0.0, 0.0),
            DType::F64 => scaled(1e-12, absolute * 1e-6),
            DType::F32 => scaled(self.relative, absolute),
            // Every intermediate value is rounded, to 11 and 8 bits: a handful of units of 2⁻¹⁰ and 2⁻⁷.
            DType::F16 => scaled(4.0 / 1024.0, if derived || absolute > 0.0 { 2.0 / 1024.0 } else { 0.0 }),
            DType::BF16 => scaled(4.0 / 128.0, if derived || absolute > 0.0 { 2.0 / 128.0 } else { 0.0 }),
            _ => scaled(0.0, 0.0),
        }
    }

    /// What differs, if anything does.
    pub fn difference(&self, name: &str, found: &Tensor, expected: &Tensor) -> Option<String> {
        if (found.dtype(), found.shape()) != (expected.dtype(), expected.shape()) {
            return Some(format!("{name} is {found:?} instead of {expected:?}"));
        }
        if matches!(found.dtype(), DType::I64 | DType::I32 | DType::U8 | DType::Bool) {
            let same = found.to_bytes() == expected.to_bytes();
            return (!same).then(|| format!("{name}: {found} instead of {expected}"));
        }
        let derived = name.starts_with("grad");
        let tolerance = self.in_dtype(found.dtype(), derived);
        let (found, mut expected) = (found.to_f64(), expected.to_f64());
        for (e, x) in expected.iter_mut().zip(self.nan.iter().flatten()) {
            *e = if x.is_nan() { f64::NAN } else { *e };
        }
        let finite = expected.iter().filter(|v| v.is_finite());
        let scale = finite.fold(0.0, |m: f64, v| m.max(v.abs()));
        let wrong = |(&f, &e): (&f64, &f64)| {
            if e.is_nan() || e.is_infinite() {
                return f.is_nan() != e.is_nan() || (e.is_infinite() && f != e);
            }
            let signs = self.signed_zeros && !derived && e == 0.0 && f.is_sign_negative() != e.is_sign_negative();
            let allowed = tolerance.relative * e.abs() + tolerance.absolute * scale;
            signs || f.is_nan() || (f - e).abs() > allowed
        };
        let wrong: Vec<usize> = (0..found.len()).filter(|&i| wrong((&found[i], &expected[i]))).collect();
        let &first = wrong.first()?;
        let worst = wrong.iter().map(|&i| (found[i] - expected[i]).abs()).fold(0.0, f64::max);
        Some(format!(
            "{name}: {} of {} elements differ by up to {worst:e}; the first, [{first}], is {:?} instead of {:?}",
            wrong.len(),
            found.len(),
            found[first],
            expected[first]
        ))
    }
}
