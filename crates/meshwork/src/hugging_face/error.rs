//! Everything that can be wrong with a folder of Hugging Face.

use crate::checkpoint::CheckpointError;
use crate::nn::ConfigError;
use std::path::PathBuf;

/// An error of loading or saving a folder of Hugging Face.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum HuggingFaceError {
    /// A file that cannot be read or written, or is damaged.
    #[error(transparent)]
    File(#[from] CheckpointError),

    /// A text file that is not the JSON that it should be.
    #[error("{}, line {line}, column {column}: {problem}; copy the file again", path.display())]
    Json { path: PathBuf, line: usize, column: usize, problem: String },

    /// A key that a model needs is not there.
    #[error("{} has no {key}, which the model cannot be without", path.display())]
    Missing { path: PathBuf, key: String },

    /// A key whose value makes no sense or stands for what Meshwork does not have.
    #[error("{}: {key} is {value}; supported: {supported}", path.display())]
    Unsupported { path: PathBuf, key: String, value: String, supported: String },

    /// Sizes that do not go together.
    #[error("{}: {source}", path.display())]
    Sizes { path: PathBuf, source: ConfigError },

    /// A folder without weights that can be read.
    #[error("{} {problem}", path.display())]
    NoWeights { path: PathBuf, problem: String },

    /// An index that does not say what the shards hold.
    #[error("{}: {problem}; copy the files again", path.display())]
    Index { path: PathBuf, problem: String },

    /// Tensors that are not those of the model.
    #[error("the weights in {} are not those of its config.json: {problem}", path.display())]
    Misfit { path: PathBuf, problem: String },

    /// A model that Hugging Face's classes cannot be.
    #[error("the model cannot be saved for Hugging Face: {problem}")]
    Inexpressible { problem: String },

    /// Something is there already.
    #[error("{} exists already; name a new or empty folder", path.display())]
    Occupied { path: PathBuf },
}

impl HuggingFaceError {
    /// Whether the operating system failed, so that neither files nor settings are to blame.
    pub fn is_io(&self) -> bool {
        matches!(self, HuggingFaceError::File(error) if error.is_io())
    }
}
