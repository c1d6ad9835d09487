//! Which format is meant, by the path.

use std::path::{Path, PathBuf};

/// Where `--metrics` writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A line of JSON for every step.
    Jsonl(PathBuf),
    /// A row for every step.
    Csv(PathBuf),
    /// A folder of event files.
    TensorBoard(PathBuf),
}

impl Target {
    /// Whether this is the file of that path.
    pub fn is(&self, other: &Path) -> bool {
        let (Target::Jsonl(path) | Target::Csv(path) | Target::TensorBoard(path)) = self;
        let canonical = |path: &Path| path.canonicalize().ok();
        path == other || canonical(path).is_some_and(|path| canonical(other) == Some(path))
    }
}

/// The target of a path: by its ending, or a folder where it has none, is one, or ends with a slash.
pub fn target(text: &str) -> Result<Target, String> {
    let path = PathBuf::from(text);
    if text.ends_with(['/', std::path::MAIN_SEPARATOR]) || path.is_dir() {
        return Ok(Target::TensorBoard(path));
    }
    match path.extension().map(|ending| ending.to_ascii_lowercase()) {
        Some(ending) if ending == "jsonl" => Ok(Target::Jsonl(path)),
        Some(ending) if ending == "csv" => Ok(Target::Csv(path)),
        None if !text.is_empty() => Ok(Target::TensorBoard(path)),
        _ => {
            Err("a FILE.jsonl, a FILE.csv, or a folder for TensorBoard (with a slash at its end, if it has a dot)"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_names_the_format() {
        let path = |text: &str| PathBuf::from(text);
        assert_eq!(target("a/b.jsonl"), Ok(Target::Jsonl(path("a/b.jsonl"))));
        assert_eq!(target("B.CSV"), Ok(Target::Csv(path("B.CSV"))));
        for folder in ["runs", "runs/lr0.1/", "lr.csv/"] {
            assert_eq!(target(folder), Ok(Target::TensorBoard(path(folder))));
        }
        for wrong in ["", "a.txt", "runs/lr0.1", "metrics.json"] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
        let folder = tempfile::tempdir().unwrap();
        let dotted = folder.path().join("lr0.1");
        std::fs::create_dir(&dotted).unwrap();
        assert_eq!(target(dotted.to_str().unwrap()), Ok(Target::TensorBoard(dotted)));
    }
}
