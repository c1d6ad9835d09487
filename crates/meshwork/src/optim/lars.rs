//! LARS: a learning rate of its own for every layer.

use super::norm::{norm, trust_ratio};
use super::{Numbers, Rule, Slot, Stepper};
use crate::tensor::Tensor;

/// Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, 2017, "Large Batch Training of Convolutional Networks"):
/// momentum with a rate for every parameter that makes its step a fixed part of its norm.
///
/// ```text
/// λ = trust_coefficient · ‖w‖ / (‖g‖ + weight_decay · ‖w‖ + eps)      1 where ‖w‖ or ‖g‖ is 0
/// v ← momentum · v + lr · λ · (g + weight_decay · w)
/// w ← w − v
/// ```
///
/// As in the paper the learning rate is part of the velocity: a change of the rate does not change what is still to
/// come of earlier steps.
pub type Lars = Stepper<LarsOptions>;

/// Options of [`Lars`].
#[derive(Clone, Debug, PartialEq)]
pub struct LarsOptions {
    /// Learning rate.
    pub lr: f64,
    /// How much of the last direction is kept.
    pub momentum: f64,
    /// Pulls toward zero: added to the gradient, times the parameter.
    pub weight_decay: f64,
    /// Norm of a step over the norm of its parameter, at a rate of 1 and without momentum: η of the paper.
    pub trust_coefficient: f64,
    /// Added to the denominator of the local rate.
    pub eps: f64,
    /// Parameters with fewer than two dimensions (biases, scales and shifts of norms) take plain steps with momentum:
    /// λ = 1, and no decay.
    pub exclude_vectors: bool,
}

impl Default for LarsOptions {
    fn default() -> Self {
        LarsOptions {
            lr: 1.0,
            momentum: 0.9,
            weight_decay: 1e-4,
            trust_coefficient: 1e-3,
            eps: 1e-8,
            exclude_vectors: true,
        }
    }
}

impl LarsOptions {
    /// lr · λ · (g + weight_decay · w)
    fn direction(&self, n: &mut Numbers, p: &Tensor, g: &Tensor) -> Tensor {
        if self.exclude_vectors && p.rank() < 2 {
            return g * n.get("lr", self.lr);
        }
        let (weight, gradient) = (norm(p), norm(g));
        let decay = n.wide("weight decay", self.weight_decay);
        let denominator = &gradient + &weight * decay + n.wide("eps", self.eps);
        let ratio = &weight * n.wide("trust coefficient", self.trust_coefficient) / denominator;
        let local = trust_ratio(&weight, &gradient, &ratio, &n.wide("one", 1.0));
        let rate = (local * n.wide("lr", self.lr)).to_dtype(p.dtype());
        match self.weight_decay {
            0.0 => g * rate,
            decay => (g + p * n.get("weight decay", decay)) * rate,
        }
    }
}

impl Rule for LarsOptions {
    const NAME: &'static str = "lars";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn slots(&self) -> Vec<Slot> {
        if self.momentum == 0.0 { Vec::new() } else { vec![Slot { name: "momentum", initial: 0.0 }] }
    }

    fn update(&self, n: &mut Numbers, p: &Tensor, gradient: &Tensor, slots: &mut [Tensor]) -> Tensor {
        let direction = self.direction(n, p, gradient);
        match slots {
            [velocity] => {
                *velocity = &*velocity * n.get("momentum", self.momentum) + direction;
                p - &*velocity
            }
            _ => p - direction,
        }
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.lr >= 0.0, "a learning rate is at least 0, not {}", self.lr);
        assert!(self.momentum >= 0.0, "a momentum is at least 0, not {}", self.momentum);
        assert!(self.weight_decay >= 0.0, "a weight decay is at least 0, not {}", self.weight_decay);
        assert!(self.trust_coefficient > 0.0, "a trust coefficient is above 0, not {}", self.trust_coefficient);
        assert!(self.eps >= 0.0, "eps is at least 0, not {}", self.eps);
    }
}
