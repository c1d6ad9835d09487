//! Data sets, texts and tokenizers: what is read, in which order, and what is said where it cannot be.

mod common;
mod corpus;
mod csv;
mod idx;
mod loader;
mod loader_failures;
mod source;
mod text;
mod token_cache;
mod tokenizer;
#[cfg(feature = "tokenizer-files")]
mod tokenizer_file;
