//! What stays the same while a training runs.

use std::path::PathBuf;

/// What a training is.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The model's name.
    pub model: String,
    /// The data's name.
    pub data: String,
    /// The folder that the run is saved to.
    pub folder: Option<PathBuf>,
    /// Steps that were done before, by a run that is resumed.
    pub done: u64,
    /// Steps of the whole run.
    pub steps: Option<u64>,
    /// Epochs of the whole run.
    pub epochs: Option<u64>,
}
