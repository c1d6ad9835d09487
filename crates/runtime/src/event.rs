//! Completion of work on a queue.

use std::sync::{Condvar, Mutex};

/// Why work on a queue failed. Everything that needs its result fails with the same cause; nothing else is touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunError(pub std::sync::Arc<str>);

/// Set once, when the work that it stands for has finished or failed.
#[derive(Default)]
pub struct Event {
    state: Mutex<Option<Result<(), RunError>>>,
    changed: Condvar,
}

impl Event {
    /// An event whose work is still to be done.
    pub fn new() -> Self {
        Event::default()
    }

    /// An event of work that is done.
    pub fn completed() -> Self {
        Event { state: Mutex::new(Some(Ok(()))), changed: Condvar::new() }
    }

    /// Records the outcome and wakes all who wait. Only the first call counts.
    pub fn complete(&self, outcome: Result<(), RunError>) {
        self.state.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(outcome);
        self.changed.notify_all();
    }

    /// Waits for the outcome.
    pub fn wait(&self) -> Result<(), RunError> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            match &*state {
                Some(outcome) => return outcome.clone(),
                None => state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }
}
