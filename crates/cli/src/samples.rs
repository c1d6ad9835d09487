//! What a model is trained on: samples that have classes, or text.

use crate::args::TrainArgs;
use crate::failure::Failure;
use crate::settings::{Settings, run_folder};
use crate::values::AugmentName;
use meshwork::checkpoint::Checkpoint;
use meshwork::data::{Affine, Augmented, DataPair, Text, TextSource, Tokenizer, TokenizerChoice, open, open_text};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The text that comes with the program.
pub const SOURCE: &str = "source";
/// The file in the folder of a run, or of Hugging Face, that says what its tokens are.
pub const TOKENIZER: &str = "tokenizer.json";

/// The data of a run.
pub struct Samples {
    pub pair: DataPair,
    /// What made tokens of text.
    pub tokenizer: Option<Tokenizer>,
    /// What the user should know.
    pub notes: Vec<String>,
    /// What there is, in words.
    pub in_words: String,
}

impl Samples {
    /// Opens the data that the settings name.
    pub fn open(settings: &Settings, given: &TrainArgs, checkpoint: Option<&Checkpoint>) -> Result<Samples, Failure> {
        match settings.language {
            Some(_) => Samples::of_text(settings, given, checkpoint),
            None => Samples::of_images(settings),
        }
    }

    fn of_images(settings: &Settings) -> Result<Samples, Failure> {
        let mut pair = open(&settings.data).map_err(|e| Failure::Mistake(format!("--data: {e}")))?;
        if settings.augment == AugmentName::Affine {
            pair.train = Arc::new(Augmented::new(pair.train, Affine::default(), settings.seed));
        }
        let in_words = format!(
            "{} training and {} test samples of {} ({})",
            pair.train.len(),
            pair.test.len(),
            pair.name,
            pair.origin
        );
        Ok(Samples { pair, tokenizer: None, notes: Vec::new(), in_words })
    }

    fn of_text(settings: &Settings, given: &TrainArgs, checkpoint: Option<&Checkpoint>) -> Result<Samples, Failure> {
        let language = settings.language.as_ref().expect("the settings are of a language model");
        // A run that goes on has its own tokens, whatever became of the file that they came from.
        let saved = checkpoint.map(|checkpoint| saved_tokenizer(checkpoint.folder()));
        let tokenizer = match saved.filter(|path| path.exists()) {
            Some(path) => TokenizerChoice::Ready(load_tokenizer(&path)?),
            None => language.tokenizer()?,
        };
        let source = TextSource {
            path: (settings.data != SOURCE).then(|| PathBuf::from(&settings.data)),
            tokenizer,
            length: usize::try_from(language.sizes.context).unwrap_or(usize::MAX),
            validation: language.validation,
            built_in: meshwork_corpus::documents(),
            cache: given.language.token_cache.clone(),
        };
        let text = open_text(&source).map_err(|e| Failure::Mistake(format!("--data: {e}")))?;
        let in_words = in_words(&text, source.length);
        let Text { pair, tokenizer, notes, .. } = text;
        Ok(Samples { pair, tokenizer: Some(tokenizer), notes, in_words })
    }

    /// The number of tokens, for models that need one.
    pub fn vocabulary(&self) -> usize {
        self.tokenizer.as_ref().map_or(0, Tokenizer::vocabulary)
    }

    /// Keeps what made the tokens beside the checkpoints of a run.
    pub fn save_tokenizer(&self, folder: &Path) -> Result<(), Failure> {
        let Some(tokenizer) = &self.tokenizer else { return Ok(()) };
        let path = folder.join(TOKENIZER);
        let write = || {
            std::fs::create_dir_all(folder)?;
            std::fs::write(&path, tokenizer.to_json())
        };
        write().map_err(|e| Failure::System(format!("--save: cannot write {}: {e}", path.display())))
    }
}

fn in_words(text: &Text, length: usize) -> String {
    format!(
        "{} tokens of {} documents of {} ({}): {} training and {} validation sequences of {length}",
        text.num_tokens,
        text.num_documents,
        text.pair.name,
        text.pair.origin,
        text.pair.train.len(),
        text.pair.test.len(),
    )
}

/// Where the run of a checkpoint says what its tokens are.
pub fn saved_tokenizer(checkpoint: &Path) -> PathBuf {
    run_folder(checkpoint).join(TOKENIZER)
}

/// The tokenizer of a file.
pub fn load_tokenizer(path: &Path) -> Result<Tokenizer, Failure> {
    Tokenizer::load(path).map_err(Failure::mistake)
}
