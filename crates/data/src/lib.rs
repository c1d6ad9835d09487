//! Datasets and the loader that feeds them to training.
//!
//! A [`Dataset`] is a numbered collection of samples with described [`Field`]s. A [`Loader`] puts samples
//! together into [`Batch`]es in the background. Which samples a batch holds, and in which order, depends on
//! the seed, the epoch and the [`Position`] alone, never on the number of threads, so that a run resumed from
//! a saved position sees the batches that an uninterrupted run would have seen.
//!
//! ```
//! use meshwork_data::{Loader, LoaderOptions, Order, open};
//!
//! let data = open("digits")?;
//! let options = LoaderOptions {
//!     batch_size: 64,
//!     order: Order::Shuffled { seed: 1 },
//!     ..LoaderOptions::default()
//! };
//! let mut loader = Loader::new(data.train, options)?;
//! for batch in loader.epoch() {
//!     let batch = batch?;
//!     let (images, labels) = (batch.f32("image"), batch.i64("label"));
//!     assert_eq!(batch.shape("image"), [labels.len(), 1, 28, 28]);
//!     assert_eq!(images.len(), labels.len() * 28 * 28);
//! }
//! # Ok::<(), meshwork_data::DataError>(())
//! ```
//!
//! [`text`] makes samples of text. Nothing is ever downloaded: [`open`] finds data by name in the usual places, or by path.

#![deny(unsafe_code)]

mod array;
mod assemble;
mod augment;
mod batch;
mod csv;
mod dataset;
mod digits;
mod error;
mod field;
mod gz;
mod idx;
mod images;
mod labels;
mod loader;
mod order;
mod places;
mod resize;
mod rows;
mod schedule;
mod source;
mod subset;
pub mod text;
mod workers;

pub use array::ArrayDataset;
pub use augment::{Affine, Augmented};
pub use batch::Batch;
pub use csv::{CsvImages, CsvOptions, LabelColumn, read_csv};
pub use dataset::{Dataset, Sample, read_samples};
pub use digits::digits;
pub use error::DataError;
pub use field::{Column, Field, FieldType};
pub use images::{IdxPaths, ImageDataset};
pub use loader::{EpochBatches, Loader, LoaderOptions};
pub use order::{Order, permutation};
pub use places::{Places, Searched};
pub use resize::resize_bilinear;
pub use rows::Rows;
pub use schedule::Position;
pub use source::{DataPair, NAMES, open, open_with};
pub use subset::{Subset, hold_back_last_fifth};
pub use text::{Text, TextError, TextSource, Tokenizer, TokenizerChoice, open_text};

/// The result of everything that reads data.
pub type Result<T, E = DataError> = std::result::Result<T, E>;
