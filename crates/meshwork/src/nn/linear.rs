//! The fully connected layer.

use super::layer::layers;
use super::{Init, Module, Parameter, init};
use crate::tensor::Tensor;

/// `x · weightᵀ + bias` over the last dimension: `[…, in]` to `[…, out]`.
///
/// Weight `[out, in]` and bias `[out]` begin as U(±1/√in), as in PyTorch.
#[derive(Debug, Module)]
pub struct Linear {
    /// `[out, in]`
    pub weight: Parameter,
    /// `[out]`
    pub bias: Option<Parameter>,
}

impl Linear {
    /// A layer with bias.
    pub fn new(in_features: usize, out_features: usize) -> Linear {
        let weight = Parameter::new(&[out_features, in_features], init::kaiming_uniform(5f64.sqrt()));
        let bound = 1.0 / (in_features.max(1) as f64).sqrt();
        Linear { weight, bias: Some(Parameter::new(&[out_features], init::uniform(bound))) }
    }

    /// Without bias.
    pub fn no_bias(self) -> Linear {
        Linear { bias: None, ..self }
    }

    /// With weights that begin like this, and biases as zeros.
    #[track_caller]
    pub fn weights(self, init: Init) -> Linear {
        let weight = Parameter::new(self.weight.shape(), init);
        let bias = self.bias.map(|bias| Parameter::new(bias.shape(), init::constant(0.0)));
        Linear { weight, bias }
    }

    /// `[…, in]` to `[…, out]`.
    ///
    /// # Panics
    /// When the last dimension is not `in`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.linear(&self.weight.value(), self.bias.as_ref().map(Parameter::value).as_ref())
    }
}

layers!(Linear);
