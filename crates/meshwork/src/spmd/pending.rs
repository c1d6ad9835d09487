//! Collectives in the background.

use super::CommError;
use crate::tensor::Tensor;

/// A collective in the background. Dropping it leaves the collective to itself.
#[must_use = "the result comes with wait()"]
pub struct Pending {
    finish: Box<dyn FnOnce() -> Result<Tensor, CommError>>,
}

impl Pending {
    pub(super) fn new(finish: impl FnOnce() -> Result<Tensor, CommError> + 'static) -> Pending {
        Pending { finish: Box::new(finish) }
    }

    /// The result of a collective with another step at its end.
    pub(super) fn then(self, step: impl FnOnce(Tensor) -> Tensor + 'static) -> Pending {
        Pending::new(move || self.wait().map(step))
    }

    /// Waits for the result.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    pub fn wait(self) -> Result<Tensor, CommError> {
        (self.finish)()
    }
}
