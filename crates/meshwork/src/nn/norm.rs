//! Normalisations that do not look beyond a sample.

use super::layer::layers;
use super::{Module, Parameter, init};
use crate::tensor::{PerDim, Tensor};

/// Layer normalisation over the last dimensions (Ba, Kiros and Hinton, 2016).
#[derive(Debug, Module)]
pub struct LayerNorm {
    /// Of the normalised sizes, ones at first
    pub weight: Option<Parameter>,
    /// Of the normalised sizes, zeros at first
    pub bias: Option<Parameter>,
    shape: Vec<usize>,
    eps: f64,
}

impl LayerNorm {
    /// Over the last dimensions, which must have these sizes (`512`, `[10, 10]`); eps 1e-5.
    #[track_caller]
    pub fn new(shape: impl Into<PerDim>) -> LayerNorm {
        let shape = sizes(shape.into());
        LayerNorm {
            weight: Some(Parameter::new(&shape, init::constant(1.0))),
            bias: Some(Parameter::new(&shape, init::constant(0.0))),
            shape,
            eps: 1e-5,
        }
    }

    /// Added to the variance.
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }

    /// Without bias.
    pub fn no_bias(self) -> LayerNorm {
        LayerNorm { bias: None, ..self }
    }

    /// Without weight and bias.
    pub fn no_affine(self) -> LayerNorm {
        LayerNorm { weight: None, bias: None, ..self }
    }

    /// A tensor whose last dimensions have the layer's sizes, to the same.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        check_sizes("LayerNorm", x, &self.shape);
        let [weight, bias] = [&self.weight, &self.bias].map(|p| p.as_ref().map(Parameter::value));
        x.layer_norm(self.shape.len(), weight.as_ref(), bias.as_ref(), self.eps)
    }
}

/// Root-mean-square normalisation over the last dimensions (Zhang and Sennrich, 2019).
#[derive(Debug, Module)]
pub struct RmsNorm {
    /// Of the normalised sizes, ones at first
    pub weight: Option<Parameter>,
    shape: Vec<usize>,
    eps: f64,
}

impl RmsNorm {
    /// Over the last dimensions, which must have these sizes; eps 1.19e-7, the f32 epsilon, as in PyTorch.
    #[track_caller]
    pub fn new(shape: impl Into<PerDim>) -> RmsNorm {
        let shape = sizes(shape.into());
        RmsNorm { weight: Some(Parameter::new(&shape, init::constant(1.0))), shape, eps: f64::from(f32::EPSILON) }
    }

    /// Added to the mean square.
    pub fn eps(self, eps: f64) -> RmsNorm {
        RmsNorm { eps, ..self }
    }

    /// Without weight.
    pub fn no_affine(self) -> RmsNorm {
        RmsNorm { weight: None, ..self }
    }

    /// A tensor whose last dimensions have the layer's sizes, to the same.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        check_sizes("RmsNorm", x, &self.shape);
        x.rms_norm(self.shape.len(), self.weight.as_ref().map(Parameter::value).as_ref(), self.eps)
    }
}

/// Group normalisation of `[N, C, …]` (Wu and He, 2018).
#[derive(Debug, Module)]
pub struct GroupNorm {
    /// `[C]`, ones at first
    pub weight: Option<Parameter>,
    /// `[C]`, zeros at first
    pub bias: Option<Parameter>,
    num_groups: usize,
    num_channels: usize,
    eps: f64,
}

impl GroupNorm {
    /// Channels in groups that are normalised together; eps 1e-5.
    ///
    /// # Panics
    /// When the groups do not divide the channels.
    #[track_caller]
    pub fn new(num_groups: usize, num_channels: usize) -> GroupNorm {
        let fits = num_groups > 0 && num_channels.is_multiple_of(num_groups);
        assert!(fits, "{num_groups} groups do not divide {num_channels} channels");
        GroupNorm {
            weight: Some(Parameter::new(&[num_channels], init::constant(1.0))),
            bias: Some(Parameter::new(&[num_channels], init::constant(0.0))),
            num_groups,
            num_channels,
            eps: 1e-5,
        }
    }

    /// Added to the variance.
    pub fn eps(self, eps: f64) -> GroupNorm {
        GroupNorm { eps, ..self }
    }

    /// Without weight and bias.
    pub fn no_affine(self) -> GroupNorm {
        GroupNorm { weight: None, bias: None, ..self }
    }

    /// `[N, C, …]` to the same.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let channels = x.shape().get(1).copied();
        assert!(channels == Some(self.num_channels), "GroupNorm of {} channels cannot take {x:?}", self.num_channels);
        let [weight, bias] = [&self.weight, &self.bias].map(|p| p.as_ref().map(Parameter::value));
        x.group_norm(self.num_groups, weight.as_ref(), bias.as_ref(), self.eps)
    }
}

layers!(LayerNorm, RmsNorm, GroupNorm);

#[track_caller]
fn sizes(shape: PerDim) -> Vec<usize> {
    let shape = match shape {
        PerDim::All(n) => vec![n],
        PerDim::Each(each) => each.to_vec(),
    };
    assert!(!shape.is_empty(), "a normalisation over no dimension");
    shape
}

#[track_caller]
fn check_sizes(name: &str, x: &Tensor, shape: &[usize]) {
    assert!(x.shape().ends_with(shape), "{name} of {shape:?} cannot take {x:?}: its last dims must have these sizes");
}
