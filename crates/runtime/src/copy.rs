//! Copies between devices.

use crate::load::{Meter, Task};
use crate::value::Ready;
use crate::{Buffer, Device, DeviceId, link, trace};
use meshwork_graph::Type;
use meshwork_queue::Event;
use std::sync::Arc;
use std::time::Instant;

/// The context of a queue that copies.
pub(crate) struct Copier {
    pub meter: Arc<Meter>,
}

/// A copy that has been handed over.
pub(crate) struct Copy {
    pub source: (Arc<Buffer>, Ready),
    /// The first byte that is copied.
    pub offset: usize,
    pub target: Arc<Buffer>,
    /// The devices from which and to which.
    pub between: (DeviceId, DeviceId),
    pub ty: Type,
}

impl Copier {
    /// Copies, and completes the event's only result: a copy of what failed fails with the same cause.
    pub fn perform(&mut self, copy: Copy, done: &Event) {
        let Copy { source: (source, ready), offset, target, between, ty } = copy;
        let _running = self.meter.begin(Task::Copy(ty.clone()));
        let outcome = ready.wait();
        if outcome.is_ok() {
            let start = Instant::now();
            let _span = trace::copy(|| format!("{} -> {}", name(between.0), name(between.1)), &ty);
            // SAFETY: the source is complete, whoever overwrites it waits for this task, and has all that is copied; the
            // target is new memory of the size of the part that nobody reads before this task has completed.
            unsafe { std::ptr::copy_nonoverlapping(source.pointer().add(offset), target.pointer(), target.bytes()) };
            link::arrive(start, target.bytes());
        }
        // Whoever waits for the copy finds no memory in use because of it.
        drop((source, target));
        done.complete(0, outcome);
    }
}

fn name(device: DeviceId) -> String {
    Device::by_id(device).map_or_else(|| "a device that has gone away".into(), |device| device.to_string())
}
