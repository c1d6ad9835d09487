//! Transformers in the files of Hugging Face's `transformers`.
//!
//! [`load`] reads the folder of a `GPT2LMHeadModel` or a `LlamaForCausalLM`, [`save`] writes one that
//! `AutoModelForCausalLM.from_pretrained` reads:
//!
//! ```text
//! folder/
//!   config.json                         what the model is made of
//!   model.safetensors                   the weights; or, where they are more than a file shall hold,
//!   model-00001-of-00002.safetensors    shards of them
//!   model-00002-of-00002.safetensors
//!   model.safetensors.index.json        and which tensor is in which shard
//! ```
//!
//! Other files of such a folder, `tokenizer.json` among them, are the caller's.
//!
//! Keys of `config.json` that change what a model computes are understood, or refused with the values that can be; keys
//! that `transformers` itself ignores for these classes are ignored.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use meshwork::hugging_face::{self, SaveOptions};
//! use meshwork::nn::{Module, Transformer, TransformerConfig};
//!
//! # let parent = std::env::temp_dir().join(format!("meshwork-hugging-face-{}", std::process::id()));
//! # let folder = parent.join("model");
//! let model = Transformer::new(TransformerConfig::llama(65, 32, 2, 32, 2));
//! model.init(0);
//! hugging_face::save(&model, &folder, &SaveOptions::default())?;
//! let same = hugging_face::load(&folder)?;
//! assert_eq!(same.config(), model.config());
//! # std::fs::remove_dir_all(parent)?;
//! # Ok(())
//! # }
//! ```

mod config;
mod error;
mod family;
mod files;
mod keys;
mod names;
#[cfg(test)]
mod tests;

pub use error::HuggingFaceError;

use crate::checkpoint::disk;
use crate::nn::{Module, Transformer, TransformerConfig};
use crate::tensor::no_grad;
use family::Family;
use names::{Arriving, entries};
use std::path::Path;

/// The result of everything that loads or saves these files.
pub type Result<T, E = HuggingFaceError> = std::result::Result<T, E>;

/// What a model is made of, in JSON.
const CONFIG: &str = "config.json";

/// How a model is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOptions {
    /// Bytes of weights in one file, above which they are sharded; a single tensor may have more.
    pub max_shard_bytes: u64,
    /// The token that ends a text, and the one that begins it: `eos_token_id` and `bos_token_id`.
    pub end_of_text: Option<u32>,
}

impl Default for SaveOptions {
    /// 5 GB, and no such token.
    fn default() -> Self {
        SaveOptions { max_shard_bytes: 5_000_000_000, end_of_text: None }
    }
}

/// What the model of a folder is made of.
///
/// # Errors
/// As [`load`], as far as `config.json` is concerned.
pub fn load_config(folder: impl AsRef<Path>) -> Result<TransformerConfig> {
    config::read(&folder.as_ref().join(CONFIG)).map(|(_, config)| config)
}

/// Reads the model of a folder. Weights in f32, f16 and bf16 become f32, exactly.
///
/// # Errors
/// What the model cannot be or do (other architectures, activations, rotary positions …), by key, value and what can be
/// instead; files that are missing or damaged, an index that does not say what they hold, and tensors that are missing,
/// too many or of other shapes and types.
pub fn load(folder: impl AsRef<Path>) -> Result<Transformer> {
    let folder = folder.as_ref();
    let (family, config) = config::read(&folder.join(CONFIG))?;
    let files = files::find(folder)?;
    let model = Transformer::new(config);
    let mut arriving = Arriving::new(family, &model);
    no_grad(|| files.iter().try_for_each(|file| file.read().map(|tensors| arriving.take(tensors))))?;
    let misfit = |problem| HuggingFaceError::Misfit { path: folder.to_owned(), problem };
    let state = arriving.finish().map_err(misfit)?;
    model.load_state(state).unwrap_or_else(|e| unreachable!("names and shapes have been compared: {e}"));
    Ok(model)
}

/// Writes a model to a folder, which is there as a whole afterwards or not at all. Equal weights and options give equal
/// bytes.
///
/// Dropout of a Llama is left out, as its class knows none but that of the attention.
///
/// # Errors
/// [`HuggingFaceError::Inexpressible`] for a model that neither class can be, [`HuggingFaceError::Occupied`] where there is
/// something already, and what the operating system refuses.
pub fn save(model: &Transformer, folder: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
    let folder = folder.as_ref();
    let family = Family::of(model.config()).map_err(|problem| HuggingFaceError::Inexpressible { problem })?;
    if folder.is_file() || folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(HuggingFaceError::Occupied { path: folder.to_owned() });
    }
    let unfinished = disk::beside(folder);
    disk::remove(&unfinished)?;
    disk::make_folder(&unfinished)?;
    disk::write(&unfinished.join(CONFIG), &keys::to_json(&config::write(family, model.config(), options.end_of_text)))?;
    no_grad(|| files::write(&unfinished, &entries(family, model), &model.state(), options.max_shard_bytes))?;
    disk::sync_folder(&unfinished)?;
    Ok(disk::rename(&unfinished, folder)?)
}
