//! Why a training cannot begin or go on.

use crate::checkpoint::CheckpointError;
use crate::optim::NonFinite;
use meshwork_data::DataError;
use meshwork_graph::human_bytes;

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
    /// No choice of what is computed again makes a step small enough.
    #[error("a step does not fit into {}: it takes {} at least{}; try a smaller batch, more devices or microbatches \
             (accumulate)", human_bytes(*limit), human_bytes(*least), again(*recompute, *of))]
    Memory {
        /// Bytes that it may take of a device.
        limit: usize,
        /// The least that it can take.
        least: usize,
        /// Blocks that are computed again then.
        recompute: usize,
        /// Blocks that there are.
        of: usize,
    },
    /// Not even one sample of the test set at a time is small enough.
    #[error("testing does not fit into {}: one sample at a time takes {}; try more devices", human_bytes(*limit), human_bytes(*least))]
    TestMemory {
        /// Bytes that it may take of a device.
        limit: usize,
        /// The least that it can take.
        least: usize,
    },
    /// The data does not fit the model, or the trainer; the text says how.
    #[error("{0}")]
    Misfit(String),
}

/// What of a model is computed again, if it has blocks that can be.
fn again(recompute: usize, of: usize) -> String {
    if of > 0 { format!(", with {recompute} of {of} blocks computed again") } else { String::new() }
}
