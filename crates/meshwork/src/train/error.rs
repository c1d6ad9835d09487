//! Why a training cannot begin or go on.

use crate::checkpoint::CheckpointError;
use crate::optim::NonFinite;
use meshwork_data::DataError;

/// An error of a training run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Reading data failed.
    #[error(transparent)]
    Data(#[from] DataError),
    /// Saving or loading failed.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A loss or gradients that are not finite. The run stands, and is saved, where it stood before that step.
    #[error(transparent)]
    NonFinite(#[from] NonFinite),
    /// The data does not fit the model, or the trainer; the text says how.
    #[error("{0}")]
    Misfit(String),
}
