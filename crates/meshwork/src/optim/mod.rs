//! Optimizers, what they do with gradients, and learning rates that change with time.
//!
//! Formulas and their order are those of PyTorch's single-tensor implementations; those of [`Lars`] and [`Lamb`], which
//! PyTorch does not have, are those of the papers. Numbers that may change from step
//! to step are inputs of the compiled step, so only the first one compiles.
//!
//! ```
//! use meshwork::optim::{AdamW, AdamWOptions, Cosine};
//! use meshwork::prelude::*;
//!
//! let model = sequential![Linear::new(2, 8), Relu, Linear::new(8, 1)];
//! model.init(0);
//! let x = Tensor::from_slice(&[0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0], &[4, 2]);
//! let y = Tensor::from_slice(&[0f32, 1.0, 1.0, 0.0], &[4, 1]);
//!
//! let mut optimizer = AdamW::new(&model, AdamWOptions { lr: 0.03, ..AdamWOptions::default() });
//! let schedule = Cosine { lr: 0.03, period: 200, eta_min: 0.001 };
//! for step in 0..200 {
//!     let loss = MseLoss::default().forward(&model.forward(&x), &y);
//!     let mut gradients = model.gradients(&loss);
//!     gradients.clip_by_global_norm(1.0);
//!     optimizer.set_lr(schedule.lr(step));
//!     optimizer.step(gradients);
//! }
//! assert!(MseLoss::default().forward(&model.forward(&x), &y).item() < 0.05);
//! ```

mod adagrad;
mod adam;
mod ema;
mod gradients;
mod group;
mod guard;
mod lamb;
mod lars;
mod loss_scale;
mod moments;
mod norm;
mod optimizer;
mod rmsprop;
mod rule;
mod scaling;
mod schedule;
mod sgd;
mod state;
mod stepper;

pub use adagrad::{Adagrad, AdagradOptions};
pub use adam::{Adam, AdamOptions, AdamW, AdamWOptions};
pub use ema::{Ema, with_averaged};
pub use gradients::Gradients;
pub use group::{Group, Named};
pub use guard::{Guard, NonFinite};
pub use lamb::{Lamb, LambOptions};
pub use lars::{Lars, LarsOptions};
pub use loss_scale::{LossScale, LossScaleOptions, LossScaleState};
pub use optimizer::Optimizer;
pub use rmsprop::{RmsProp, RmsPropOptions};
pub use rule::{Numbers, Rule, Slot};
pub use scaling::{BatchScaling, LrScaling};
pub use schedule::{Constant, Cosine, Linear, OneCycle, Schedule, Step, WarmUp};
pub use sgd::{Sgd, SgdOptions};
pub use state::{OptimizerState, OptimizerStateError, StepCounts};
pub use stepper::Stepper;
