//! Values that are read one step late, so that the device has the next step to compute in the meantime.

use super::StepDone;
use crate::Tensor;
use crate::optim::LossScaleState;
use meshwork_data::Position;
use std::time::Instant;

/// What a step computes and its report says.
pub struct Pending {
    /// The loss, f32 `[]`.
    pub loss: Tensor,
    /// The norm of the gradients, `[]`.
    pub gradient_norm: Option<Tensor>,
    /// Where the run stood before the step.
    pub start: Start,
}

/// What a step that comes to nothing goes back to.
#[derive(Clone, Copy)]
pub struct Start {
    /// In the data.
    pub position: Position,
    /// Of the loss, in f16.
    pub loss_scale: Option<LossScaleState>,
}

/// A step whose values have been read.
pub struct Settled {
    pub step: StepDone,
    /// Where the run stood before the step.
    pub start: Start,
}

/// The step whose values have not been read yet.
pub struct LateStep {
    waiting: Option<(Pending, StepDone)>,
    since: Instant,
}

impl LateStep {
    pub fn new() -> LateStep {
        LateStep { waiting: None, since: Instant::now() }
    }

    /// Takes a step that has just been handed over; gives the one before.
    pub fn exchange(&mut self, values: Pending, step: StepDone) -> Option<Settled> {
        let before = self.settle();
        self.waiting = Some((values, step));
        before
    }

    /// Waits for the last step.
    pub fn settle(&mut self) -> Option<Settled> {
        let (values, step) = self.waiting.take()?;
        let loss = values.loss.to_vec::<f32>()[0];
        let gradient_norm = values.gradient_norm.map(|norm| norm.item());
        let samples_per_second = step.samples as f64 / self.since.elapsed().as_secs_f64();
        self.since = Instant::now();
        let step = StepDone { loss, gradient_norm, samples_per_second, ..step };
        Some(Settled { step, start: values.start })
    }

    /// Leaves the time up to now out of the speed.
    pub fn restart_clock(&mut self) {
        self.since = Instant::now();
    }
}
