//! Tokens kept in a file, which is mapped into memory when it is used again.
//!
//! # Format
//! Little endian. A header of 88 bytes: magic `MWTOKENS`, version (u32), bytes of a token (u32: 2 or 4), fingerprint of
//! the tokenizer (u128), fingerprint of the text (u128), number of tokens (u64), XXH3-128 of all tokens' bytes, XXH3-128 of
//! the header up to here. Then the tokens.
//!
//! # Many writers
//! A cache is written under a temporary name and renamed when it is complete, and never changed after that: readers see
//! all of it or none, and who has mapped it keeps it when another one takes its name. (A cache that someone cuts off while it
//! is mapped ends the program that reads it; nothing in Meshwork does that.)
#![allow(unsafe_code, reason = "files can be mapped into memory only where nobody changes them")]

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, Write};
use std::path::Path;

use memmap2::Mmap;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::TextError;
use super::tokens::{Tokens, Width};
use crate::{DataError, Result};

const MAGIC: &[u8; 8] = b"MWTOKENS";
const VERSION: u32 = 1;
const HEADER: usize = 88;

/// What the tokens in a cache are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub tokenizer: u128,
    pub text: u128,
    pub width: Width,
}

/// The tokens of a file in memory.
#[derive(Debug)]
pub(super) struct Mapped {
    map: Mmap,
    width: Width,
}

impl Mapped {
    pub fn width(&self) -> Width {
        self.width
    }

    pub fn bytes(&self) -> &[u8] {
        &self.map[HEADER..]
    }
}

/// What was found where a cache is kept.
#[derive(Debug)]
pub(super) enum Found {
    /// The tokens that were wanted.
    Tokens(Tokens),
    /// No file.
    Nothing,
    /// A cache that cannot be used, and why.
    Unusable(String),
}

/// Looks for the tokens of `key` and checks every byte of them.
pub(super) fn open(path: &Path, key: Key) -> Result<Found> {
    let unreadable = |source| DataError::Read { origin: path.display().to_string(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Found::Nothing);
        }
        Err(error) => return Err(unreadable(error)),
    };
    let metadata = file.metadata().map_err(unreadable)?;
    let foreign = || Err(TextError::NotACache { path: path.display().to_string() }.into());
    if !metadata.is_file() {
        return foreign();
    }
    if metadata.len() == 0 {
        return Ok(Found::Unusable("it was empty".to_owned()));
    }
    // SAFETY: caches are renamed into place when they are complete, and not written to after that.
    let map = unsafe { Mmap::map(&file) }.map_err(unreadable)?;
    if !map.starts_with(&MAGIC[..map.len().min(MAGIC.len())]) {
        return foreign();
    }
    match check(&map, key) {
        Ok(()) => Ok(Found::Tokens(Tokens::mapped(Mapped { map, width: key.width }))),
        Err(why) => Ok(Found::Unusable(why.to_owned())),
    }
}

/// Whether the bytes of a cache are the tokens of `key`, or why not.
fn check(bytes: &[u8], key: Key) -> Result<(), &'static str> {
    let Some((header, tokens)) = bytes.split_at_checked(HEADER) else {
        return Err("it was cut off");
    };
    let expected =
        Header { key, count: (tokens.len() / key.width.bytes()) as u64, tokens: xxh3_128(tokens) }.to_bytes();
    if header == expected && tokens.len().is_multiple_of(key.width.bytes()) {
        return Ok(());
    }
    let field = |range: std::ops::Range<usize>| header[range.clone()] != expected[range];
    Err(if header[72..] != xxh3_128(&header[..72]).to_le_bytes() {
        "it was damaged"
    } else if field(8..12) {
        "it was of another version of Meshwork"
    } else if field(12..32) {
        "it was made by another tokenizer"
    } else if field(32..48) {
        "it was of another text"
    } else if field(48..56) || !tokens.len().is_multiple_of(key.width.bytes()) {
        "it was cut off"
    } else {
        "it was damaged"
    })
}

struct Header {
    key: Key,
    count: u64,
    /// The hash of the tokens.
    tokens: u128,
}

impl Header {
    fn to_bytes(&self) -> [u8; HEADER] {
        let Self { key, count, tokens } = self;
        let mut bytes = [0; HEADER];
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..][..field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(MAGIC);
        put(&VERSION.to_le_bytes());
        put(&(key.width.bytes() as u32).to_le_bytes());
        put(&key.tokenizer.to_le_bytes());
        put(&key.text.to_le_bytes());
        put(&count.to_le_bytes());
        put(&tokens.to_le_bytes());
        let hash = xxh3_128(&bytes[..HEADER - 16]);
        bytes[HEADER - 16..].copy_from_slice(&hash.to_le_bytes());
        bytes
    }
}

/// Writes the tokens that `produce` gives its argument, and maps them.
pub(super) fn write(
    path: &Path,
    key: Key,
    produce: impl FnOnce(&mut dyn FnMut(&[u32]) -> Result<()>) -> Result<()>,
) -> Result<Tokens> {
    let refused = |source| DataError::from(TextError::WriteCache { path: path.display().to_string(), source });
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(refused)?;
    let mut temporary = new_file(folder).map_err(refused)?;
    let mut writer = BufWriter::with_capacity(1 << 20, temporary.as_file_mut());
    writer.write_all(&[0; HEADER]).map_err(refused)?;
    let (mut hash, mut count, mut bytes) = (Xxh3::new(), 0, Vec::new());
    produce(&mut |tokens| {
        bytes.clear();
        match key.width {
            Width::Two => bytes.extend(tokens.iter().flat_map(|&token| (token as u16).to_le_bytes())),
            Width::Four => bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes())),
        }
        hash.update(&bytes);
        count += tokens.len() as u64;
        writer.write_all(&bytes).map_err(refused)
    })?;
    let header = Header { key, count, tokens: hash.digest128() }.to_bytes();
    let written = writer.rewind().and_then(|()| writer.write_all(&header)).and_then(|()| writer.flush());
    written.map_err(refused)?;
    drop(writer);
    temporary.as_file().sync_all().map_err(refused)?;
    let file = temporary.persist(path).map_err(|error| refused(error.error))?;
    // SAFETY: the file is complete, and nobody writes to it any more; see the module's text.
    let map = unsafe { Mmap::map(&file) }.map_err(refused)?;
    Ok(Tokens::mapped(Mapped { map, width: key.width }))
}

/// A file of a new name, which is removed if it is dropped.
fn new_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tokens-").suffix(".tmp");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}
