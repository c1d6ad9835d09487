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

/// When a value is there: at once, or when the task has come so far whose result it is.
#[derive(Clone)]
pub struct Ready {
    task: Option<(Arc<Event>, usize)>,
}

impl Ready {
    /// Of a value that is there.
    pub(crate) fn now() -> Ready {
        Ready { task: None }
    }

    /// Of a result of the task that completes the event.
    pub(crate) fn with(task: &Arc<Event>, result: usize) -> Ready {
        Ready { task: Some((task.clone(), result)) }
    }

    /// What work on the value starts after.
    pub(crate) fn after(&self) -> Option<(&Arc<Event>, Part)> {
        self.task.as_ref().map(|(event, result)| (event, Part::Result(*result)))
    }

    /// Whether the value is there, or has failed.
    pub fn is_complete(&self) -> bool {
        self.after().is_none_or(|(event, part)| event.is_complete(part))
    }

    /// Waits until the value is there, or has failed.
    ///
    /// # Panics
    /// In a kernel, when the value is not there: kernels must not wait.
    pub fn wait(&self) -> Result<(), RunError> {
        self.after().map_or(Ok(()), |(event, part)| event.wait(part))
    }
}
