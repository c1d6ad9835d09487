//! Events that users record on devices.

use meshwork_queue::{Event as TaskEvent, Part};
use std::sync::Arc;
use std::time::Duration;

/// A point in the work of a device: complete when everything that had been handed over to the device is done. Made by
/// [`crate::Device::record_event`].
#[derive(Clone, Debug)]
pub struct Event {
    pub(crate) task: Arc<TaskEvent>,
}

impl Event {
    /// Waits until the event is complete. Failures reach those who read the values.
    pub fn wait(&self) {
        let _ = self.task.wait(Part::End);
    }

    /// Whether the event is complete.
    pub fn is_complete(&self) -> bool {
        self.task.is_complete(Part::End)
    }

    /// The time from the completion of this event to that of a later one, once both are complete.
    pub fn elapsed(&self, later: &Event) -> Option<Duration> {
        Some(later.task.ended()?.saturating_duration_since(self.task.ended()?))
    }
}
