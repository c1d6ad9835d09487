//! Completion of work on a queue.

use std::sync::{Arc, OnceLock};

/// Why work on a queue failed. Everything that needs its result fails with the same cause; nothing else is touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunError(pub Arc<str>);

/// Set once, when a run has finished: how each of its outputs ended.
#[derive(Default)]
pub(crate) struct Event {
    outcomes: OnceLock<Vec<Result<(), RunError>>>,
}

impl Event {
    /// Records the outcomes and wakes all who wait. Only the first call counts.
    pub fn complete(&self, outcomes: Vec<Result<(), RunError>>) {
        let _ = self.outcomes.set(outcomes);
    }

    /// Waits for the outcomes.
    pub fn wait(&self) -> &[Result<(), RunError>] {
        self.outcomes.wait()
    }
}

/// When a value is there: at once, or when the run is finished whose output it is.
#[derive(Clone)]
pub struct Ready {
    run: Option<(Arc<Event>, usize)>,
}

impl Ready {
    /// Of a value that is there.
    pub(crate) fn now() -> Ready {
        Ready { run: None }
    }

    /// Of an output of the run that completes the event.
    pub(crate) fn with(run: &Arc<Event>, output: usize) -> Ready {
        Ready { run: Some((run.clone(), output)) }
    }

    /// Waits until the value is there, or has failed.
    pub fn wait(&self) -> Result<(), RunError> {
        self.run.as_ref().map_or(Ok(()), |(run, output)| run.wait()[*output].clone())
    }
}
