//! Between text and the numbers of tokens.

use std::path::Path;
use std::sync::Arc;
use std::{fmt, fs};

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use super::characters::Characters;
#[cfg(feature = "tokenizer-files")]
use super::file::TokenizerFile;
use super::{TextError, TextStream, interchange};
use crate::{DataError, Result};

/// What turns text into tokens and tokens into text. Clones share their tables.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum Tokenizer {
    /// Each byte of the UTF-8 text is a token; 256 ends a text.
    Bytes,
    /// Each character of a vocabulary is a token; two more are the end of text and any other character.
    Characters(Arc<Characters>),
    /// As a `tokenizer.json` says.
    #[cfg(feature = "tokenizer-files")]
    File(Arc<TokenizerFile>),
}

/// The token of [`Tokenizer::Bytes`] that ends a text.
pub(super) const BYTES_END: u32 = 256;

/// The version of the JSON that [`Tokenizer::to_json`] writes for bytes and characters.
const VERSION: u32 = 1;

/// The JSON of the tokenizers that are no `tokenizer.json`.
#[derive(Serialize, Deserialize)]
struct Saved {
    meshwork_tokenizer: u32,
    #[serde(flatten)]
    kind: SavedKind,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum SavedKind {
    Bytes,
    Characters { characters: String },
}

/// Just enough of a JSON file to tell whose it is.
#[derive(Deserialize)]
struct Probe {
    meshwork_tokenizer: Option<u32>,
    model: Option<serde::de::IgnoredAny>,
}

impl Tokenizer {
    /// The tokenizer of the characters that occur in `texts`.
    pub fn characters<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Characters(Arc::new(Characters::of(texts)))
    }

    /// The tokens of a text, without an end of text. Where a `tokenizer.json` has special tokens, text that spells one
    /// becomes that token, as in `transformers`; nothing is added, cut off or padded.
    ///
    /// # Errors
    /// [`TextError::Encode`] where a `tokenizer.json` has neither tokens for the text nor one for what is unknown.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self {
            Self::Bytes => Ok(text.bytes().map(u32::from).collect()),
            Self::Characters(characters) => Ok(characters.encode(text)),
            #[cfg(feature = "tokenizer-files")]
            Self::File(file) => file.encode(text),
        }
    }

    /// The text of tokens. The end of text and other special tokens leave nothing; tokens outside of the vocabulary,
    /// unknown characters and bytes that are not UTF-8 become U+FFFD.
    pub fn decode(&self, tokens: &[u32]) -> String {
        match self {
            #[cfg(feature = "tokenizer-files")]
            Self::File(file) => file.decode(tokens),
            _ => {
                let mut stream = self.stream();
                let mut text: String = tokens.iter().map(|&token| stream.push(token)).collect();
                text.push_str(&stream.finish());
                text
            }
        }
    }

    /// Decodes tokens one after the other, as they are generated.
    pub fn stream(&self) -> TextStream {
        TextStream::new(self.clone())
    }

    /// The number of tokens: all lie below it.
    pub fn vocabulary(&self) -> usize {
        match self {
            Self::Bytes => BYTES_END as usize + 1,
            Self::Characters(characters) => characters.vocabulary(),
            #[cfg(feature = "tokenizer-files")]
            Self::File(file) => file.vocabulary(),
        }
    }

    /// The token that ends a document, where there is one.
    pub fn end_of_text(&self) -> Option<u32> {
        match self {
            Self::Bytes => Some(BYTES_END),
            Self::Characters(characters) => Some(characters.end_of_text()),
            #[cfg(feature = "tokenizer-files")]
            Self::File(file) => file.end_of_text(),
        }
    }

    /// Whether the tokens of a text are those of its pieces, wherever it is cut between characters.
    pub(super) fn can_cut(&self) -> bool {
        matches!(self, Self::Bytes | Self::Characters(_))
    }

    /// A hash of all that the tokens depend on.
    pub fn fingerprint(&self) -> u128 {
        xxh3_128(self.to_json().as_bytes())
    }

    /// The tokenizer as JSON: a `tokenizer.json` as it was read, the others in a form of their own.
    pub fn to_json(&self) -> String {
        let kind = match self {
            Self::Bytes => SavedKind::Bytes,
            Self::Characters(characters) => SavedKind::Characters { characters: characters.iter().collect() },
            #[cfg(feature = "tokenizer-files")]
            Self::File(file) => return file.json().to_owned(),
        };
        let saved = Saved { meshwork_tokenizer: VERSION, kind };
        serde_json::to_string(&saved).expect("strings and numbers can be written as JSON")
    }

    /// The tokenizer as a `tokenizer.json`, which other programs read with the library `tokenizers`. Text that spells the
    /// end of text, `<|endoftext|>`, becomes that token there.
    pub fn to_tokenizer_json(&self) -> String {
        match self {
            Self::Bytes => interchange::bytes().to_string(),
            Self::Characters(characters) => interchange::characters(characters).to_string(),
            #[cfg(feature = "tokenizer-files")]
            Self::File(file) => file.json().to_owned(),
        }
    }

    /// The tokenizer that [`to_json`](Self::to_json) wrote, or of the text of a `tokenizer.json`. `origin` says in errors
    /// where the text comes from.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] for anything else, [`TextError::TokenizerFiles`] for a `tokenizer.json` where the feature
    /// `tokenizer-files` is off.
    pub fn from_json(json: &str, origin: &str) -> Result<Self> {
        let wrong = |problem: String| DataError::from(TextError::Tokenizer { origin: origin.to_owned(), problem });
        let probe: Probe = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
        match probe {
            Probe { meshwork_tokenizer: Some(VERSION), .. } => {
                let saved: Saved = serde_json::from_str(json).map_err(|error| wrong(error.to_string()))?;
                match saved.kind {
                    SavedKind::Bytes => Ok(Self::Bytes),
                    SavedKind::Characters { characters } => match Characters::sorted(characters.chars()) {
                        Some(characters) => Ok(Self::Characters(Arc::new(characters))),
                        None => Err(wrong("its characters are not in ascending order".to_owned())),
                    },
                }
            }
            Probe { meshwork_tokenizer: Some(other), .. } => {
                Err(wrong(format!("it is of version {other}, but this build reads version {VERSION}")))
            }
            Probe { model: Some(_), .. } => Self::from_tokenizer_json(json, origin),
            _ => Err(wrong("the JSON has no \"model\"".to_owned())),
        }
    }

    #[cfg(feature = "tokenizer-files")]
    fn from_tokenizer_json(json: &str, origin: &str) -> Result<Self> {
        Ok(Self::File(Arc::new(TokenizerFile::parse(json, origin)?)))
    }

    #[cfg(not(feature = "tokenizer-files"))]
    fn from_tokenizer_json(_: &str, origin: &str) -> Result<Self> {
        Err(TextError::TokenizerFiles { origin: origin.to_owned() }.into())
    }

    /// Writes [`to_json`](Self::to_json) to a file.
    ///
    /// # Errors
    /// [`TextError::Save`] where the system refuses.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let written = fs::write(path, self.to_json());
        written.map_err(|source| TextError::Save { path: path.display().to_string(), source }.into())
    }

    /// Reads a file that [`save`](Self::save) wrote, or a `tokenizer.json`.
    ///
    /// # Errors
    /// [`DataError::Read`], and those of [`from_json`](Self::from_json).
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let origin = path.display().to_string();
        let bytes = fs::read(path).map_err(|source| DataError::Read { origin: origin.clone(), source })?;
        match String::from_utf8(bytes) {
            Ok(json) => Self::from_json(&json, &origin),
            Err(_) => Err(TextError::Tokenizer { origin, problem: "it is not UTF-8 text".to_owned() }.into()),
        }
    }
}

/// `bytes`, `characters`, or the kind of model in a `tokenizer.json`.
impl fmt::Display for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => f.write_str("bytes"),
            Self::Characters(_) => f.write_str("characters"),
            #[cfg(feature = "tokenizer-files")]
            Self::File(file) => f.write_str(file.model()),
        }
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenizer({self}, {} tokens)", self.vocabulary())
    }
}
