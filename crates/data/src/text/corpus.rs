//! Text to train with, as documents in memory.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use xxhash_rust::xxh3::Xxh3;

use super::TextError;
use super::folder::{LeftOut, read_folder};
use crate::gz::Input;
use crate::{DataError, Result};

/// A text that stands by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its path below the folder, with `/` between names, or the path that it was opened by.
    pub name: String,
    /// What it says.
    pub text: Cow<'static, str>,
}

/// Documents in a certain order.
#[derive(Clone, Debug)]
pub struct Corpus {
    origin: String,
    documents: Vec<Document>,
    left_out: Vec<LeftOut>,
}

/// How many of the files that are left out are named.
const NAMED: usize = 5;

impl Corpus {
    /// The text of a file, plain or packed with gzip, as one document; or of all files in a folder and the folders in it,
    /// in the byte order of their relative paths.
    ///
    /// Of a folder, hidden files and folders, folders of the name `target`, symbolic links, empty files and what is no
    /// UTF-8 text are left out and listed in [`left_out`](Self::left_out).
    ///
    /// # Errors
    /// [`TextError::Missing`], [`TextError::Special`], [`TextError::NotUtf8`] and [`DataError::Empty`] for a file,
    /// [`TextError::NoText`] for a folder, [`DataError::Read`] for either.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let origin = path.display().to_string();
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(TextError::Missing { path: origin }.into());
            }
            Err(source) => return Err(DataError::Read { origin, source }),
        };
        let corpus = if metadata.is_dir() {
            let (documents, left_out) = read_folder(path)?;
            Self { origin, documents, left_out }
        } else if metadata.is_file() {
            let text = Cow::Owned(read_file(path)?);
            let documents = vec![Document { name: origin.clone(), text }];
            Self { origin, documents, left_out: Vec::new() }
        } else {
            return Err(TextError::Special { path: origin }.into());
        };
        if corpus.documents.is_empty() {
            return Err(
                TextError::NoText { folder: corpus.origin.clone(), left_out: corpus.list_left_out(" (", ")") }.into()
            );
        }
        Ok(corpus)
    }

    /// Documents that are there already, as pairs of name and text; `origin` says in errors and notes where they are from.
    ///
    /// # Errors
    /// [`DataError::Empty`] where there is no text.
    pub fn of(
        origin: impl Into<String>,
        documents: impl IntoIterator<Item = (impl Into<String>, impl Into<Cow<'static, str>>)>,
    ) -> Result<Self> {
        let documents = documents.into_iter().map(|(name, text)| Document { name: name.into(), text: text.into() });
        let documents: Vec<Document> = documents.filter(|document| !document.text.is_empty()).collect();
        let origin = origin.into();
        if documents.is_empty() {
            return Err(DataError::Empty { origin, what: "text" });
        }
        Ok(Self { origin, documents, left_out: Vec::new() })
    }

    /// The path, or words for text that is from no file.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The documents in their order; none is empty.
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    /// What of a folder was not read, in the order of the paths.
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The bytes of all documents together.
    pub fn num_bytes(&self) -> usize {
        self.documents.iter().map(|document| document.text.len()).sum()
    }

    /// A hash of the texts and of where one ends and the next begins. Names do not count.
    pub fn fingerprint(&self) -> u128 {
        let mut hash = Xxh3::new();
        for Document { text, .. } in &self.documents {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        }
        hash.digest128()
    }

    /// `BEFORE left out: a (hidden), b (binary) and 3 more AFTER`, or nothing.
    pub(super) fn list_left_out(&self, before: &str, after: &str) -> String {
        let Some(more) = self.left_out.len().checked_sub(1) else {
            return String::new();
        };
        let mut list = format!("{before}left out: {}", self.left_out[0]);
        for left_out in self.left_out.iter().skip(1).take(NAMED - 1) {
            let _ = write!(list, ", {left_out}");
        }
        if more >= NAMED {
            let _ = write!(list, " and {} more", more + 1 - NAMED);
        }
        list + after
    }
}

fn read_file(path: &Path) -> Result<String> {
    let mut input = Input::open(path)?;
    let mut bytes = Vec::new();
    input.read_up_to(u64::MAX, &mut bytes)?;
    if bytes.is_empty() {
        return Err(DataError::Empty { origin: input.origin, what: "text" });
    }
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to();
        TextError::NotUtf8 { origin: input.origin, offset, byte: error.as_bytes()[offset] }.into()
    })
}
