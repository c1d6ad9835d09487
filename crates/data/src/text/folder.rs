//! The files of text in a folder.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use super::Document;
use crate::{DataError, Result};

/// A file or folder that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its path below the folder that was opened, with `/` between names.
    pub path: String,
    /// Why.
    pub reason: LeftOutReason,
}

/// Why a file or folder was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeftOutReason {
    /// Its name begins with a dot.
    Hidden,
    /// A folder of the name `target`, where build tools put what they make.
    Target,
    /// A symbolic link to something in the folder, which is read where it lies.
    Link,
    /// A symbolic link to something outside of the folder, or to nothing.
    LinkOut,
    /// A device, a socket or a pipe.
    Special,
    /// There is a byte 0 in it.
    Binary,
    /// It is no UTF-8 text from this byte on.
    NotUtf8(usize),
    /// It has no bytes.
    Empty,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.path, self.reason)
    }
}

impl fmt::Display for LeftOutReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hidden => f.write_str("hidden"),
            Self::Target => f.write_str("build output"),
            Self::Link => f.write_str("a link"),
            Self::LinkOut => f.write_str("a link that leads out"),
            Self::Special => f.write_str("neither file nor folder"),
            Self::Binary => f.write_str("binary"),
            Self::NotUtf8(offset) => write!(f, "not UTF-8 at byte {offset}"),
            Self::Empty => f.write_str("empty"),
        }
    }
}

/// The documents in a folder and what is left out, each in the byte order of the paths.
pub(super) fn read_folder(root: &Path) -> Result<(Vec<Document>, Vec<LeftOut>)> {
    let mut found = Found { root: fs::canonicalize(root).map_err(unreadable(root))?, ..Found::default() };
    found.walk(root, "")?;
    found.files.sort();
    let mut documents = Vec::with_capacity(found.files.len());
    for (name, path) in found.files {
        let bytes = fs::read(&path).map_err(unreadable(&path))?;
        match text(bytes) {
            Ok(text) => documents.push(Document { name, text: Cow::Owned(text) }),
            Err(reason) => found.left_out.push(LeftOut { path: name, reason }),
        }
    }
    found.left_out.sort_by(|a, b| a.path.cmp(&b.path));
    Ok((documents, found.left_out))
}

/// The text of a file, or why it is none.
fn text(bytes: Vec<u8>) -> Result<String, LeftOutReason> {
    if bytes.is_empty() {
        Err(LeftOutReason::Empty)
    } else if bytes.contains(&0) {
        Err(LeftOutReason::Binary)
    } else {
        String::from_utf8(bytes).map_err(|error| LeftOutReason::NotUtf8(error.utf8_error().valid_up_to()))
    }
}

#[derive(Default)]
struct Found {
    /// The folder, without symbolic links.
    root: PathBuf,
    files: Vec<(String, PathBuf)>,
    left_out: Vec<LeftOut>,
}

impl Found {
    fn walk(&mut self, folder: &Path, below: &str) -> Result<()> {
        for entry in fs::read_dir(folder).map_err(unreadable(folder))? {
            let entry = entry.map_err(unreadable(folder))?;
            let (path, kind) = (entry.path(), entry.file_type().map_err(unreadable(folder))?);
            let name = entry.file_name();
            let relative = format!("{below}{}", name.to_string_lossy());
            let reason = if name.as_encoded_bytes().starts_with(b".") {
                LeftOutReason::Hidden
            } else if kind.is_symlink() {
                self.link(&path)
            } else if kind.is_dir() && name == "target" {
                LeftOutReason::Target
            } else if kind.is_dir() {
                self.walk(&path, &format!("{relative}/"))?;
                continue;
            } else if kind.is_file() {
                self.files.push((relative, path));
                continue;
            } else {
                LeftOutReason::Special
            };
            self.left_out.push(LeftOut { path: relative, reason });
        }
        Ok(())
    }

    fn link(&self, path: &Path) -> LeftOutReason {
        match fs::canonicalize(path) {
            Ok(target) if target.starts_with(&self.root) => LeftOutReason::Link,
            _ => LeftOutReason::LinkOut,
        }
    }
}

fn unreadable(path: &Path) -> impl Fn(io::Error) -> DataError + use<> {
    let origin = path.display().to_string();
    move |source| DataError::Read { origin: origin.clone(), source }
}
