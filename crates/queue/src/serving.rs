//! Which threads serve a queue, or help one that does: they must not wait for tasks.

// Loom's macro takes no `const` block.
#![allow(clippy::missing_const_for_thread_local)]

use crate::sync::thread_local;
use std::cell::Cell;

thread_local! {
    static SERVING: Cell<bool> = Cell::new(false);
}

/// Whether this thread serves a queue, or helps one that does.
pub fn is_serving() -> bool {
    SERVING.with(Cell::get)
}

/// Marks this thread for good as one that helps the thread that serves a queue.
pub fn help_serving() {
    SERVING.with(|serving| serving.set(true));
}

/// Marks the thread while it serves.
pub(crate) struct Serving;

impl Serving {
    pub fn begin() -> Serving {
        SERVING.with(|serving| serving.set(true));
        Serving
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVING.with(|serving| serving.set(false));
    }
}
