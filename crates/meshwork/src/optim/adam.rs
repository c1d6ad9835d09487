//! Adam, and Adam with decoupled weight decay.

use super::rule::lerp;
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

/// What both have in common.
struct Moments {
    lr: f64,
    betas: (f64, f64),
    eps: f64,
}

const SLOTS: [Slot; 2] = [Slot { name: "exp_avg", initial: 0.0 }, Slot { name: "exp_avg_sq", initial: 0.0 }];

impl Moments {
    fn update(&self, n: &mut Numbers, p: &Tensor, g: &Tensor, slots: &mut [Tensor]) -> Tensor {
        let [mean, square] = slots else { unreachable!("two slots") };
        let (beta1, beta2) = self.betas;
        *mean = lerp(n, ("1-beta1", "beta1"), mean, g, 1.0 - beta1);
        *square = &*square * n.get("beta2", beta2) + g * n.get("1-beta2", 1.0 - beta2) * g;

        let step = n.step() as f64;
        let (correction1, correction2) = (1.0 - libm::pow(beta1, step), 1.0 - libm::pow(beta2, step));
        let root = square.sqrt() / n.get("root of the correction", correction2.sqrt());
        let denominator = root + n.get("eps", self.eps);
        p + &*mean * n.get("-step size", -self.lr / correction1) / denominator
    }

    #[track_caller]
    fn check(&self, weight_decay: f64) {
        assert!(self.lr >= 0.0, "a learning rate is at least 0, not {}", self.lr);
        let (beta1, beta2) = self.betas;
        let inside = (0.0..1.0).contains(&beta1) && (0.0..1.0).contains(&beta2);
        assert!(inside, "betas are in 0..1, not {:?}", self.betas);
        assert!(self.eps >= 0.0, "eps is at least 0, not {}", self.eps);
        assert!(weight_decay >= 0.0, "a weight decay is at least 0, not {weight_decay}");
    }
}

impl AdamOptions {
    fn moments(&self) -> Moments {
        Moments { lr: self.lr, betas: self.betas, eps: self.eps }
    }
}

impl AdamWOptions {
    fn moments(&self) -> Moments {
        Moments { lr: self.lr, betas: self.betas, eps: self.eps }
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
            return self.moments().update(n, p, g, slots);
        }
        let g = g + p * n.get("weight decay", self.weight_decay);
        self.moments().update(n, p, &g, slots)
    }

    #[track_caller]
    fn check(&self) {
        self.moments().check(self.weight_decay);
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
        self.moments().update(n, &p, g, slots)
    }

    #[track_caller]
    fn check(&self) {
        self.moments().check(self.weight_decay);
    }
}
