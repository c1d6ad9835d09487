//! Learning rates for batches of another size than the one that they were found with.

use super::{Linear, Schedule};

/// How a learning rate grows with the number of samples in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LrScaling {
    /// Not at all.
    #[default]
    None,
    /// As the batch: k batches of n samples, one after the other, move the weights about as far as one batch of k · n
    /// (Goyal et al., 2017, "Accurate, Large Minibatch SGD").
    Linear,
    /// As the root of the batch, which keeps the variance of a step (Krizhevsky, 2014, "One weird trick for
    /// parallelizing convolutional neural networks").
    Sqrt,
}

impl LrScaling {
    /// What a rate for batches of `base_batch` samples is multiplied by for batches of `batch`. Both are at least 1.
    pub fn factor(self, batch: u64, base_batch: u64) -> f64 {
        let times = batch as f64 / base_batch.max(1) as f64;
        match self {
            LrScaling::None => 1.0,
            LrScaling::Linear => times,
            LrScaling::Sqrt => times.sqrt(),
        }
    }
}

/// Another schedule, made for batches of `base_batch` samples, for batches of `batch`: a straight line from its first
/// rate to that rate scaled (the gradual warm-up of Goyal et al., 2017), then all of its rates scaled, from its step 0.
///
/// ```
/// use meshwork::optim::{BatchScaling, Constant, LrScaling, Schedule};
///
/// let then = Constant { lr: 0.1 };
/// let schedule = BatchScaling { scaling: LrScaling::Linear, batch: 1024, base_batch: 256, warmup: 300, then };
/// assert_eq!([0, 100, 300, 1000].map(|step| schedule.lr(step)), [0.1, 0.2, 0.4, 0.4]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchScaling<S> {
    /// The rule.
    pub scaling: LrScaling,
    /// Samples of a batch, over all devices, at least 1.
    pub batch: u64,
    /// Samples of a batch for which the rates of the other schedule are right, at least 1.
    pub base_batch: u64,
    /// Steps of the line.
    pub warmup: u64,
    /// The schedule for batches of `base_batch`.
    pub then: S,
}

impl<S: Schedule> Schedule for BatchScaling<S> {
    fn lr(&self, step: u64) -> f64 {
        let factor = self.scaling.factor(self.batch, self.base_batch);
        if step >= self.warmup {
            return factor * self.then.lr(step - self.warmup);
        }
        Linear { lr: self.then.lr(0), start_factor: 1.0, end_factor: factor, total_steps: self.warmup }.lr(step)
    }
}
