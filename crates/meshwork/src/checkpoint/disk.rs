//! Changes on the disk that are there as a whole or not at all.

use super::{CheckpointError, Result};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Temporary names begin with this; whatever carries it is left over from a process that died.
pub const TEMPORARY: &str = ".unfinished-";

/// Writes a file and waits until it is on the disk. Not atomic.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = || {
        let mut file = File::create(path)?;
        moment().inspect_err(|_| _ = file.write_all(&bytes[..bytes.len() / 2]))?;
        file.write_all(bytes)?;
        moment()?;
        file.sync_all()
    };
    write().map_err(CheckpointError::io("write", path))
}

/// Replaces a file: at any moment the old or the new one is there.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = beside(path);
    write(&temporary, bytes)?;
    rename(&temporary, path)
}

/// Makes `path` the same file as `original`, or a copy where the file system has no links.
pub fn replace_by_link(path: &Path, original: &Path) -> Result<()> {
    let temporary = beside(path);
    remove(&temporary)?;
    let link = moment().and_then(|()| fs::hard_link(original, &temporary));
    if link.is_err() {
        let bytes = fs::read(original).map_err(CheckpointError::io("read", original))?;
        write(&temporary, &bytes)?;
    }
    rename(&temporary, path)
}

/// Renames, and waits until the new name is on the disk.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    moment().and_then(|()| fs::rename(from, to)).map_err(CheckpointError::io("rename a finished file to", to))?;
    match to.parent() {
        Some(folder) => sync_folder(folder),
        None => Ok(()),
    }
}

/// Waits until the names in a folder are on the disk.
pub fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let sync = || {
        moment()?;
        if cfg!(unix) { File::open(folder)?.sync_all() } else { Ok(()) }
    };
    sync().map_err(CheckpointError::io("synchronise", folder))
}

/// Makes a folder with those above it.
pub fn make_folder(path: &Path) -> Result<()> {
    moment().and_then(|()| fs::create_dir_all(path)).map_err(CheckpointError::io("make the folder", path))
}

/// Removes a file or a folder with everything in it, if there is one.
pub fn remove(path: &Path) -> Result<()> {
    let remove = || {
        moment()?;
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_dir() => fs::remove_dir_all(path),
            Ok(_) => fs::remove_file(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    };
    remove().map_err(CheckpointError::io("remove", path))
}

/// The temporary name of something that is to become `path`.
pub fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{TEMPORARY}{name}"))
}

/// A moment at which the process may die. Tests let it.
fn moment() -> io::Result<()> {
    #[cfg(test)]
    if !tests::alive() {
        return Err(io::Error::other("the test pulled the plug"));
    }
    Ok(())
}

#[cfg(test)]
pub mod tests {
    use std::cell::Cell;

    thread_local! {
        static MOMENTS_LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// Lets everything of this module fail after so many more moments; `None` brings the disk back.
    pub fn pull_the_plug_after(moments: Option<usize>) {
        MOMENTS_LEFT.set(moments);
    }

    pub fn alive() -> bool {
        match MOMENTS_LEFT.get() {
            None => true,
            Some(0) => false,
            Some(n) => {
                MOMENTS_LEFT.set(Some(n - 1));
                true
            }
        }
    }
}
