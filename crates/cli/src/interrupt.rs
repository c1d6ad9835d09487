//! Ctrl-C: the first one finishes the step, the second one ends at once.

use crate::failure::Failure;
use crate::{INTERRUPTED, top};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Interrupts at every Ctrl-C.
pub fn watch(stop: Arc<AtomicBool>) -> Result<(), Failure> {
    let handler = move || interrupt(&stop);
    ctrlc::set_handler(handler).map_err(|e| Failure::System(format!("cannot watch for Ctrl-C: {e}")))
}

/// Sets the flag the first time and ends the process the second time.
pub fn interrupt(stop: &AtomicBool) {
    if stop.swap(true, Ordering::Relaxed) {
        top::restore();
        std::process::exit(INTERRUPTED.into());
    }
    // A view that is drawn says so itself.
    if !top::is_drawing() {
        eprintln!("\nfinishing the step (Ctrl-C again ends at once)");
    }
}
