//! Language models that are there already: of a run, or in the files of Hugging Face.

use crate::args::TrainArgs;
use crate::failure::Failure;
use crate::samples::{TOKENIZER, load_tokenizer, saved_tokenizer};
use crate::settings::Settings;
use meshwork::checkpoint::Folder;
use meshwork::data::Tokenizer;
use meshwork::hugging_face;
use meshwork::nn::Transformer;
use meshwork::tensor::Precision;
use std::path::Path;

/// A model with what its tokens are.
pub struct LanguageModel {
    pub model: Transformer,
    /// What it was trained in.
    pub precision: Precision,
    pub tokenizer: Tokenizer,
}

impl LanguageModel {
    /// Reads the folder that `--checkpoint` names.
    pub fn load(folder: &Path, averaged: bool) -> Result<LanguageModel, Failure> {
        match folder.join("config.json").exists() {
            true if averaged => Err(Failure::Mistake(format!(
                "--ema: {} holds a model of Hugging Face, which has no averaged weights",
                folder.display()
            ))),
            true => LanguageModel::of_hugging_face(folder),
            false => LanguageModel::of_run(folder, averaged),
        }
    }

    fn of_hugging_face(folder: &Path) -> Result<LanguageModel, Failure> {
        let tokenizer = load_tokenizer(&folder.join(TOKENIZER)).map_err(|e| e.about("--checkpoint"))?;
        let known = hugging_face::load_config(folder).map_err(|e| Failure::from(e).about("--checkpoint"))?.vocabulary;
        if tokenizer.vocabulary() > known {
            return Err(Failure::Mistake(format!(
                "--checkpoint: {} has {} tokens in its {TOKENIZER}, but its model knows {known} (vocab_size)",
                folder.display(),
                tokenizer.vocabulary()
            )));
        }
        let model = hugging_face::load(folder).map_err(|e| Failure::from(e).about("--checkpoint"))?;
        Ok(LanguageModel { model, precision: Precision::F32, tokenizer })
    }

    /// Reads the newest checkpoint of a run, or the averaged weights of it.
    pub fn of_run(folder: &Path, averaged: bool) -> Result<LanguageModel, Failure> {
        let checkpoint = Folder::new(folder).load().map_err(|e| Failure::from(e).about("--checkpoint"))?;
        let state = checkpoint.state();
        let (settings, _) = Settings::resumed(&state.settings, &TrainArgs::default(), &[])?;
        let Some(language) = &settings.language else {
            return Err(Failure::Mistake(format!(
                "--checkpoint: {} is of {}, which writes no text; train gpt or llama",
                folder.display(),
                state.model
            )));
        };
        let tokenizer = load_tokenizer(&saved_tokenizer(checkpoint.folder()))?;
        let built_in = language.sizes.model(settings.model, tokenizer.vocabulary())?;
        let config = built_in.transformer().expect("a language model is a transformer");
        let model = Transformer::new(*config);
        if !averaged {
            checkpoint.load_model(&model)?;
        } else if !checkpoint.load_averaged(&model)? {
            return Err(Failure::Mistake(format!(
                "--ema: {} has no averaged weights; they are kept by a training with --ema, such as --ema 0.999",
                folder.display()
            )));
        }
        Ok(LanguageModel { model, precision: state.precision, tokenizer })
    }
}
