//! What a trainer tells while it runs.

use super::Evaluation;
use crate::optim::LossScaleState;
use std::path::Path;

/// Something happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A step is done and its loss has been read, which happens while the next one is computed.
    Step(StepDone),
    /// An epoch is done and the test set has been gone through.
    Epoch(EpochDone),
    /// A checkpoint has been saved.
    Saved {
        /// Steps done.
        step: u64,
        /// The checkpoint's folder.
        folder: &'a Path,
    },
}

/// A step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepDone {
    /// Its number, from 1 over the whole run.
    pub step: u64,
    /// The number of its epoch, from 1.
    pub epoch: u64,
    /// Mean loss of its samples, before the update.
    pub loss: f32,
    /// Learning rate of its update.
    pub lr: f64,
    /// Number of its samples.
    pub samples: usize,
    /// Samples a second since the step before.
    pub samples_per_second: f64,
    /// The [global norm](crate::optim::Gradients::global_norm) of its gradients before clipping, where it is computed: with
    /// [`super::TrainSettings::max_norm`] or [`super::TrainSettings::metrics`].
    pub gradient_norm: Option<f64>,
    /// How its loss was scaled, in f16.
    pub loss_scale: Option<StepScale>,
    /// What it took, with [`super::TrainSettings::metrics`].
    pub cost: Option<StepCost>,
}

impl StepDone {
    /// Seconds since the step before.
    pub fn seconds(&self) -> f64 {
        self.samples as f64 / self.samples_per_second
    }
}

/// How the loss of a step was scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepScale {
    /// The factor.
    pub scale: f64,
    /// Gradients were too large for it: there was no update.
    pub is_skipped: bool,
}

/// What a step took of the devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepCost {
    /// Floating-point operations of its programs on all devices; what is computed twice counts twice.
    pub flops: u64,
    /// The most bytes that were in use so far, summed over the devices that the trainer knows of: those of the mesh, or the
    /// first one.
    pub peak_memory: usize,
}

/// An epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochDone {
    /// Its number, from 1.
    pub epoch: u64,
    /// Steps done since the beginning of the run.
    pub step: u64,
    /// Mean loss of its samples, each before the update of its step.
    pub train_loss: f64,
    /// How well the model does on the test set.
    pub test: Evaluation,
    /// The same with the averaged weights, with [`super::TrainSettings::ema`].
    pub averaged: Option<Evaluation>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Steps done since the beginning of the run.
    pub step: u64,
    /// How well the model does on the test set; `None` when the run was interrupted.
    pub test: Option<Evaluation>,
    /// Steps since the beginning of the run without an update, and the scale of the loss now; in f16.
    pub loss_scale: Option<LossScaleState>,
    /// The same with the averaged weights, with [`super::TrainSettings::ema`].
    pub averaged: Option<Evaluation>,
    /// Whether somebody set [`super::TrainSettings::stop`].
    pub interrupted: bool,
}
