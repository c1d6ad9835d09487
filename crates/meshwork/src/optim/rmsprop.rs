//! RMSprop.

use super::rule::lerp;
use super::{Numbers, Rule, Slot, Stepper};
use crate::tensor::Tensor;

/// RMSprop (Tieleman and Hinton, 2012), centered as in Graves (2013) if wanted.
pub type RmsProp = Stepper<RmsPropOptions>;

/// Options of [`RmsProp`].
#[derive(Clone, Debug, PartialEq)]
pub struct RmsPropOptions {
    /// Learning rate.
    pub lr: f64,
    /// How much of the running mean of squares is kept in a step.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Pulls toward zero: added to the gradient, times the parameter.
    pub weight_decay: f64,
    /// How much of the last direction is kept.
    pub momentum: f64,
    /// Divides by the deviation from the mean gradient instead of the root of the mean square.
    pub centered: bool,
}

impl Default for RmsPropOptions {
    fn default() -> Self {
        RmsPropOptions { lr: 1e-2, alpha: 0.99, eps: 1e-8, weight_decay: 0.0, momentum: 0.0, centered: false }
    }
}

impl Rule for RmsPropOptions {
    const NAME: &'static str = "rmsprop";

    fn lr(&self) -> f64 {
        self.lr
    }

    fn set_lr(&mut self, lr: f64) {
        self.lr = lr;
    }

    fn slots(&self) -> Vec<Slot> {
        let slot = |name| Slot { name, initial: 0.0 };
        let mut slots = vec![slot("square_avg")];
        slots.extend(self.centered.then(|| slot("grad_avg")));
        slots.extend((self.momentum > 0.0).then(|| slot("momentum")));
        slots
    }

    fn update(&self, n: &mut Numbers, p: &Tensor, gradient: &Tensor, slots: &mut [Tensor]) -> Tensor {
        let mut slots = slots.iter_mut();
        let mut slot = |wanted: bool| wanted.then(|| slots.next().expect("as many as asked for"));
        let (square, mean, direction) = (slot(true), slot(self.centered), slot(self.momentum > 0.0));
        let square = square.expect("always there");

        let mut g = gradient.clone();
        if self.weight_decay != 0.0 {
            g = g + p * n.get("weight decay", self.weight_decay);
        }
        *square = &*square * n.get("alpha", self.alpha) + &g * n.get("1-alpha", 1.0 - self.alpha) * &g;
        let variance = match mean {
            Some(mean) => {
                *mean = lerp(n, ("1-alpha", "alpha"), mean, &g, 1.0 - self.alpha);
                &*square - mean.square()
            }
            None => square.clone(),
        };
        let denominator = variance.sqrt() + n.get("eps", self.eps);
        match direction {
            Some(direction) => {
                *direction = &*direction * n.get("momentum", self.momentum) + g / denominator;
                p + &*direction * n.get("-lr", -self.lr)
            }
            None => p + g * n.get("-lr", -self.lr) / denominator,
        }
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.lr >= 0.0, "a learning rate is at least 0, not {}", self.lr);
        assert!(self.alpha >= 0.0, "alpha is at least 0, not {}", self.alpha);
        assert!(self.eps >= 0.0, "eps is at least 0, not {}", self.eps);
        assert!(self.momentum >= 0.0, "a momentum is at least 0, not {}", self.momentum);
        assert!(self.weight_decay >= 0.0, "a weight decay is at least 0, not {}", self.weight_decay);
    }
}
