//! The documentation and source of Meshwork itself, put into the program when it is compiled: text that is there on every
//! machine, for `meshwork train gpt` without further ado.
//!
//! It is a crate of its own, which nothing but programs use, because it changes whenever a source does: what depends on it
//! is compiled again with every change anywhere.

#![forbid(unsafe_code)]

/// All texts, one after the other.
static TEXTS: &str = include_str!(concat!(env!("OUT_DIR"), "/texts"));

/// The name of each and where it ends.
static INDEX: &[(&str, usize)] = &include!(concat!(env!("OUT_DIR"), "/index"));

/// The project's README, the pages of `docs` and the sources of all crates (tests in folders of their own are left out):
/// paths below the project's folder and texts, in the byte order of the paths. They are the same on every machine.
///
/// Nothing, where the crate was compiled without the project around it.
pub fn documents() -> Vec<(&'static str, &'static str)> {
    let starts = std::iter::once(0).chain(INDEX.iter().map(|&(_, end)| end));
    starts.zip(INDEX).map(|(start, &(name, end))| (name, &TEXTS[start..end])).collect()
}
