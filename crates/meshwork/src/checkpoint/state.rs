//! Where a training run stands, beside its tensors.

use crate::Tensor;
use crate::optim::{LossScaleState, OptimizerState};
use crate::tensor::Precision;
use meshwork_data::Position;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the files of a checkpoint that this program writes.
pub const FORMAT: u32 = 1;

/// Everything of a training run that is no tensor: with the weights and the optimizer's state, all that its
/// continuation depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainingState {
    /// The model's name.
    pub model: String,
    /// Steps done.
    pub step: u64,
    /// The next sample to be taken; its epoch is the number of finished epochs.
    pub position: Position,
    /// The seed of the run.
    pub seed: u64,
    /// What operations compute on.
    #[serde(default, skip_serializing_if = "is_f32")]
    pub precision: Precision,
    /// The scale of the loss, where it is scaled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScaleState>,
    /// The losses of the epoch at hand.
    pub epoch_loss: LossSum,
    /// The run's settings as text, for whoever resumes it.
    pub settings: BTreeMap<String, String>,
}

fn is_f32(precision: &Precision) -> bool {
    *precision == Precision::F32
}

/// What the state's file holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stored {
    pub run: TrainingState,
    pub optimizer: OptimizerNumbers,
}

/// An optimizer's state without its tensors.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OptimizerNumbers {
    kind: String,
    steps: u64,
    lrs: Vec<f64>,
    counts: Vec<(String, u64)>,
}

impl OptimizerNumbers {
    pub fn of(state: &OptimizerState) -> Self {
        let OptimizerState { kind, steps, lrs, counts, tensors: _ } = state.clone();
        OptimizerNumbers { kind, steps, lrs, counts }
    }

    pub fn with(self, tensors: Vec<(String, Tensor)>) -> OptimizerState {
        let OptimizerNumbers { kind, steps, lrs, counts } = self;
        OptimizerState { kind, steps, lrs, counts, tensors }
    }
}

/// Losses summed over samples, for the mean of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossSum {
    /// Σ mean loss of a batch · samples of the batch, in the order of steps.
    #[serde(with = "as_text")]
    pub sum: f64,
    /// Number of samples.
    pub samples: u64,
}

impl LossSum {
    /// Adds the mean loss of a batch.
    pub fn add(&mut self, loss: f32, samples: u64) {
        self.sum += f64::from(loss) * samples as f64;
        self.samples += samples;
    }

    /// The mean over all samples; NaN without any.
    pub fn mean(&self) -> f64 {
        self.sum / self.samples as f64
    }
}

/// Numbers as text that reads back to the same bits; JSON itself has no infinity.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not a number")))
    }
}
