//! `meshwork report`: a page about a training, that needs nothing else.

mod axis;
mod page;
mod plot;
mod run;
mod tables;
mod timeline;

use crate::args::ReportArgs;
use crate::failure::Failure;
use crate::metrics;
use crate::progress::say;
use run::Recorded;
use std::path::PathBuf;

/// Reads the metrics of a run and writes the page.
///
/// # Errors
/// Files that are not there or are of something else, and a page that cannot be written.
pub fn run(args: &ReportArgs) -> Result<(), Failure> {
    let is_folder = args.run.is_dir();
    let file = if is_folder { args.run.join(metrics::FILE) } else { args.run.clone() };
    let recorded = Recorded::read(&file)?;
    let timeline = args.timeline.as_deref().map(timeline::read).transpose()?;
    let name = args.run.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
    let page = page::draw(&recorded, &name.unwrap_or_default(), timeline.as_ref());
    let to = args.to.clone().unwrap_or_else(|| default_page(&args.run, is_folder));
    std::fs::write(&to, page)
        .map_err(|e| Failure::System(format!("cannot write {}: {e}; --to FILE.html names another", to.display())))?;
    say(&format!("{}; written to {}", recorded.in_words(), to.display()));
    Ok(())
}

fn default_page(run: &std::path::Path, is_folder: bool) -> PathBuf {
    if is_folder { run.join("report.html") } else { run.with_extension("html") }
}
