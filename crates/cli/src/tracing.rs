//! `--trace`: the timeline of a run.

use crate::failure::Failure;
use meshwork::trace::{self, Trace};
use std::path::{Path, PathBuf};

/// A timeline that is being written.
pub struct Tracing {
    trace: Trace,
    path: PathBuf,
}

/// Begins to write.
pub fn start(path: &Path) -> Result<Tracing, Failure> {
    let trace = trace::start(path).map_err(|e| Failure::System(format!("--trace: {e}")))?;
    Ok(Tracing { trace, path: path.to_owned() })
}

/// Ends it; says where it is and what to do with it. That it is not complete is no reason to fail.
pub fn stop(tracing: Tracing) -> Option<String> {
    let Tracing { trace, path } = tracing;
    match trace.stop() {
        Ok(_) => Some(format!("timeline in {0}; draw it with: meshwork trace {0}", path.display())),
        Err(e) => {
            eprintln!("warning: --trace: the timeline is not complete: {e}");
            None
        }
    }
}
