//! Running means of the gradient and of its square: what Adam and its relatives have in common.

use super::rule::lerp;
use super::{Numbers, Slot};
use crate::tensor::Tensor;

/// What is kept for every parameter.
pub(super) const SLOTS: [Slot; 2] = [Slot { name: "exp_avg", initial: 0.0 }, Slot { name: "exp_avg_sq", initial: 0.0 }];

/// How the means are kept and used.
pub(super) struct Moments {
    /// How much of the two means is kept in a step.
    pub betas: (f64, f64),
    /// Added to the denominator.
    pub eps: f64,
}

impl Moments {
    /// Takes up a gradient, and gives the corrected mean over the root of the corrected mean square, times a scale.
    /// The scale comes with the name of its number.
    pub fn direction(
        &self,
        n: &mut Numbers,
        (name, scale): (&'static str, f64),
        g: &Tensor,
        slots: &mut [Tensor],
    ) -> Tensor {
        let [mean, square] = slots else { unreachable!("two slots") };
        let (beta1, beta2) = self.betas;
        *mean = lerp(n, ("1-beta1", "beta1"), mean, g, 1.0 - beta1);
        *square = &*square * n.get("beta2", beta2) + g * n.get("1-beta2", 1.0 - beta2) * g;

        let step = n.step() as f64;
        let (correction1, correction2) = (1.0 - libm::pow(beta1, step), 1.0 - libm::pow(beta2, step));
        let root = square.sqrt() / n.get("root of the correction", correction2.sqrt());
        let denominator = root + n.get("eps", self.eps);
        &*mean * n.get(name, scale / correction1) / denominator
    }

    #[track_caller]
    pub fn check(&self, lr: f64, weight_decay: f64) {
        assert!(lr >= 0.0, "a learning rate is at least 0, not {lr}");
        let (beta1, beta2) = self.betas;
        let inside = (0.0..1.0).contains(&beta1) && (0.0..1.0).contains(&beta2);
        assert!(inside, "betas are in 0..1, not {:?}", self.betas);
        assert!(self.eps >= 0.0, "eps is at least 0, not {}", self.eps);
        assert!(weight_decay >= 0.0, "a weight decay is at least 0, not {weight_decay}");
    }
}
