//! Devices, queues, events and buffers; runs a compiled program.
//!
//! A [`Device`] is a queue with its own threads and memory. Work is handed over and runs in order; the hand-over
//! returns at once with [`Value`]s that can be read, or used by further work, before they are computed.

mod buffer;
mod device;
mod event;
mod execute;
mod load;

pub use buffer::{Buffer, MemoryStats};
pub use device::{Device, DeviceError};
pub use event::{Ready, RunError};
pub use execute::Binding;
pub use load::{DeviceLoad, QueueLoad};

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

    /// Whether this is the only clone of the value, so that a run may overwrite it. Work that was handed over
    /// earlier does not count: it runs before.
    pub fn is_unique(&self) -> bool {
        let unique = Arc::strong_count(&self.parts) == 1;
        // What another thread read before it dropped its clone is ordered before the overwriting.
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        unique
    }
}
