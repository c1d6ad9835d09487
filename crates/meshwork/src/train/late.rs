//! Losses that are read one step late, so that the device has the next step to compute in the meantime.

use super::StepDone;
use crate::Tensor;
use std::time::Instant;

/// The step whose loss has not been read yet.
pub struct LateLoss {
    waiting: Option<(Tensor, StepDone)>,
    since: Instant,
}

impl LateLoss {
    pub fn new() -> LateLoss {
        LateLoss { waiting: None, since: Instant::now() }
    }

    /// Takes a step that has just been handed over; gives the one before.
    pub fn exchange(&mut self, loss: Tensor, step: StepDone) -> Option<StepDone> {
        let before = self.settle();
        self.waiting = Some((loss, step));
        before
    }

    /// Waits for the last step.
    pub fn settle(&mut self) -> Option<StepDone> {
        let (loss, step) = self.waiting.take()?;
        let loss = loss.to_vec::<f32>()[0];
        let samples_per_second = step.samples as f64 / self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        Some(StepDone { loss, samples_per_second, ..step })
    }

    /// Leaves the time up to now out of the speed.
    pub fn restart_clock(&mut self) {
        self.since = Instant::now();
    }
}
