//! Weights averaged over the steps of a training.

use super::Optimizer;
use crate::nn::Parameter;
use crate::tensor::{Tensor, evaluate};

/// An exponential moving average of the weights (Polyak and Juditsky, 1992): after each step
/// `average · decay + weight · (1 − decay)`, in the order of PyTorch's `get_ema_avg_fn`; after the first step the weights
/// themselves, as `AveragedModel` begins. Steps that come to nothing are not averaged.
///
/// Averages are part of the optimizer's state: computed with its step, split on a mesh as it is, saved and resumed with it.
/// Buffers (running statistics) are not averaged: the averaged weights are used with those of the model.
///
/// ```
/// use meshwork::optim::{Ema, Sgd, SgdOptions, with_averaged};
/// use meshwork::prelude::*;
///
/// let model = Linear::new(2, 1);
/// model.init(0);
/// let mut optimizer = Sgd::new(&model, SgdOptions::new(0.1));
/// optimizer.average(Ema { decay: 0.9, warmup: false });
/// let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[2, 2]);
/// for _ in 0..10 {
///     let loss = model.forward(&x).square().mean(..);
///     optimizer.step(model.gradients(&loss));
/// }
/// let averaged = with_averaged(&optimizer, || model.forward(&x).to_vec::<f32>()).unwrap();
/// assert_ne!(averaged, model.forward(&x).to_vec::<f32>());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ema {
    /// How much of the average is kept in a step, at least 0 and below 1.
    pub decay: f64,
    /// Whether the decay is at most (1 + n) / (10 + n) after n averaged steps, so that the first averages follow the weights
    /// closely (as TensorFlow's `ExponentialMovingAverage` with `num_updates`).
    pub warmup: bool,
}

impl Ema {
    /// The decay of a step, of which so many were averaged before.
    pub fn decay_after(&self, averaged: u64) -> f64 {
        let steps = averaged as f64;
        match (averaged, self.warmup) {
            (0, _) => 0.0,
            (_, true) => self.decay.min((1.0 + steps) / (10.0 + steps)),
            (_, false) => self.decay,
        }
    }

    #[track_caller]
    pub(super) fn check(&self) {
        assert!((0.0..1.0).contains(&self.decay), "the decay of an average is in 0..1, not {}", self.decay);
    }
}

/// Runs `body` with the averaged weights in the place of the weights; `None` where the optimizer keeps no averages.
pub fn with_averaged<R>(optimizer: &dyn Optimizer, body: impl FnOnce() -> R) -> Option<R> {
    struct Restore(Vec<(Parameter, Tensor)>);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.drain(..).for_each(|(parameter, weights)| parameter.set(weights));
            evaluate(None);
        }
    }
    let averaged = optimizer.averaged()?;
    let _restore = Restore(averaged.iter().map(|(parameter, _)| (parameter.clone(), parameter.value())).collect());
    averaged.into_iter().for_each(|(parameter, average)| parameter.set(average));
    Some(body())
}
