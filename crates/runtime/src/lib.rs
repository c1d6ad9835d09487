//! Devices, queues, events and buffers; runs a compiled program.
//!
//! A [`Device`] is a queue with its own threads and memory. Work is handed over and runs in order; the hand-over
//! returns at once with [`Value`]s that can be read, or used by further work, before they are computed.

mod buffer;
mod device;
mod event;
mod execute;

pub use buffer::{Buffer, MemoryStats};
pub use device::{Device, DeviceError};
pub use event::{Event, RunError};
pub use execute::Binding;

use std::sync::Arc;

/// A value that a device has computed or will compute: dense elements and the event of their completion.
#[derive(Clone)]
pub struct Value {
    /// The elements, row-major.
    pub buffer: Arc<Buffer>,
    /// Complete when the elements are there.
    pub ready: Arc<Event>,
    /// Shared by the clones of the value, and not by work on the queue that uses its buffer.
    share: Arc<()>,
}

impl Value {
    pub(crate) fn new(buffer: Arc<Buffer>, ready: Arc<Event>) -> Self {
        Value { buffer, ready, share: Arc::new(()) }
    }

    /// Whether this is the only clone of the value, so that a run may overwrite it. Work that was handed over
    /// earlier does not count: it runs before.
    pub fn is_unique(&self) -> bool {
        let unique = Arc::strong_count(&self.share) == 1;
        // What another thread read before it dropped its clone is ordered before the overwriting.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        unique
    }
}
