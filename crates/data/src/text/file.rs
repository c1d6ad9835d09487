//! Tokenizers that a `tokenizer.json` describes: BPE, Unigram, WordPiece, word level.

use serde::Deserialize;
use tokenizers::{ModelWrapper, Tokenizer};

use super::TextError;
use crate::Result;

/// A `tokenizer.json`, read by the crate `tokenizers`.
pub struct TokenizerFile {
    tokenizer: Tokenizer,
    json: String,
    vocabulary: usize,
    end_of_text: Option<u32>,
}

/// What tokenizers call the end of a text, in the order in which they are looked for: GPT-2 and many others, Llama 3,
/// Llama 2, Gemma, DeepSeek.
const END_OF_TEXT: [&str; 5] = ["<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<｜end▁of▁sentence｜>"];

/// The part of the file in which the crate does not believe it.
#[derive(Deserialize)]
struct Declared {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
}

#[derive(Deserialize)]
struct AddedToken {
    id: u32,
    content: String,
}

impl TokenizerFile {
    pub(super) fn parse(json: &str, origin: &str) -> Result<Self> {
        let wrong = |problem: tokenizers::Error| TextError::Tokenizer {
            origin: origin.to_owned(),
            problem: problem.to_string(),
        };
        let mut tokenizer: Tokenizer = json.parse().map_err(wrong)?;
        let declared: Declared = serde_json::from_str(json).map_err(|error| wrong(error.into()))?;
        for AddedToken { id, content } in declared.added_tokens {
            let given = tokenizer.token_to_id(&content);
            if let Some(given) = given.filter(|&given| given != id) {
                return Err(wrong(
                    format!(
                        "the added token {content:?} has the number {id}, but would get {given}: added tokens are \
                         counted on from the number of tokens in the model"
                    )
                    .into(),
                )
                .into());
            }
        }
        // They would cut documents off, or fill them up.
        tokenizer.with_truncation(None).map_err(wrong)?.with_padding(None);
        // Numbers may be missing in between.
        let vocabulary = tokenizer.get_vocab(true).into_values().max().map_or(0, |last| last as usize + 1);
        let end_of_text = END_OF_TEXT.iter().find_map(|name| tokenizer.token_to_id(name));
        Ok(Self { tokenizer, json: json.to_owned(), vocabulary, end_of_text })
    }

    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>> {
        match self.tokenizer.encode_fast(text, false) {
            Ok(encoding) => Ok(encoding.get_ids().to_vec()),
            Err(error) => {
                let start: String = text.chars().take(20).collect();
                let origin = format!("the text that begins with {start:?}");
                Err(TextError::Encode { origin, problem: error.to_string() }.into())
            }
        }
    }

    /// Where the file's decoder refuses, the tokens as they stand in the vocabulary.
    pub(super) fn decode(&self, tokens: &[u32]) -> String {
        let known = tokens.split(|&token| self.tokenizer.id_to_token(token).is_none());
        let parts: Vec<String> = known
            .map(|tokens| {
                self.tokenizer
                    .decode(tokens, true)
                    .unwrap_or_else(|_| tokens.iter().filter_map(|&token| self.tokenizer.id_to_token(token)).collect())
            })
            .collect();
        parts.join("\u{FFFD}")
    }

    pub(super) fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    pub(super) fn end_of_text(&self) -> Option<u32> {
        self.end_of_text
    }

    /// The text of the file.
    pub(super) fn json(&self) -> &str {
        &self.json
    }

    pub(super) fn model(&self) -> &'static str {
        match self.tokenizer.get_model() {
            ModelWrapper::BPE(_) => "BPE",
            ModelWrapper::WordPiece(_) => "WordPiece",
            ModelWrapper::WordLevel(_) => "word level",
            ModelWrapper::Unigram(_) => "Unigram",
        }
    }
}

impl PartialEq for TokenizerFile {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}
