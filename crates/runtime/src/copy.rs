//! Copies between devices.

use crate::Buffer;
use crate::value::Ready;
use meshwork_queue::Event;
use std::sync::Arc;

/// The context of a queue that copies: it needs nothing but its thread.
pub(crate) struct Copier;

/// A copy that has been handed over.
pub(crate) struct Copy {
    pub source: (Arc<Buffer>, Ready),
    pub target: Arc<Buffer>,
}

impl Copy {
    /// Copies, and completes the event's only result: a copy of what failed fails with the same cause.
    pub fn perform(self, done: &Event) {
        let (source, ready) = &self.source;
        let outcome = ready.wait();
        if outcome.is_ok() {
            // SAFETY: the source is complete, whoever overwrites it waits for this task, and the target is new memory of
            // the same size that nobody reads before this task has completed.
            unsafe { std::ptr::copy_nonoverlapping(source.pointer(), self.target.pointer(), source.bytes()) };
        }
        done.complete(0, outcome);
    }
}
