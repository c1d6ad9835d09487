//! Values on devices.

use crate::{Buffer, DeviceId};
use meshwork_queue::{Event, Part, RunError};
use std::sync::Arc;

/// A value that a device has computed or will compute: dense elements and when they are there. Clones share it.
#[derive(Clone)]
pub struct Value {
    /// Work on the queue shares the parts, and not this.
    parts: Arc<(Arc<Buffer>, Ready)>,
}

impl Value {
    pub(crate) fn new(buffer: Arc<Buffer>, ready: Ready) -> Self {
        Value { parts: Arc::new((buffer, ready)) }
    }

    /// The elements, row-major.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.parts.0
    }

    /// When the elements are there.
    pub fn ready(&self) -> &Ready {
        &self.parts.1
    }

    /// The elements and when they are there, without being a clone of the value.
    pub(crate) fn clone_parts(&self) -> (Arc<Buffer>, Ready) {
        (self.buffer().clone(), self.ready().clone())
    }

    /// Whose memory the elements are in.
    pub fn device(&self) -> DeviceId {
        self.buffer().device()
    }

    /// Whether this is the only clone of the value, so that a run may overwrite it. Work that was handed over
    /// earlier does not count: the run starts after it.
    pub fn is_unique(&self) -> bool {
        let unique = Arc::strong_count(&self.parts) == 1;
        // What another thread read before it dropped its clone is ordered before the overwriting.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        unique
    }
}

/// When a value is there.
#[derive(Clone)]
pub struct Ready {
    when: When,
}

#[derive(Clone)]
enum When {
    Now,
    /// When the task has come so far whose result it is.
    Result(Arc<Event>, usize),
    /// The value is only planned.
    Never,
}

impl Ready {
    /// Of a value that is there.
    pub(crate) fn now() -> Ready {
        Ready { when: When::Now }
    }

    /// Of a value that is planned and will not be computed.
    pub(crate) fn never() -> Ready {
        Ready { when: When::Never }
    }

    /// Of a result of the task that completes the event.
    pub(crate) fn with(task: &Arc<Event>, result: usize) -> Ready {
        Ready { when: When::Result(task.clone(), result) }
    }

    /// What work on the value starts after.
    pub(crate) fn after(&self) -> Option<(&Arc<Event>, Part)> {
        match &self.when {
            When::Result(event, result) => Some((event, Part::Result(*result))),
            When::Now | When::Never => None,
        }
    }

    /// Whether the value is only planned.
    pub fn is_never(&self) -> bool {
        matches!(self.when, When::Never)
    }

    /// Whether the value is there, or has failed.
    pub fn is_complete(&self) -> bool {
        self.after().is_none_or(|(event, part)| event.is_complete(part))
    }

    /// Waits until the value is there, or has failed. What is only planned has failed.
    ///
    /// # Panics
    /// In a kernel, when the value is not there: kernels must not wait.
    pub fn wait(&self) -> Result<(), RunError> {
        match &self.when {
            When::Now => Ok(()),
            When::Result(event, result) => event.wait(Part::Result(*result)),
            When::Never => Err(RunError("the value was planned and never computed".into())),
        }
    }
}
