//! Files that get a line for every step of a training, and are cut where a resumed run goes on.

use crate::failure::Failure;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// What such a file is for, as messages say it.
#[derive(Clone, Copy, Debug)]
pub struct Purpose {
    /// The flag that asked for it: `--log`.
    pub flag: &'static str,
    /// What a wrong line is not of: `a log`.
    pub what: &'static str,
    /// What to do about a file of something else.
    pub advice: &'static str,
}

/// An open file.
pub struct LineFile {
    purpose: Purpose,
    path: PathBuf,
    file: File,
}

impl LineFile {
    /// A new file, in place of what is there.
    ///
    /// # Errors
    /// A path that cannot be written.
    pub fn create(purpose: Purpose, path: &Path) -> Result<LineFile, Failure> {
        let file = File::create(path).map_err(|e| purpose.cannot("write", path, &e))?;
        Ok(LineFile { purpose, path: path.to_owned(), file })
    }

    /// Goes on with a file. `kept` says how many bytes of its text stay, or the number of the first line that is not of such a
    /// file.
    ///
    /// # Errors
    /// A file of something else, or one that cannot be read or written.
    pub fn resume(
        purpose: Purpose,
        path: &Path,
        kept: impl FnOnce(&str) -> Result<usize, usize>,
    ) -> Result<LineFile, Failure> {
        let text = purpose.read(path)?;
        let kept = kept(&text).map_err(|line| purpose.other(path, line))?;
        let open = || {
            let mut file = OpenOptions::new().write(true).open(path)?;
            file.set_len(kept as u64)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        let file = open().map_err(|e| purpose.cannot("write", path, &e))?;
        Ok(LineFile { purpose, path: path.to_owned(), file })
    }

    /// Adds text that ends a line.
    ///
    /// # Errors
    /// A full disk, say.
    pub fn write(&mut self, text: &str) -> Result<(), Failure> {
        self.file.write_all(text.as_bytes()).map_err(|e| self.purpose.cannot("write", &self.path, &e))
    }
}

impl Purpose {
    /// The text of a file; what is no text is a file of something else.
    pub fn read(self, path: &Path) -> Result<String, Failure> {
        let bytes = std::fs::read(path).map_err(|e| self.cannot("read", path, &e))?;
        String::from_utf8(bytes).map_err(|e| {
            let valid = &e.as_bytes()[..e.utf8_error().valid_up_to()];
            self.other(path, 1 + valid.iter().filter(|byte| **byte == b'\n').count())
        })
    }

    /// A path that cannot be read or written.
    pub fn cannot(self, what: &str, path: &Path, error: &std::io::Error) -> Failure {
        Failure::System(format!("{}: cannot {what} {}: {error}", self.flag, path.display()))
    }

    /// A file of something else.
    pub fn other(self, path: &Path, line: usize) -> Failure {
        let Purpose { flag, what, advice } = self;
        Failure::Mistake(format!("{flag}: line {line} of {} is not of {what}; {advice}", path.display()))
    }
}

/// Bytes of a text up to the first line that does not stay, or the number of a line that is of something else (`None`). A last
/// line that was cut off in the middle goes, too.
pub fn kept_bytes(text: &str, stays: impl Fn(&str) -> Option<bool>) -> Result<usize, usize> {
    let mut kept = 0;
    for (i, line) in text.split_inclusive('\n').enumerate() {
        if !line.ends_with('\n') || !stays(line.trim_end()).ok_or(i + 1)? {
            break;
        }
        kept += line.len();
    }
    Ok(kept)
}
