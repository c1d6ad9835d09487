//! Everything that can be wrong with text and its tokenizers.

use std::io;

/// An error from reading text or from making tokens of it.
///
/// `origin` is the path of a file or folder, or words for text that comes from no file. Offsets count bytes from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum TextError {
    /// The path of the text does not exist.
    #[error("there is no file or folder {path}; correct the path")]
    Missing { path: String },

    /// A device, a socket or a pipe.
    #[error("{path} is neither a file nor a folder; name a file of text, or a folder of such files")]
    Special { path: String },

    /// A file that shall be text is something else.
    #[error("{origin}: byte {offset} (0x{byte:02x}) is not UTF-8; save the file as UTF-8 text")]
    NotUtf8 { origin: String, offset: usize, byte: u8 },

    /// A folder without a single file of text.
    #[error("the folder {folder} holds no text{left_out}; name another one")]
    NoText { folder: String, left_out: String },

    /// No path was named, and there is no built-in text.
    #[error(
        "no text was named, and this build holds none of its own (it was made without the project's sources); \
         name a file or a folder"
    )]
    NoBuiltIn,

    /// Not enough text for one sequence in each part.
    #[error(
        "{origin} is too short: it makes {found} tokens, but {needed} are needed for {} of length {length}; take more \
         text or shorter sequences",
        if *validation { "two sequences, one of them for validation," } else { "one sequence" }
    )]
    TooShort { origin: String, found: usize, needed: usize, length: usize, validation: bool },

    /// Sequences of no tokens.
    #[error("sequences of length 0; use at least 1")]
    Length,

    /// A share that is none.
    #[error("a share of {share} for validation; use at least 0 and less than 1")]
    Validation { share: f64 },

    /// The word for a tokenizer is neither known nor a path.
    #[error(
        "{word:?} is neither a known tokenizer nor an existing file; use bytes, characters, or the path of a \
         tokenizer.json"
    )]
    UnknownTokenizer { word: String },

    /// A file that shall hold a tokenizer holds something else.
    #[error("{origin} holds no usable tokenizer: {problem}; name a tokenizer.json or a file that Meshwork saved")]
    Tokenizer { origin: String, problem: String },

    /// The program was compiled without the reader of `tokenizer.json`.
    #[error(
        "{origin} is a tokenizer.json, which this build cannot read; compile with the feature \"tokenizer-files\", or \
         use bytes or characters"
    )]
    TokenizerFiles { origin: String },

    /// A tokenizer has no token for some text.
    #[error("the tokenizer has no tokens for {origin}: {problem}; use a tokenizer that covers the text")]
    Encode { origin: String, problem: String },

    /// A tokenizer cannot be saved.
    #[error("cannot save the tokenizer as {path}: {source}; check that the folder exists and that you may write there")]
    Save { path: String, source: io::Error },

    /// What is at the cache's path was not written as a cache.
    #[error("{path} is no cache of tokens and is left as it is; name another path for the cache, or remove the file")]
    NotACache { path: String },

    /// The cache of tokens cannot be written.
    #[error("cannot write the cache of tokens {path}: {source}; name another path for the cache, or go without")]
    WriteCache { path: String, source: io::Error },
}
