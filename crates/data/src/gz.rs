//! Reading a file that may be packed with gzip, told by its first bytes and not by its name.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use crate::{DataError, Result};

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Enough for a byte order mark as well, which the CSV reader finds only if the first read returns all of it.
const HEAD_LEN: u64 = 4;

/// The unpacked bytes of a source.
pub(crate) struct Input {
    /// What errors call the source: its path, or words.
    pub origin: String,
    /// Whether the bytes come out of gzip.
    packed: bool,
    reader: Box<dyn Read>,
}

impl Input {
    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self> {
        let origin = path.display().to_string();
        let file = File::open(path).and_then(|file| Self::new(&origin, BufReader::new(file)));
        file.map_err(|source| DataError::Read { origin, source })
    }

    /// Looks at the first bytes of `reader` and unpacks from there.
    pub fn new(origin: &str, mut reader: impl Read + 'static) -> io::Result<Self> {
        let mut head = Vec::new();
        reader.by_ref().take(HEAD_LEN).read_to_end(&mut head)?;
        let packed = head.starts_with(&GZIP_MAGIC);
        let whole = Cursor::new(head).chain(reader);
        Ok(Self {
            origin: origin.to_owned(),
            packed,
            reader: if packed { Box::new(MultiGzDecoder::new(whole)) } else { Box::new(whole) },
        })
    }

    /// The error for a failed read after `offset` unpacked bytes.
    pub fn error(origin: &str, packed: bool, offset: u64, source: io::Error) -> DataError {
        let origin = origin.to_owned();
        if packed { DataError::Gzip { origin, offset, source } } else { DataError::Read { origin, source } }
    }

    /// Whether the bytes come out of gzip.
    pub fn is_packed(&self) -> bool {
        self.packed
    }

    /// Appends up to `limit` bytes to `bytes`; memory grows with what is really there.
    pub fn read_up_to(&mut self, limit: u64, bytes: &mut Vec<u8>) -> Result<()> {
        let result = self.reader.by_ref().take(limit).read_to_end(bytes);
        result.map(drop).map_err(|source| Self::error(&self.origin, self.packed, bytes.len() as u64, source))
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}
