//! Adagrad.

use super::{Numbers, Rule, Slot, Stepper};
use crate::tensor::Tensor;

/// Adagrad (Duchi, Hazan and Singer, 2011).
pub type Adagrad = Stepper<AdagradOptions>;

/// Options of [`Adagrad`].
#[derive(Clone, Debug, PartialEq)]
pub struct AdagradOptions {
    /// Learning rate.
    pub lr: f64,
    /// In step t, from 0, the rate is lr / (1 + t · lr_decay).
    pub lr_decay: f64,
    /// Pulls toward zero: added to the gradient, times the parameter.
    pub weight_decay: f64,
    /// What the sums of squares begin with.
    pub initial_accumulator_value: f64,
    /// Added to the denominator.
    pub eps: f64,
}

impl Default for AdagradOptions {
    fn default() -> Self {
        AdagradOptions { lr: 1e-2, lr_decay: 0.0, weight_decay: 0.0, initial_accumulator_value: 0.0, eps: 1e-10 }
    }
}

impl Rule for AdagradOptions {
    const NAME: &'static str = "adagrad";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn slots(&self) -> Vec<Slot> {
        vec![Slot { name: "sum", initial: self.initial_accumulator_value }]
    }

    fn update(&self, n: &mut Numbers, p: &Tensor, gradient: &Tensor, slots: &mut [Tensor]) -> Tensor {
        let [sum] = slots else { unreachable!("one slot") };
        let mut g = gradient.clone();
        if self.weight_decay != 0.0 {
            g = g + p * n.get("weight decay", self.weight_decay);
        }
        *sum = &*sum + g.square();
        let lr = self.lr / (1.0 + (n.step() - 1) as f64 * self.lr_decay);
        let denominator = sum.sqrt() + n.get("eps", self.eps);
        p + g * n.get("-lr", -lr) / denominator
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.lr >= 0.0, "a learning rate is at least 0, not {}", self.lr);
        assert!(self.lr_decay >= 0.0, "lr_decay is at least 0, not {}", self.lr_decay);
        assert!(self.eps >= 0.0, "eps is at least 0, not {}", self.eps);
        assert!(self.weight_decay >= 0.0, "a weight decay is at least 0, not {}", self.weight_decay);
        let start = self.initial_accumulator_value;
        assert!(start >= 0.0, "initial_accumulator_value is at least 0, not {start}");
    }
}
