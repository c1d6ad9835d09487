//! Ctrl-C: the first one finishes the step, the second one ends at once.

use crate::INTERRUPTED;
use crate::failure::Failure;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag at the first Ctrl-C and ends the process at the second.
pub fn watch(stop: Arc<AtomicBool>) -> Result<(), Failure> {
    let handler = move || {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        eprintln!("\nfinishing the step (Ctrl-C again ends at once)");
    };
    ctrlc::set_handler(handler).map_err(|e| Failure::System(format!("cannot watch for Ctrl-C: {e}")))
}
