//! Optimizers, what they do with gradients, and learning rates that change with time.
//!
//! Formulas and their order are those of PyTorch's single-tensor implementations. Numbers that may change from step
//! to step are inputs of the compiled step, so only the first one compiles.

mod adagrad;
mod adam;
mod gradients;
mod group;
mod optimizer;
mod rmsprop;
mod rule;
mod schedule;
mod sgd;
mod state;
mod stepper;

pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use gradients::Gradients;
pub use group::{Group, Named};
pub use optimizer::Optimizer;
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use rule::{Numbers, Rule, Slot};
pub use schedule::{Constant, Cosine, Linear, OneCycle, Schedule, Step, WarmUp};
pub use sgd::{Sgd, SgdOptions};
pub use state::{OptimizerState, OptimizerStateError};
pub use stepper::Stepper;
