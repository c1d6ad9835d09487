//! Size and hash of every file of a checkpoint.

use super::{CheckpointError, FORMAT, Result, disk};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// The file's name.
pub const NAME: &str = "manifest.json";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    format: u32,
    files: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    size: u64,
    xxh3: String,
}

impl Manifest {
    /// Describes files by name.
    pub fn of(files: &[(&str, &[u8])]) -> Manifest {
        let entry = |bytes: &[u8]| Entry { size: bytes.len() as u64, xxh3: format!("{:016x}", xxh3_64(bytes)) };
        Manifest { format: FORMAT, files: files.iter().map(|(name, bytes)| (name.to_string(), entry(bytes))).collect() }
    }

    pub fn save(&self, folder: &Path) -> Result<()> {
        disk::write(&folder.join(NAME), &to_json(self))
    }

    pub fn load(folder: &Path) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct FormatOnly {
            format: u32,
        }
        let path = folder.join(NAME);
        let bytes = fs::read(&path).map_err(CheckpointError::io("read", &path))?;
        // The format first: newer ones may have other fields.
        if let Ok(FormatOnly { format }) = serde_json::from_slice(&bytes)
            && format != FORMAT
        {
            return Err(CheckpointError::Format { path, found: format });
        }
        from_json(&bytes, &path)
    }

    /// Whether a file belongs to the checkpoint.
    pub fn lists(&self, name: &str) -> bool {
        self.files.contains_key(name)
    }

    /// Reads a file and checks that it is what was saved.
    pub fn read(&self, folder: &Path, name: &str) -> Result<Vec<u8>> {
        let path = folder.join(name);
        let manifest = folder.join(NAME);
        let entry = self.files.get(name).ok_or_else(|| damaged(&manifest, format!("it does not list {name}")))?;
        let expected_hash = u64::from_str_radix(&entry.xxh3, 16)
            .map_err(|_| damaged(&manifest, format!("{:?} is no hash of 16 hexadecimal digits", entry.xxh3)))?;
        let bytes = fs::read(&path).map_err(CheckpointError::io("read", &path))?;
        let (found, expected, by) = (bytes.len() as u64, entry.size, "manifest.json beside it");
        if found < expected {
            return Err(CheckpointError::Truncated { path, by, expected, found });
        }
        if found > expected {
            return Err(CheckpointError::Trailing { path, by, expected, found });
        }
        let hash = xxh3_64(&bytes);
        if hash != expected_hash {
            return Err(CheckpointError::Hash { path, size: found, expected: expected_hash, found: hash });
        }
        Ok(bytes)
    }
}

fn damaged(path: &Path, problem: String) -> CheckpointError {
    CheckpointError::Text { path: path.to_owned(), line: 1, column: 1, problem }
}

/// JSON in lines, with a line break at the end.
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).expect("maps with text as keys are JSON");
    bytes.push(b'\n');
    bytes
}

/// Reads JSON; `path` is where it comes from.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8], path: &Path) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| {
        let text = e.to_string();
        let problem = text.split_once(" at line ").map_or(text.as_str(), |(problem, _)| problem).to_string();
        CheckpointError::Text { path: path.to_owned(), line: e.line(), column: e.column(), problem }
    })
}
