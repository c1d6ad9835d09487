//! What there is to know of a run, of each of its steps and of each of its epochs.

use meshwork::train::{EpochDone, Evaluation, StepDone};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A run begins, or goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunLine {
    /// Steps done before.
    pub step: u64,
    /// What is trained, how, and on what.
    pub run: Run,
}

/// What is trained, how, and on what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Version of the program.
    pub version: String,
    /// Seconds since 1970 at which the run began.
    pub time: u64,
    pub model: String,
    pub parameters: usize,
    /// The data, in words.
    pub data: String,
    /// Steps of the whole run, where it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// The settings under the names of their flags.
    pub settings: BTreeMap<String, String>,
    /// Axes of the mesh and stage of ZeRO; none on one device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The devices, in words.
    pub devices: String,
    /// What each device of a mesh has between steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<DeviceMemory>,
    pub processor: String,
    pub cores: usize,
    pub simd: String,
    /// Fused multiply-adds of f32 in registers that all threads together do, in GFLOP/s, measured before the first step.
    pub peak_gflops: f64,
}

/// What a device has between steps, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    pub device: String,
    pub parameters: usize,
    pub gradients: usize,
    pub optimizer_state: usize,
}

/// A step is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepLine {
    /// From 1 over the whole run.
    pub step: u64,
    pub epoch: u64,
    /// Mean loss before the update; none if it is not finite.
    pub loss: Option<f32>,
    pub lr: f64,
    /// Global norm of the gradients before clipping; none if it is not finite.
    pub gradient_norm: Option<f64>,
    /// Factor of the loss, in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// Gradients were too large for it, and there was no update.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    pub samples: usize,
    /// Since the step before; the first one compiles.
    pub seconds: f64,
    pub samples_per_second: f64,
    /// Of language models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// 10¹² floating-point operations a second.
    pub tflops: f64,
    /// Share of the measured peak, from 0 to 1 (model FLOPs utilisation; with recomputation that of hardware FLOPs: Chowdhery et
    /// al., 2022).
    pub mfu: f64,
    /// The most bytes in use so far, on all devices together.
    pub peak_memory: usize,
}

/// The test set has been gone through: after an epoch, and at the end of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ValidationLine {
    /// Steps done.
    pub step: u64,
    /// Epochs done, where one ends here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Mean loss of the epoch's samples; none if it is not finite, or no epoch ends here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub train_loss: Option<f64>,
    /// Mean loss on the test set; none if it is not finite.
    pub validation_loss: Option<f64>,
    /// Part of the test set that is classified correctly.
    pub validation_accuracy: f64,
    /// Mean loss with averaged weights; none also if it is not finite.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema_validation_loss: Option<f64>,
    /// Part that is classified correctly with averaged weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ema_validation_accuracy: Option<f64>,
}

/// What samples and operations are measured by.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Tokens of a sample.
    pub tokens: Option<usize>,
    /// Floating-point operations a second that the processor does at most.
    pub peak: f64,
}

impl Scale {
    pub fn step(&self, done: &StepDone) -> StepLine {
        let seconds = done.seconds();
        let cost = done.cost.expect("metrics are asked for");
        let speed = cost.flops as f64 / seconds;
        StepLine {
            step: done.step,
            epoch: done.epoch,
            loss: Some(done.loss).filter(|loss| loss.is_finite()),
            lr: done.lr,
            gradient_norm: done.gradient_norm.filter(|norm| norm.is_finite()),
            loss_scale: done.loss_scale.map(|scaled| scaled.scale),
            skipped: done.loss_scale.is_some_and(|scaled| scaled.is_skipped),
            samples: done.samples,
            seconds: rounded(seconds),
            samples_per_second: rounded(done.samples_per_second),
            tokens_per_second: self.tokens.map(|tokens| rounded(done.samples_per_second * tokens as f64)),
            tflops: rounded(speed / 1e12),
            mfu: rounded(speed / self.peak),
            peak_memory: cost.peak_memory,
        }
    }
}

impl ValidationLine {
    /// An epoch is done.
    pub fn of_epoch(done: &EpochDone) -> ValidationLine {
        let line = ValidationLine::at(done.step, &done.test, done.averaged.as_ref());
        ValidationLine { epoch: Some(done.epoch), train_loss: finite(done.train_loss), ..line }
    }

    /// After so many steps, with the weights themselves and, if there are any, with the averaged ones.
    pub fn at(step: u64, test: &Evaluation, averaged: Option<&Evaluation>) -> ValidationLine {
        ValidationLine {
            step,
            epoch: None,
            train_loss: None,
            validation_loss: finite(test.loss),
            validation_accuracy: test.accuracy,
            ema_validation_loss: averaged.and_then(|averaged| finite(averaged.loss)),
            ema_validation_accuracy: averaged.map(|averaged| averaged.accuracy),
        }
    }
}

fn finite(loss: f64) -> Option<f64> {
    Some(loss).filter(|loss| loss.is_finite())
}

/// Six digits, which is more than a measurement knows.
pub fn rounded(measured: f64) -> f64 {
    format!("{measured:.5e}").parse().expect("a number that was just written")
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwork::train::{StepCost, StepScale};

    #[test]
    fn speeds_follow_from_time_and_work() {
        let done = StepDone {
            step: 7,
            epoch: 2,
            loss: f32::NAN,
            lr: 0.1,
            samples: 8,
            samples_per_second: 16.0,
            gradient_norm: Some(f64::INFINITY),
            loss_scale: Some(StepScale { scale: 8.0, is_skipped: true }),
            cost: Some(StepCost { flops: 3_000_000_000, peak_memory: 99 }),
        };
        let line = Scale { tokens: Some(128), peak: 24e9 }.step(&done);
        assert_eq!((line.loss, line.gradient_norm, line.seconds), (None, None, 0.5));
        assert_eq!((line.loss_scale, line.skipped), (Some(8.0), true));
        assert_eq!((line.tokens_per_second, line.tflops, line.mfu), (Some(2048.0), 0.006, 0.25));
        assert_eq!([1.0 / 3.0, 123_456_789.0, 0.0].map(rounded), [0.333333, 123_457_000.0, 0.0]);
    }
}
