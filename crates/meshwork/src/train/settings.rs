//! What a training run does, apart from model, optimizer, schedule and data.

use crate::checkpoint::Folder;
use crate::mesh::Mesh;
use crate::optim::{Ema, LossScaleOptions};
use crate::tensor::Precision;
use meshwork_data::Order;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Settings of a [`super::Trainer`].
#[derive(Clone, Debug)]
pub struct TrainSettings {
    /// The model's name in checkpoints. Default `model`.
    pub model: String,
    /// Samples of a batch; the last one of an epoch may have fewer. Default 64.
    pub batch_size: usize,
    /// The order of the samples. Default shuffled with seed 0.
    pub order: Order,
    /// When the run ends. Default after 10 epochs.
    pub length: Length,
    /// Gradients whose [global norm](crate::optim::Gradients::global_norm) is larger are scaled down to it. Default none.
    pub max_norm: Option<f64>,
    /// Averages the weights; the test set is gone through with both, and the averaged ones are saved, too. Does not change the
    /// weights themselves. Default not.
    pub ema: Option<Ema>,
    /// Whether a loss or gradients that are not finite end the run before their update, with
    /// [`TrainError::NonFinite`](super::TrainError::NonFinite). Does not change the result of other runs. Default yes.
    pub check_finite: bool,
    /// Whether each [`StepDone`](super::StepDone) says what the step took, and the norm of its gradients, which is computed for
    /// that if nothing else needs it. Does not change the result. Default no.
    pub metrics: bool,
    /// What operations that gain from it compute on, in training and evaluation ([`autocast`](crate::tensor::autocast)); with
    /// f16 the loss is [scaled](crate::optim::LossScale). Default f32.
    pub precision: Precision,
    /// How the loss is scaled in f16.
    pub loss_scale: LossScaleOptions,
    /// The seed, for checkpoints: the model is initialised by whoever makes it. Default 0.
    pub seed: u64,
    /// Where and how often to save. Default not at all.
    pub saving: Option<Saving>,
    /// Samples of a batch of the test set. Does not change the result. Default as many as of a training batch.
    pub test_batch_size: Option<usize>,
    /// The mesh that the model is on, if it is on one: batches are split over it. Does not change the result.
    pub mesh: Option<Mesh>,
    /// The run finishes its step and ends when somebody sets this.
    pub stop: Arc<AtomicBool>,
    /// Text kept in checkpoints, for whoever resumes.
    pub recorded: BTreeMap<String, String>,
}

impl TrainSettings {
    /// Samples of a batch of the test set.
    pub fn test_batch_size(&self) -> usize {
        self.test_batch_size.unwrap_or(self.batch_size)
    }
}

impl Default for TrainSettings {
    fn default() -> Self {
        TrainSettings {
            model: "model".to_string(),
            batch_size: 64,
            order: Order::Shuffled { seed: 0 },
            length: Length { epochs: Some(10), steps: None },
            max_norm: None,
            check_finite: true,
            ema: None,
            metrics: false,
            precision: Precision::F32,
            loss_scale: LossScaleOptions::default(),
            seed: 0,
            saving: None,
            test_batch_size: None,
            mesh: None,
            stop: Arc::default(),
            recorded: BTreeMap::new(),
        }
    }
}

/// When a run ends: at the first of these, counted from its very beginning. Without both it never does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Length {
    /// After so many epochs.
    pub epochs: Option<u64>,
    /// After so many steps.
    pub steps: Option<u64>,
}

impl Length {
    /// The number of steps for epochs of so many batches.
    pub fn total_steps(&self, batches_per_epoch: u64) -> Option<u64> {
        let by_epochs = self.epochs.map(|epochs| epochs.saturating_mul(batches_per_epoch));
        by_epochs.into_iter().chain(self.steps).min()
    }
}

/// Where and how often to save.
#[derive(Clone, Debug)]
pub struct Saving {
    /// The folder of the run.
    pub folder: Folder,
    /// After every so many steps; `None` for after every epoch. The end of the run is always saved.
    pub every: Option<u64>,
}
