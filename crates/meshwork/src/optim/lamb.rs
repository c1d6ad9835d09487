//! LAMB: Adam's direction, as long as a layer can bear.

use super::moments::{Moments, SLOTS};
use super::norm::{norm, trust_ratio};
use super::{Numbers, Rule, Slot, Stepper};
use crate::tensor::Tensor;

/// Layer-wise adaptive moments for large batches (You et al., 2020, "Large Batch Optimization for Deep Learning:
/// Training BERT in 76 Minutes"): Adam's direction with decoupled weight decay, scaled for every parameter by the ratio
/// of its norm to the direction's.
///
/// ```text
/// m ← β₁ · m + (1 − β₁) · g         v ← β₂ · v + (1 − β₂) · g²
/// r = (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + eps) + weight_decay · w
/// w ← w − lr · clip(‖w‖ / ‖r‖) · r                            the factor is 1 where ‖w‖ or ‖r‖ is 0
/// ```
pub type Lamb = Stepper<LambOptions>;

/// Options of [`Lamb`].
#[derive(Clone, Debug, PartialEq)]
pub struct LambOptions {
    /// Learning rate.
    pub lr: f64,
    /// How much of the running means of gradient and squared gradient is kept in a step.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Pulls toward zero: added to Adam's direction, times the parameter.
    pub weight_decay: f64,
    /// The lowest and the highest trust ratio ‖w‖ / ‖r‖; by default all are taken as they are.
    pub trust_bounds: (f64, f64),
    /// Parameters with fewer than two dimensions (biases, scales and shifts of norms) take Adam's steps: a trust ratio
    /// of 1, and no decay.
    pub exclude_vectors: bool,
}

impl Default for LambOptions {
    fn default() -> Self {
        LambOptions {
            lr: 1e-3,
            betas: (0.9, 0.999),
            eps: 1e-6,
            weight_decay: 1e-2,
            trust_bounds: (0.0, f64::INFINITY),
            exclude_vectors: true,
        }
    }
}

impl LambOptions {
    fn moments(&self) -> Moments {
        Moments { betas: self.betas, eps: self.eps }
    }
}

impl Rule for LambOptions {
    const NAME: &'static str = "lamb";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn slots(&self) -> Vec<Slot> {
        SLOTS.to_vec()
    }

    fn update(&self, n: &mut Numbers, p: &Tensor, g: &Tensor, slots: &mut [Tensor]) -> Tensor {
        if self.exclude_vectors && p.rank() < 2 {
            return p + self.moments().direction(n, ("-step size", -self.lr), g, slots);
        }
        let mut direction = self.moments().direction(n, ("1 over the correction", 1.0), g, slots);
        if self.weight_decay != 0.0 {
            direction = direction + p * n.get("weight decay", self.weight_decay);
        }
        let (weight, update) = (norm(p), norm(&direction));
        let (lowest, highest) = self.trust_bounds;
        let bounds = (n.wide("lowest ratio", lowest), n.wide("highest ratio", highest));
        let ratio = (&weight / &update).maximum(bounds.0).minimum(bounds.1);
        let trust = trust_ratio(&weight, &update, &ratio, &n.wide("one", 1.0));
        p + direction * (trust * n.wide("-lr", -self.lr)).to_dtype(p.dtype())
    }

    #[track_caller]
    fn check(&self) {
        self.moments().check(self.lr, self.weight_decay);
        let (lowest, highest) = self.trust_bounds;
        let bounds = 0.0 <= lowest && lowest <= highest && highest > 0.0;
        assert!(bounds, "bounds of trust ratios are at least 0 and in order, not {:?}", self.trust_bounds);
    }
}
