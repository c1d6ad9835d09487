//! Text as data: a corpus of documents, tokens, and sequences of them as samples.
//!
//! [`open_text`] does all of it: it reads a file or a folder into a [`Corpus`], makes tokens of the documents with a
//! [`Tokenizer`], puts an end of text behind each, and packs them into [`Sequences`].
//!
//! ```
//! use meshwork_data::text::{TextSource, TokenizerChoice, open_text};
//!
//! let text = open_text(&TextSource {
//!     path: Some("src".into()),
//!     tokenizer: TokenizerChoice::Characters,
//!     length: 64,
//!     ..TextSource::default()
//! })?;
//! assert_eq!(text.pair.train.fields()[0].shape, [64]);
//! let tokens = text.tokenizer.encode("fn main()")?;
//! assert_eq!(text.tokenizer.decode(&tokens), "fn main()");
//! # Ok::<(), meshwork_data::DataError>(())
//! ```

mod cache;
mod characters;
mod choice;
mod corpus;
mod error;
#[cfg(feature = "tokenizer-files")]
mod file;
mod folder;
mod interchange;
mod open;
mod sequences;
mod stream;
mod tokenize;
mod tokenizer;
mod tokens;

pub use characters::Characters;
pub use choice::TokenizerChoice;
pub use corpus::{Corpus, Document};
pub use error::TextError;
#[cfg(feature = "tokenizer-files")]
pub use file::TokenizerFile;
pub use folder::{LeftOut, LeftOutReason};
pub use open::{Text, TextSource, open_text};
pub use sequences::Sequences;
pub use stream::TextStream;
pub use tokenizer::Tokenizer;
pub use tokens::Tokens;
