//! Adam, and Adam with decoupled weight decay.

use super::moments::{Moments, SLOTS};
use super::{Numbers, Rule, Slot, Stepper};
use crate::tensor::Tensor;

/// Adam (Kingma and Ba, 2015). Weight decay is added to the gradient; see [`AdamW`] for the decoupled one.
pub type Adam = Stepper<AdamOptions>;

/// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
pub type AdamW = Stepper<AdamWOptions>;

/// Options of [`Adam`].
#[derive(Clone, Debug, PartialEq)]
pub struct AdamOptions {
    /// Learning rate.
    pub lr: f64,
    /// How much of the running means of gradient and squared gradient is kept in a step.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// Pulls toward zero: added to the gradient, times the parameter.
    pub weight_decay: f64,
}

impl Default for AdamOptions {
    fn default() -> Self {
        AdamOptions { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 0.0 }
    }
}

/// Options of [`AdamW`].
#[derive(Clone, Debug, PartialEq)]
pub struct AdamWOptions {
    /// Learning rate.
    pub lr: f64,
    /// How much of the running means of gradient and squared gradient is kept in a step.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
    /// A step shrinks the parameter by the factor 1 − lr · weight_decay.
    pub weight_decay: f64,
}

impl Default for AdamWOptions {
    fn default() -> Self {
        AdamWOptions { lr: 1e-3, betas: (0.9, 0.999), eps: 1e-8, weight_decay: 1e-2 }
    }
}

impl AdamOptions {
    fn moments(&self) -> Moments {
        Moments { betas: self.betas, eps: self.eps }
    }
}

impl AdamWOptions {
    fn moments(&self) -> Moments {
        Moments { betas: self.betas, eps: self.eps }
    }
}

impl Rule for AdamOptions {
    const NAME: &'static str = "adam";

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
        if self.weight_decay == 0.0 {
            return p + self.moments().direction(n, ("-step size", -self.lr), g, slots);
        }
        let g = g + p * n.get("weight decay", self.weight_decay);
        p + self.moments().direction(n, ("-step size", -self.lr), &g, slots)
    }

    #[track_caller]
    fn check(&self) {
        self.moments().check(self.lr, self.weight_decay);
    }
}

impl Rule for AdamWOptions {
    const NAME: &'static str = "adamw";

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
        let p = p * n.get("shrink", 1.0 - self.lr * self.weight_decay);
        p + self.moments().direction(n, ("-step size", -self.lr), g, slots)
    }

    #[track_caller]
    fn check(&self) {
        self.moments().check(self.lr, self.weight_decay);
    }
}
