//! From what a user names to sequences for training and validation.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cache::{self, Found, Key};
use super::tokenize::{Work, tokenize};
use super::tokens::Width;
use super::{Corpus, Sequences, TextError, Tokenizer, TokenizerChoice, Tokens};
use crate::{DataPair, Dataset, Result};

/// Which text to train with, and how it becomes samples.
#[derive(Clone, Debug)]
pub struct TextSource {
    /// A file or a folder for [`Corpus::open`]. `None` takes [`built_in`](Self::built_in).
    pub path: Option<PathBuf>,
    /// Names and texts of documents that are part of the program. Default none.
    pub built_in: Vec<(&'static str, &'static str)>,
    /// What makes tokens of the text. Default bytes.
    pub tokenizer: TokenizerChoice,
    /// The tokens of a sequence, at least 1. Default 128.
    pub length: usize,
    /// The share of the tokens, at the end, that is held back for validation: at least 0, less than 1. Default 0.1.
    pub validation: f64,
    /// The file in which the tokens are kept for the next time. `None`, the default, keeps them in memory only.
    pub cache: Option<PathBuf>,
}

impl Default for TextSource {
    fn default() -> Self {
        Self {
            path: None,
            built_in: Vec::new(),
            tokenizer: TokenizerChoice::default(),
            length: 128,
            validation: 0.1,
            cache: None,
        }
    }
}

/// Text as samples.
#[derive(Clone, Debug)]
pub struct Text {
    /// The sequences for training and, as its test part, those for validation; see [`Sequences`].
    pub pair: DataPair,
    /// What made the tokens.
    pub tokenizer: Tokenizer,
    /// How many documents there are.
    pub num_documents: usize,
    /// How many bytes of text.
    pub num_bytes: usize,
    /// How many tokens, those that fill no sequence included.
    pub num_tokens: usize,
    /// What the user should know: what was left out, and a cache that was made anew.
    pub notes: Vec<String>,
}

/// The name of the built-in text.
const BUILT_IN: &str = "meshwork";

/// Reads text, makes tokens of it, or takes them from the cache, and packs them into sequences.
///
/// Validation gets the last tokens: as many whole sequences as fit into its share, at least one. No token is in both parts,
/// labels included. With a share of 0 the validation part is empty.
///
/// # Errors
/// [`TextError`] and [`DataError`](crate::DataError) for what is wrong with the text, the tokenizer, the cache or a number.
pub fn open_text(source: &TextSource) -> Result<Text> {
    let TextSource { path, built_in, tokenizer, length, validation: share, cache } = source;
    let length = *length;
    if length == 0 {
        return Err(TextError::Length.into());
    }
    if !(0.0..1.0).contains(share) {
        return Err(TextError::Validation { share: *share }.into());
    }
    let (name, corpus) = match path {
        Some(path) => (path.display().to_string(), Corpus::open(path)?),
        None if built_in.is_empty() => return Err(TextError::NoBuiltIn.into()),
        None => (BUILT_IN.to_owned(), Corpus::of("built in", built_in.iter().copied())?),
    };
    let tokenizer = tokenizer.build(&corpus)?;
    let mut notes = Vec::new();
    if !corpus.left_out().is_empty() {
        notes.push(corpus.list_left_out(&format!("{}: ", corpus.origin()), ""));
    }
    if corpus.documents().len() > 1 && tokenizer.end_of_text().is_none() {
        notes.push("the tokenizer knows no end of text: nothing separates the documents".to_owned());
    }

    let tokens = Arc::new(tokens(&corpus, &tokenizer, cache.as_deref(), &mut notes)?);
    let cut = cut(tokens.len(), length, *share)
        .map_err(|needed| too_short(&corpus, tokens.len(), needed, length, *share > 0.0))?;
    let part = |range| Sequences::new(Arc::clone(&tokens), range, length, tokenizer.vocabulary());
    let (train, validation) = (part(0..cut), part(cut..tokens.len()));
    if train.num_left_out() > 0 {
        notes.push(format!(
            "{} tokens at the end of the training part fill no sequence of length {length} and are left out",
            train.num_left_out()
        ));
    }
    Ok(Text {
        num_documents: corpus.documents().len(),
        num_bytes: corpus.num_bytes(),
        num_tokens: tokens.len(),
        pair: DataPair {
            name,
            origin: corpus.origin().to_owned(),
            train: Arc::new(train),
            test: Arc::new(validation) as Arc<dyn Dataset>,
        },
        tokenizer,
        notes,
    })
}

/// The tokens of a corpus, from the cache where it holds them.
fn tokens(corpus: &Corpus, tokenizer: &Tokenizer, cache: Option<&Path>, notes: &mut Vec<String>) -> Result<Tokens> {
    let work = Work::on_all_cores();
    let Some(path) = cache else {
        let mut tokens = Tokens::in_memory(tokenizer.vocabulary());
        tokenize(corpus, tokenizer, work, |more| {
            tokens.extend(more);
            Ok(())
        })?;
        return Ok(tokens);
    };
    let key = Key {
        tokenizer: tokenizer.fingerprint(),
        text: corpus.fingerprint(),
        width: Width::of(tokenizer.vocabulary()),
    };
    match cache::open(path, key)? {
        Found::Tokens(tokens) => return Ok(tokens),
        Found::Nothing => {}
        Found::Unusable(why) => notes.push(format!("the cache of tokens {} was made anew: {why}", path.display())),
    }
    cache::write(path, key, |take| tokenize(corpus, tokenizer, work, take))
}

/// Where the validation part begins, or how many tokens are needed.
fn cut(len: usize, length: usize, share: f64) -> Result<usize, usize> {
    let sequence = length.saturating_add(1);
    if share == 0.0 {
        return if len < sequence { Err(sequence) } else { Ok(len) };
    }
    let needed = sequence.saturating_mul(2);
    let most = len.checked_sub(needed).ok_or(needed)? / length + 1;
    let wanted = (len as f64 * share) as usize / length;
    Ok(len - (wanted.clamp(1, most) * length + 1))
}

fn too_short(corpus: &Corpus, found: usize, needed: usize, length: usize, validation: bool) -> TextError {
    TextError::TooShort { origin: corpus.origin().to_owned(), found, needed, length, validation }
}
