//! The part of a block that looks at each token by itself.

use super::{ActivationKind, TransformerConfig};
use crate::nn::{Linear, Module, init};
use crate::tensor::Tensor;

/// Two linear layers with a function between them; with SwiGLU, three.
#[derive(Debug, Module)]
pub struct FeedForward {
    /// `[hidden, width]`, only of SwiGLU
    pub gate: Option<Linear>,
    /// `[hidden, width]`
    pub up: Linear,
    /// `[width, hidden]`
    pub down: Linear,
    #[module(skip)]
    activation: ActivationKind,
}

impl FeedForward {
    /// As a block of the model has it.
    pub fn new(config: &TransformerConfig) -> FeedForward {
        let &TransformerConfig { width, hidden, activation, init_std, .. } = config;
        let inner = || config.linear(width, hidden, init::normal(init_std));
        FeedForward {
            gate: (activation == ActivationKind::SwiGlu).then(inner),
            up: inner(),
            down: config.linear(hidden, width, config.residual_init()),
            activation,
        }
    }

    /// `[…, width]` to the same.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        let up = self.up.forward(x);
        let inner = match (&self.gate, self.activation) {
            (Some(gate), _) => gate.forward(x).silu() * &up,
            (None, ActivationKind::Gelu) => up.gelu(),
            (None, _) => up.gelu_tanh(),
        };
        self.down.forward(&inner)
    }
}
