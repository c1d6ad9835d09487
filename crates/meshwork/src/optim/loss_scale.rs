//! Losses that are scaled, so that small gradients do not vanish in f16 (Micikevicius et al., 2018).

use super::Gradients;
use crate::tensor::{Tensor, no_grad, random_step, set_random_step};
use serde::{Deserialize, Serialize};

/// How a [`LossScale`] changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaleOptions {
    /// The first scale. A power of two changes no bit of gradients that are neither too large nor too small.
    pub initial: f64,
    /// Factor after every `interval` steps without an overflow.
    pub growth: f64,
    /// Factor after an overflow.
    pub backoff: f64,
    /// Steps without an overflow, one after the other, until the scale grows.
    pub interval: u64,
    /// The scale is never smaller.
    pub minimum: f64,
}

impl Default for LossScaleOptions {
    fn default() -> Self {
        LossScaleOptions { initial: 65536.0, growth: 2.0, backoff: 0.5, interval: 2000, minimum: 1.0 }
    }
}

/// What is saved of a [`LossScale`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScaleState {
    /// The scale of the next step.
    pub scale: f64,
    /// Steps since it changed.
    pub good_steps: u64,
    /// Steps that were skipped since the beginning.
    pub skipped: u64,
}

/// A factor of the loss that is as large as gradients in f16 can bear, found by trial: what PyTorch calls `GradScaler`.
///
/// ```
/// use meshwork::optim::{LossScale, LossScaleOptions};
/// use meshwork::prelude::*;
/// use meshwork::tensor::{Precision, autocast, randn};
///
/// let model = Linear::new(4, 1);
/// model.init(0);
/// let mut optimizer = optim::Sgd::new(&model, optim::SgdOptions::new(0.1));
/// let mut scale = LossScale::new(LossScaleOptions::default());
/// for _ in 0..3 {
///     let loss = autocast(Precision::F16, || model.forward(&randn(&[8, 4])).square().mean(..));
///     let mut gradients = model.gradients(&scale.scaled(&loss));
///     if scale.unscale(&mut gradients) {
///         gradients.clip_by_global_norm(1.0);
///         optimizer.step(gradients);
///     }
/// }
/// assert_eq!(optimizer.steps() + scale.state().skipped, 3);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LossScale {
    options: LossScaleOptions,
    state: LossScaleState,
}

impl LossScale {
    /// A scale at its beginning.
    ///
    /// # Panics
    /// When the options make no sense.
    #[track_caller]
    pub fn new(options: LossScaleOptions) -> LossScale {
        let LossScaleOptions { initial, growth, backoff, interval, minimum } = options;
        assert!(minimum > 0.0, "the smallest loss scale is above 0, not {minimum}");
        assert!(initial >= minimum && initial.is_finite(), "a loss scale is at least {minimum}, not {initial}");
        assert!(growth >= 1.0, "a loss scale grows by a factor of at least 1, not {growth}");
        assert!(backoff > 0.0 && backoff < 1.0, "a loss scale backs off by a factor between 0 and 1, not {backoff}");
        assert!(interval > 0, "a loss scale grows after at least one step");
        LossScale { options, state: LossScaleState { scale: initial, good_steps: 0, skipped: 0 } }
    }

    /// The scale of the next step.
    pub fn scale(&self) -> f64 {
        self.state.scale
    }

    /// Everything that the next steps depend on besides the options.
    pub fn state(&self) -> LossScaleState {
        self.state
    }

    /// Continues from a state.
    pub fn load_state(&mut self, state: LossScaleState) {
        self.state = state;
    }

    /// The loss times the scale, to take gradients of.
    #[track_caller]
    pub fn scaled(&self, loss: &Tensor) -> Tensor {
        loss * self.state.scale
    }

    /// Divides gradients of the [scaled](Self::scaled) loss by the scale, and says whether all are finite, and small enough to
    /// be squared. If not, the step must be skipped: it counts as skipped, the scale is smaller from now on, and dropout goes on
    /// to its next masks.
    ///
    /// Waits until the gradients are computed. All ranks of a mesh find the same.
    pub fn unscale(&mut self, gradients: &mut Gradients) -> bool {
        gradients.keep_beside_state();
        gradients.scale(1.0 / self.state.scale);
        let is_finite = gradients.largest_square().item().is_finite();
        self.decide(is_finite);
        if !is_finite {
            no_grad(|| set_random_step(random_step() + 1));
        }
        is_finite
    }

    fn decide(&mut self, is_finite: bool) {
        let LossScaleOptions { growth, backoff, interval, minimum, .. } = self.options;
        let LossScaleState { scale, good_steps, skipped } = &mut self.state;
        if !is_finite {
            *scale = (*scale * backoff).max(minimum);
            *good_steps = 0;
            *skipped += 1;
            return;
        }
        *good_steps += 1;
        if *good_steps == interval {
            *scale *= growth;
            *good_steps = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_grows_after_good_steps_and_backs_off_at_an_overflow() {
        let options = LossScaleOptions { initial: 8.0, interval: 3, minimum: 2.0, ..LossScaleOptions::default() };
        let mut scale = LossScale::new(options);
        let steps = [true, true, true, true, false, true, true, true, false, false, false, false];
        let scales: Vec<f64> = steps
            .into_iter()
            .map(|is_finite| {
                scale.decide(is_finite);
                scale.scale()
            })
            .collect();
        assert_eq!(scales, [8.0, 8.0, 16.0, 16.0, 8.0, 8.0, 8.0, 16.0, 8.0, 4.0, 2.0, 2.0]);
        assert_eq!(scale.state(), LossScaleState { scale: 2.0, good_steps: 0, skipped: 5 });
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        let said = |change: fn(&mut LossScaleOptions)| {
            let mut options = LossScaleOptions::default();
            change(&mut options);
            let panic = std::panic::catch_unwind(|| LossScale::new(options)).unwrap_err();
            panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()))
        };
        let expect = |change, text: &str| assert_eq!(said(change).as_deref(), Some(text));
        expect(|o| o.minimum = 0.0, "the smallest loss scale is above 0, not 0");
        expect(|o| o.initial = 0.5, "a loss scale is at least 1, not 0.5");
        expect(|o| o.growth = 0.5, "a loss scale grows by a factor of at least 1, not 0.5");
        expect(|o| o.backoff = 1.0, "a loss scale backs off by a factor between 0 and 1, not 1");
        expect(|o| o.interval = 0, "a loss scale grows after at least one step");
    }
}
