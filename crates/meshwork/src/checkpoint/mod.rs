//! Weights in files, and training runs that go on after any interruption.
//!
//! [`save_weights`] and [`load_weights`] write and read safetensors under PyTorch's names. A [`Folder`] keeps the
//! last two checkpoints of a training run:
//!
//! ```text
//! run/
//!   model.safetensors        the newest weights
//!   latest                   the name of the newest checkpoint: "step-200"
//!   step-100/                the checkpoint before
//!   step-200/
//!     model.safetensors
//!     optimizer.safetensors
//!     ema.safetensors        averaged weights, if weights are averaged (and beside model.safetensors above)
//!     state.json             step, position in the data, settings
//!     manifest.json          size and hash of the files beside it
//! ```
//!
//! A checkpoint is written under a temporary name and synchronised to the disk before it is renamed; `latest` is
//! replaced after that; only then the checkpoint before the previous one is removed. Whenever the process dies,
//! `latest` names a whole checkpoint. (`model.safetensors` follows `latest` a moment later.)

pub(crate) mod disk;
mod error;
mod folder;
mod manifest;
mod state;
mod weights;

pub use error::CheckpointError;
pub use folder::{Checkpoint, Folder};
pub use state::{FORMAT, LossSum, TrainingState};
pub(crate) use weights::to_bytes;
pub use weights::{load_module, load_weights, save_weights};

/// The result of everything that saves or loads.
pub type Result<T, E = CheckpointError> = std::result::Result<T, E>;

#[cfg(test)]
mod tests;
