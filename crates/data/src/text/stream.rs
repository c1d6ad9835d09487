//! Decoding tokens while they come.

use super::Tokenizer;
use super::tokenizer::BYTES_END;

/// Decodes tokens one after the other and gives whole characters: bytes of a character that is not complete are kept
/// until it is.
///
/// The pieces put together are what [`Tokenizer::decode`] makes of all the tokens. (Of tokens by a `tokenizer.json`,
/// where their text is valid; bytes that never make a character may come out as another number of U+FFFD.)
#[derive(Clone, Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    /// Bytes of an incomplete character; only for [`Tokenizer::Bytes`].
    bytes: Vec<u8>,
    /// The latest tokens; only for those of a `tokenizer.json`.
    #[cfg(feature = "tokenizer-files")]
    tokens: Vec<u32>,
    /// How many of them have been given as text; they stay because the text of a token may depend on those before it.
    #[cfg(feature = "tokenizer-files")]
    given: usize,
}

impl TextStream {
    pub(super) fn new(tokenizer: Tokenizer) -> Self {
        Self {
            tokenizer,
            bytes: Vec::new(),
            #[cfg(feature = "tokenizer-files")]
            tokens: Vec::new(),
            #[cfg(feature = "tokenizer-files")]
            given: 0,
        }
    }

    /// The characters that this token completes; often one, or a few, or none.
    pub fn push(&mut self, token: u32) -> String {
        match &self.tokenizer {
            Tokenizer::Bytes => match u8::try_from(token) {
                Ok(byte) => {
                    self.bytes.push(byte);
                    complete(&mut self.bytes)
                }
                Err(_) if token == BYTES_END => String::new(),
                Err(_) => self.rest() + "\u{FFFD}",
            },
            Tokenizer::Characters(characters) => characters.decode(token).into_iter().collect(),
            #[cfg(feature = "tokenizer-files")]
            Tokenizer::File(_) => {
                self.tokens.push(token);
                let text = self.later_text();
                if text.ends_with(char::REPLACEMENT_CHARACTER) {
                    return String::new();
                }
                if !text.is_empty() {
                    self.tokens.drain(..self.given);
                    self.given = self.tokens.len();
                }
                text
            }
        }
    }

    /// What is left: U+FFFD for a character that was never completed, mostly nothing.
    pub fn finish(mut self) -> String {
        self.rest()
    }

    fn rest(&mut self) -> String {
        match &self.tokenizer {
            #[cfg(feature = "tokenizer-files")]
            Tokenizer::File(_) => self.later_text(),
            _ => String::from_utf8_lossy(&std::mem::take(&mut self.bytes)).into_owned(),
        }
    }

    /// The text of the tokens that have not been given, in the place where they stand.
    #[cfg(feature = "tokenizer-files")]
    fn later_text(&self) -> String {
        let before = self.tokenizer.decode(&self.tokens[..self.given]);
        let mut text = self.tokenizer.decode(&self.tokens);
        match text.strip_prefix(&before) {
            Some(_) => text.split_off(before.len()),
            None => self.tokenizer.decode(&self.tokens[self.given..]),
        }
    }
}

/// Takes the complete characters, and U+FFFD for what can be no part of one, from the front of `bytes`.
fn complete(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    loop {
        match std::str::from_utf8(bytes) {
            Ok(valid) => {
                text.push_str(valid);
                bytes.clear();
                return text;
            }
            Err(error) => {
                let valid: Vec<u8> = bytes.drain(..error.valid_up_to()).collect();
                text.push_str(&String::from_utf8_lossy(&valid));
                let Some(invalid) = error.error_len() else {
                    return text;
                };
                bytes.drain(..invalid);
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }
}
