//! Everything that can be wrong with data: what it is, where, and what to do about it.

use std::error::Error;
use std::fmt::Write as _;
use std::io;

use crate::{Position, Searched, TextError};

/// An error from a data source, a dataset or a loader.
///
/// `origin` is the file's path, or words for data that comes from no file. Offsets count bytes from the
/// start of the unpacked file, lines and columns count from 1, samples count from 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the message of each variant says what its fields are")]
pub enum DataError {
    /// The operating system refused to open or read a file.
    #[error("cannot read {origin}: {source}; check that it is a file and that you may read it")]
    Read { origin: String, source: io::Error },

    /// A gzip stream ends early, fails its checksum or is no valid deflate stream.
    #[error(
        "{origin}: broken gzip data after {offset} unpacked bytes ({source}); \
         the file is damaged or its download was cut off, get it again"
    )]
    Gzip { origin: String, offset: u64, source: io::Error },

    /// A file or a table without a single sample.
    #[error("{origin} is empty: it holds no {what}; get the file again or name another one")]
    Empty { origin: String, what: &'static str },

    /// The first four bytes are not those of the wanted kind of IDX file.
    #[error(
        "{origin}: bytes 0 to 3 are {found:02x?}, but an IDX file of {what} starts with {wanted:02x?} \
         ({hint})"
    )]
    IdxMagic { origin: String, what: &'static str, found: [u8; 4], wanted: [u8; 4], hint: String },

    /// The sizes in an IDX header cannot be true.
    #[error("{origin}: the IDX header names the sizes {sizes:?}, {problem}; get the file again")]
    IdxSizes { origin: String, sizes: Vec<u32>, problem: &'static str },

    /// An IDX file ends before the bytes that its header announces.
    #[error(
        "{origin} is cut off: it ends at byte {found}, but its header announces {expected} bytes; \
         get the file again"
    )]
    IdxTruncated { origin: String, expected: u64, found: u64 },

    /// An IDX file goes on after the bytes that its header announces.
    #[error(
        "{origin} has bytes to spare: its header announces {expected} bytes, but the file goes on at \
         byte {expected}; get the file again"
    )]
    IdxTrailing { origin: String, expected: u64 },

    /// Images and labels do not pair up.
    #[error(
        "{images} holds {num_images} images, but {labels} holds {num_labels} labels; \
         take both files from the same data set"
    )]
    CountMismatch { images: String, num_images: usize, labels: String, num_labels: usize },

    /// The training and the test images have different shapes.
    #[error(
        "{train} holds samples of shape {train_shape:?}, but {test} of {test_shape:?}; \
         take both files from the same data set"
    )]
    ShapeMismatch { train: String, train_shape: Vec<usize>, test: String, test_shape: Vec<usize> },

    /// A label is not the number of a class.
    #[error(
        "{origin}: sample {sample}{} has the label {label}, outside of 0..{num_classes}; correct \
         the label or the number of classes",
        offset.map(|offset| format!(" (byte {offset})")).unwrap_or_default()
    )]
    LabelRange { origin: String, sample: usize, offset: Option<u64>, label: i64, num_classes: usize },

    /// A cell of a CSV table cannot be understood.
    #[error(
        "{origin}, line {line}, column {column}{}: {cell:?} is not {wanted}; correct the cell",
        name.as_ref().map(|name| format!(" ({name})")).unwrap_or_default()
    )]
    CsvCell { origin: String, line: u64, column: usize, name: Option<String>, cell: String, wanted: &'static str },

    /// A line of a CSV table has more or fewer cells than the first one.
    #[error("{origin}, line {line}: {found} columns, but the first line has {expected}; correct the line")]
    CsvColumns { origin: String, line: u64, expected: usize, found: usize },

    /// The label column was not found, or nothing is left beside it.
    #[error("{origin}: {problem}")]
    CsvLabel { origin: String, problem: String },

    /// The feature columns do not make an image of the wanted size.
    #[error(
        "{origin} has {columns} columns beside the label, but images of {height}×{width} need {}; \
         correct the size of the images",
        height.saturating_mul(*width)
    )]
    CsvImages { origin: String, columns: usize, height: usize, width: usize },

    /// A line of a CSV table is not UTF-8 text.
    #[error("{origin}, line {line}: not UTF-8 text; save the table as comma-separated UTF-8 text")]
    CsvText { origin: String, line: u64, source: ::csv::Error },

    /// A known data set lies in none of the usual places.
    #[error("{}", not_found(name, places, hint))]
    NotFound { name: String, places: Vec<Searched>, hint: &'static str },

    /// Neither a known name nor an existing path.
    #[error(
        "{name:?} is neither a known data set nor an existing file or folder{}; known data sets are {}",
        nearest.map(|nearest| format!(" (did you mean {nearest:?}?)")).unwrap_or_default(),
        crate::NAMES.join(", ")
    )]
    UnknownName { name: String, nearest: Option<&'static str> },

    /// A folder lacks some of the four IDX files.
    #[error(
        "the folder {folder} lacks {}; it must hold the four IDX files, plain or with .gz",
        missing.join(", ")
    )]
    Incomplete { folder: String, missing: Vec<String> },

    /// Fields of a dataset contradict each other.
    #[error("field {name:?}: {problem}")]
    Field { name: String, problem: String },

    /// A sample was asked for that does not exist.
    #[error("sample {index} was asked for, but the dataset holds {len}; use an index below {len}")]
    OutOfRange { index: usize, len: usize },

    /// A data set is too small to be split into training and test part.
    #[error("{origin} holds {len} samples; at least 5 are needed to hold a fifth back as test set")]
    TooSmall { origin: String, len: usize },

    /// A setting of a loader makes no sense.
    #[error("loader: {problem}")]
    Options { problem: String },

    /// A saved position lies outside of the dataset.
    #[error(
        "loader: the position is epoch {}, sample {}, but an epoch has {len} samples; \
         resume with the dataset that the position was saved with",
        position.epoch, position.sample
    )]
    Position { position: Position, len: usize },

    /// Reading a sample failed; the cause says why.
    #[error("sample {index} (epoch {epoch}) cannot be read: {source}")]
    Sample { index: usize, epoch: u64, source: Box<DataError> },

    /// Code that reads samples panicked.
    #[error("reading {} (epoch {epoch}) panicked: {message}", match index {
        Some(index) => format!("sample {index}"),
        None => "a batch".to_owned(),
    })]
    Panic { index: Option<usize>, epoch: u64, message: String },

    /// The worker threads could not be started.
    #[error("cannot start worker thread {worker} of {num_workers}: {source}; use fewer workers")]
    Threads { worker: usize, num_workers: usize, source: io::Error },

    /// Something is wrong with text or its tokenizer.
    #[error(transparent)]
    Text(#[from] TextError),

    /// An error of a dataset written elsewhere.
    #[error("{0}")]
    Other(#[source] Box<dyn Error + Send + Sync>),
}

impl DataError {
    /// Wraps an error, or a message, of a dataset written elsewhere.
    pub fn other(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Other(error.into())
    }

    pub(crate) fn options(problem: impl Into<String>) -> Self {
        Self::Options { problem: problem.into() }
    }

    pub(crate) fn field(name: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field { name: name.into(), problem: problem.into() }
    }
}

fn not_found(name: &str, places: &[Searched], hint: &str) -> String {
    let mut text = format!("the data set {name:?} was found in none of these places:\n");
    for Searched { folder, missing } in places {
        let state = match missing {
            None => String::new(),
            Some(missing) => format!(" (there, but lacks {})", missing.join(", ")),
        };
        let _ = writeln!(text, "  {}{state}", folder.display());
    }
    text + hint
}
