//! Which threads serve a queue: they must not wait for tasks.

use crate::sync::thread_local;
use std::cell::Cell;

thread_local! {
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread serves a queue.
pub fn is_serving() -> bool {
    SERVING.with(Cell::get)
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
