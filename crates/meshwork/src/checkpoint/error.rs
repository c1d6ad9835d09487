//! Everything that can be wrong with saved files: which file, what, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// An error of saving or loading. Offsets count bytes from the start of the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum CheckpointError {
    /// The operating system refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    /// A file ends too early.
    #[error(
        "{} is cut off: it ends at byte {found}, but {by} announces {expected} bytes; \
         copy the file again or use an older one", path.display()
    )]
    Truncated { path: PathBuf, by: &'static str, expected: u64, found: u64 },

    /// A file goes on too long.
    #[error(
        "{} has bytes to spare: it has {found}, but {by} announces {expected}; \
         copy the file again or use an older one", path.display()
    )]
    Trailing { path: PathBuf, by: &'static str, expected: u64, found: u64 },

    /// A safetensors header that cannot be true.
    #[error("{}, header (bytes 0 to {end}): {problem}; it is no intact safetensors file", path.display())]
    Header { path: PathBuf, end: u64, problem: String },

    /// A tensor that Meshwork cannot hold.
    #[error("{}: tensor {name:?} {problem}", path.display())]
    Tensor { path: PathBuf, name: String, problem: String },

    /// A text file of a checkpoint that cannot be understood.
    #[error("{}, line {line}, column {column}: {problem}; the file is damaged, use an older checkpoint", path.display())]
    Text { path: PathBuf, line: usize, column: usize, problem: String },

    /// A file whose bytes are not those that were saved.
    #[error(
        "{} is damaged: its {size} bytes have the hash {found:016x}, but {:016x} was saved; \
         copy the file again or use an older checkpoint", path.display(), expected
    )]
    Hash { path: PathBuf, size: u64, expected: u64, found: u64 },

    /// A checkpoint of a newer program.
    #[error(
        "{} has format {found}, but this version reads up to format {}; use a newer Meshwork",
        path.display(), super::FORMAT
    )]
    Format { path: PathBuf, found: u32 },

    /// Weights of another model.
    #[error("{} does not fit the model: {problem}", path.display())]
    Misfit { path: PathBuf, problem: String },

    /// A checkpoint of another run.
    #[error("{}: {problem}", path.display())]
    OtherRun { path: PathBuf, problem: String },

    /// Not a folder of checkpoints.
    #[error("{} {problem}", path.display())]
    NoCheckpoint { path: PathBuf, problem: String },

    /// A new run would bury another one.
    #[error(
        "{} already holds a checkpoint of step {step}; resume from it, or save to another folder", path.display()
    )]
    Occupied { path: PathBuf, step: u64 },

    /// The newest checkpoint cannot be used.
    #[error("{cause}; {}", match intact {
        Some(path) => format!("the checkpoint {} is intact: to go on from there, resume from that folder", path.display()),
        None => "there is no other intact checkpoint beside it".to_string(),
    })]
    Broken { cause: Box<CheckpointError>, intact: Option<PathBuf> },
}

impl CheckpointError {
    /// For `map_err`: the operating system refused to do this to this path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
        move |source| CheckpointError::Io { action, path: path.to_owned(), source }
    }

    /// Whether the operating system failed, so that neither files nor settings are to blame.
    pub fn is_io(&self) -> bool {
        matches!(self, CheckpointError::Io { source, .. } if source.kind() != io::ErrorKind::NotFound)
    }
}
