//! Stochastic gradient descent.

use super::{Numbers, Rule, Slot, Stepper};
use crate::tensor::Tensor;

/// Stochastic gradient descent with momentum (Polyak, 1964; Sutskever et al., 2013).
pub type Sgd = Stepper<SgdOptions>;

/// Options of [`Sgd`].
#[derive(Clone, Debug, PartialEq)]
pub struct SgdOptions {
    /// Learning rate.
    pub lr: f64,
    /// How much of the last direction is kept.
    pub momentum: f64,
    /// Part of the gradient that the direction does not take up.
    pub dampening: f64,
    /// Looks ahead along the new direction (Nesterov, 1983).
    pub nesterov: bool,
    /// Pulls toward zero: added to the gradient, times the parameter.
    pub weight_decay: f64,
}

impl Default for SgdOptions {
    fn default() -> Self {
        SgdOptions { lr: 1e-3, momentum: 0.0, dampening: 0.0, nesterov: false, weight_decay: 0.0 }
    }
}

impl SgdOptions {
    /// Plain gradient descent.
    pub fn new(lr: f64) -> SgdOptions {
        SgdOptions { lr, ..SgdOptions::default() }
    }
}

impl Rule for SgdOptions {
    const NAME: &'static str = "sgd";

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
        let mut g = gradient.clone();
        if self.weight_decay != 0.0 {
            g = g + p * n.get("weight decay", self.weight_decay);
        }
        if let [velocity] = slots {
            let momentum = n.get("momentum", self.momentum);
            // The first direction is the whole gradient, whatever the dampening.
            let taken = n.get("taken", if n.step() == 1 { 1.0 } else { 1.0 - self.dampening });
            *velocity = &*velocity * &momentum + &g * taken;
            g = if self.nesterov { g + &*velocity * momentum } else { velocity.clone() };
        }
        p + g * n.get("-lr", -self.lr)
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.lr >= 0.0, "a learning rate is at least 0, not {}", self.lr);
        assert!(self.momentum >= 0.0, "a momentum is at least 0, not {}", self.momentum);
        assert!(self.weight_decay >= 0.0, "a weight decay is at least 0, not {}", self.weight_decay);
        let fits = !self.nesterov || (self.momentum > 0.0 && self.dampening == 0.0);
        assert!(fits, "Nesterov's momentum needs a momentum and no dampening");
    }
}
