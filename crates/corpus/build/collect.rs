//! Which files of the project are its text: README.md, docs/**/*.md, crates/*/src/**/*.rs. Tests of their own folders are not
//! part of it, so that changing one does not compile everything again.

use std::fs;
use std::path::{Path, PathBuf};

/// The project's folder, where the crate `this` lies in it.
pub fn project_around(this: &Path) -> Option<PathBuf> {
    let root = this.parent()?.parent()?;
    let inside = root.join("crates").join("corpus");
    let same = fs::canonicalize(inside).ok()? == fs::canonicalize(this).ok()?;
    (same && root.join("README.md").is_file()).then(|| root.to_owned())
}

/// What changes when a text changes, comes or goes: folders stand for all that is in them, and the workspace's manifest names
/// the crates.
pub fn watched(root: &Path) -> Vec<PathBuf> {
    let mut watched = vec![root.join("Cargo.toml"), root.join("README.md"), root.join("docs")];
    watched.extend(list(&root.join("crates")).into_iter().map(|folder| folder.join("src")));
    // A path that does not exist counts as changed, always.
    watched.retain(|path| path.exists());
    watched
}

/// The texts with their paths below `root`, in the byte order of those, and what could not be read. Lines end in `\n` however
/// the files were checked out.
pub fn documents(root: &Path) -> (Vec<(String, String)>, Vec<String>) {
    let mut files = vec![root.join("README.md")];
    walk(&root.join("docs"), "md", &mut files);
    for folder in list(&root.join("crates")) {
        walk(&folder.join("src"), "rs", &mut files);
    }
    let (mut documents, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        let below = file.strip_prefix(root).expect("all files were found below it");
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        let name = parts.join("/");
        match fs::read_to_string(&file) {
            Ok(text) => documents.push((name, text.replace("\r\n", "\n"))),
            Err(error) => problems.push(format!("{name}: {error}")),
        }
    }
    documents.sort();
    (documents, problems)
}

/// The files with an extension in a folder and the folders in it; none that are hidden.
fn walk(folder: &Path, extension: &str, files: &mut Vec<PathBuf>) {
    for path in list(folder) {
        if path.is_dir() {
            walk(&path, extension, files);
        } else if path.extension().is_some_and(|other| other == extension) {
            files.push(path);
        }
    }
}

/// What is in a folder, apart from hidden files and symbolic links; nothing, if it cannot be read.
fn list(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let shown = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    let real = shown.filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    real.map(|entry| entry.path()).collect()
}
