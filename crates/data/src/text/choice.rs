//! From the word that a user writes to a tokenizer.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Corpus, TextError, Tokenizer};
use crate::{DataError, Result};

/// Which tokenizer to take. As a word: `bytes`, `characters`, or the path of a `tokenizer.json` or its folder.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TokenizerChoice {
    /// [`Tokenizer::Bytes`]
    #[default]
    Bytes,
    /// [`Tokenizer::Characters`] of the characters in the corpus.
    Characters,
    /// A file for [`Tokenizer::load`].
    File(PathBuf),
    /// One that is there already, such as a checkpoint's.
    Ready(Tokenizer),
}

impl TokenizerChoice {
    /// The tokenizer for a corpus.
    ///
    /// # Errors
    /// Those of [`Tokenizer::load`].
    pub fn build(&self, corpus: &Corpus) -> Result<Tokenizer> {
        match self {
            Self::Bytes => Ok(Tokenizer::Bytes),
            Self::Characters => Ok(Tokenizer::characters(corpus.documents().iter().map(|document| &*document.text))),
            Self::File(path) => Tokenizer::load(path),
            Self::Ready(tokenizer) => Ok(tokenizer.clone()),
        }
    }
}

impl FromStr for TokenizerChoice {
    type Err = DataError;

    fn from_str(word: &str) -> Result<Self> {
        let path = Path::new(word);
        match word {
            "bytes" => Ok(Self::Bytes),
            "characters" => Ok(Self::Characters),
            _ if path.is_dir() => Ok(Self::File(path.join("tokenizer.json"))),
            _ if path.exists() => Ok(Self::File(path.to_owned())),
            _ => Err(TextError::UnknownTokenizer { word: word.to_owned() }.into()),
        }
    }
}
