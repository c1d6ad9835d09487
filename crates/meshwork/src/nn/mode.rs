//! Training or evaluation.

use super::{Leaf, Module, Visitor};
use std::sync::atomic::{AtomicBool, Ordering};

/// A switch that [`Module::train`] and [`Module::eval`] set: a field of layers that behave differently in the two.
#[derive(Debug)]
pub struct Mode(AtomicBool);

impl Default for Mode {
    /// In training.
    fn default() -> Self {
        Mode(AtomicBool::new(true))
    }
}

impl Mode {
    /// Whether the module is in training.
    pub fn is_training(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Switches to training or evaluation.
    pub fn set(&self, training: bool) {
        self.0.store(training, Ordering::Relaxed);
    }
}

impl Module for Mode {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.leaf(Leaf::Mode(self));
    }
}
