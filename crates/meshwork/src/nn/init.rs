//! How parameters begin. Values depend on a key and the element's index alone.

use crate::DType;
use crate::tensor::{Tensor, arange, full, keyed, where_};
use meshwork_graph::ops::Distribution;

/// An initialiser.
#[derive(Clone, Debug)]
pub struct Init {
    kind: Kind,
    zero_row: Option<usize>,
}

#[derive(Clone, Debug)]
enum Kind {
    Constant(f64),
    Uniform(f64, f64),
    Normal(f64),
    Fan { fan: Fan, scale: f64, uniform: bool },
    Given(Tensor),
}

/// Which connections of a weight `[out, in, …]` a variance is scaled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fan {
    /// in · receptive field
    In,
    /// the mean of both
    Mean,
}

/// The same number everywhere.
pub fn constant(value: f64) -> Init {
    Kind::Constant(value).into()
}

/// Uniform in [−bound, bound).
pub fn uniform(bound: f64) -> Init {
    Kind::Uniform(-bound, bound).into()
}

/// Normal with mean 0.
pub fn normal(std: f64) -> Init {
    Kind::Normal(std).into()
}

/// Uniform with variance gain² / fan_in, where gain² = 2 / (1 + a²) suits a leaky ReLU of slope `a`
/// (He et al., 2015). `a = √5` gives PyTorch's default, U(±1/√fan_in).
pub fn kaiming_uniform(a: f64) -> Init {
    Kind::Fan { fan: Fan::In, scale: 2.0 / (1.0 + a * a), uniform: true }.into()
}

/// Normal with variance 2 / (1 + a²) / fan_in (He et al., 2015).
pub fn kaiming_normal(a: f64) -> Init {
    Kind::Fan { fan: Fan::In, scale: 2.0 / (1.0 + a * a), uniform: false }.into()
}

/// Uniform with variance gain² · 2 / (fan_in + fan_out) (Glorot and Bengio, 2010).
pub fn xavier_uniform(gain: f64) -> Init {
    Kind::Fan { fan: Fan::Mean, scale: gain * gain, uniform: true }.into()
}

/// Normal with variance gain² · 2 / (fan_in + fan_out) (Glorot and Bengio, 2010).
pub fn xavier_normal(gain: f64) -> Init {
    Kind::Fan { fan: Fan::Mean, scale: gain * gain, uniform: false }.into()
}

/// fan_in of a weight `[out, in, …]`: the inputs that one output sees.
///
/// # Panics
/// When the shape has less than two dimensions.
#[track_caller]
pub fn fan_in(shape: &[usize]) -> usize {
    assert!(shape.len() >= 2, "the fan of {shape:?}: a weight is [out, in, …]");
    shape[1..].iter().product()
}

fn fan_out(shape: &[usize]) -> usize {
    shape[0] * shape[2..].iter().product::<usize>()
}

impl From<Kind> for Init {
    fn from(kind: Kind) -> Self {
        Init { kind, zero_row: None }
    }
}

impl Init {
    /// These values.
    pub fn given(value: &Tensor) -> Init {
        Kind::Given(value.clone().into_leaf(false)).into()
    }

    /// The same, but zeros in one row (index of the first dimension).
    pub fn with_zero_row(self, row: usize) -> Init {
        Init { zero_row: Some(row), ..self }
    }

    /// Refuses shapes that the initialiser does not fit.
    #[track_caller]
    pub(crate) fn check(&self, shape: &[usize]) {
        if let Kind::Fan { .. } = self.kind {
            fan_in(shape);
        }
        if let Some(row) = self.zero_row {
            assert!(shape.first().is_some_and(|&n| row < n), "row {row} of {shape:?}");
        }
    }

    /// The values. Low precision is rounded from f32.
    pub(crate) fn tensor(&self, shape: &[usize], dtype: DType, key: impl FnOnce() -> u64) -> Tensor {
        let wide = if dtype == DType::F64 { dtype } else { DType::F32 };
        let spread = |low: f64, high: f64, key| keyed(Distribution::Uniform, shape, wide, key) * (high - low) + low;
        let values = match &self.kind {
            Kind::Constant(value) => full(shape, *value, wide),
            Kind::Given(value) => value.detach(),
            Kind::Uniform(low, high) => spread(*low, *high, key()),
            Kind::Normal(std) => keyed(Distribution::Normal, shape, wide, key()) * *std,
            Kind::Fan { fan, scale, uniform } => {
                let fan = match fan {
                    Fan::In => fan_in(shape) as f64,
                    Fan::Mean => (fan_in(shape) + fan_out(shape)) as f64 / 2.0,
                };
                let std = (scale / fan.max(1.0)).sqrt();
                let bound = 3f64.sqrt() * std;
                if *uniform {
                    spread(-bound, bound, key())
                } else {
                    keyed(Distribution::Normal, shape, wide, key()) * std
                }
            }
        };
        let values = values.to_dtype(dtype);
        match self.zero_row {
            None => values,
            Some(row) => {
                let rows: Vec<isize> = (0..shape.len()).map(|d| if d == 0 { -1 } else { 1 }).collect();
                let is_row = arange(shape[0], DType::I64).eq(row as i64).reshape(&rows);
                where_(&is_row, &values.zeros_like(), &values)
            }
        }
    }
}
