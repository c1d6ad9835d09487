//! Puts the project's documentation and source into two files that the library includes: all texts one after the other,
//! and the name and end of each.
//!
//! Where the project is not around the crate, as when the crate was downloaded by itself, there are no texts.

mod collect;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    let variable = |name: &str| PathBuf::from(env::var_os(name).expect("cargo sets it"));
    let (out, this) = (variable("OUT_DIR"), variable("CARGO_MANIFEST_DIR"));
    let (mut texts, mut index) = (String::new(), "[".to_owned());
    for (name, text) in collect::project_around(&this).map(|root| documents(&root)).unwrap_or_default() {
        texts.push_str(&text);
        let _ = write!(index, "({name:?}, {}), ", texts.len());
    }
    // A build script without such a line runs whenever a file of its crate changes.
    println!("cargo::rerun-if-changed=build");
    fs::write(out.join("texts"), texts).expect("the build folder can be written to");
    fs::write(out.join("index"), index + "]").expect("the build folder can be written to");
}

fn documents(root: &Path) -> Vec<(String, String)> {
    for path in collect::watched(root) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    let (documents, problems) = collect::documents(root);
    for problem in problems {
        println!("cargo::warning=left out of the built-in text: {problem}");
    }
    documents
}
