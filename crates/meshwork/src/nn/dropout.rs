//! Dropout.

use super::layer::layers;
use super::{Mode, Module, RandomSite};
use crate::tensor::Tensor;

/// In training sets each element to 0 with probability `p` and scales the others by 1 / (1 − p); in evaluation does
/// nothing (Srivastava et al., 2014).
///
/// Which elements are dropped depends on the seed, the layer's name, the training step, the number of the call
/// within the step and the element's index: not on threads, devices or the order of other layers.
#[derive(Debug, Module)]
pub struct Dropout {
    p: f64,
    site: RandomSite,
    mode: Mode,
}

impl Dropout {
    /// Drops with probability `p`.
    ///
    /// # Panics
    /// When `p` is not in 0..=1.
    #[track_caller]
    pub fn new(p: f64) -> Dropout {
        assert!((0.0..=1.0).contains(&p), "a dropout probability is in 0..=1, not {p}");
        Dropout { p, site: RandomSite::new("dropout"), mode: Mode::default() }
    }

    /// The tensor with elements dropped, if in training.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        if self.drops() { x.dropout(self.p, self.site.next_key()) } else { x.clone() }
    }

    /// Whether it does anything now.
    pub(crate) fn drops(&self) -> bool {
        self.mode.is_training() && self.p > 0.0
    }
}

layers!(Dropout);
