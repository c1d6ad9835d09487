//! Training classifiers, of images as of the tokens of a text: a [`Trainer`] that owns the loop, and models to begin with.
//!
//! ```no_run
//! use meshwork::nn::Module;
//! use meshwork::optim::{Adam, AdamOptions, Constant};
//! use meshwork::train::{Event, LeNet, TrainSettings, Trainer};
//!
//! let model = LeNet::new();
//! model.init(0);
//! let optimizer = Adam::new(&model, AdamOptions::default());
//! let data = meshwork::data::open("digits")?;
//! let mut trainer = Trainer::new(model, optimizer, Constant { lr: 1e-3 }, data, TrainSettings::default());
//! trainer.run(&mut |event| {
//!     if let Event::Epoch(epoch) = event {
//!         println!("epoch {}: {:.1} %", epoch.epoch, 100.0 * epoch.test.accuracy);
//!     }
//! })?;
//! # Ok::<(), meshwork::train::TrainError>(())
//! ```

mod built_in;
mod cost;
mod error;
mod evaluate;
mod event;
mod fit;
mod late;
mod models;
mod objective;
mod settings;
mod trainer;

pub use built_in::BuiltIn;
pub use error::TrainError;
pub use evaluate::{Evaluation, evaluate};
pub use event::{EpochDone, Event, Outcome, StepCost, StepDone, StepScale};
pub use fit::{Fit, fit_memory};
pub use models::{LeNet, Mlp};
pub use objective::{hits, loss};
pub use settings::{Length, Saving, TrainSettings};
pub use trainer::Trainer;
