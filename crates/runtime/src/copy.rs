//! Copies between devices.

use crate::value::Ready;
use crate::{Buffer, Device, DeviceId, link, trace};
use meshwork_graph::Type;
use meshwork_queue::Outcome;
use std::sync::Arc;
use std::time::Instant;

/// A copy that has been handed over.
pub(crate) struct Copy {
    pub source: (Arc<Buffer>, Ready),
    /// The first byte that is copied.
    pub offset: usize,
    pub target: Arc<Buffer>,
    /// The devices from which and to which.
    pub between: (DeviceId, DeviceId),
    pub ty: Type,
    /// Whether whoever makes the copy ready makes it: see [`is_light`].
    pub is_light: bool,
}

/// Most bytes that whoever has computed them copies itself: waking another thread would take longer.
const LIGHT: usize = 1 << 16;

/// Whether whoever makes a copy of so many bytes ready, mostly the one that has computed the source, makes it. Over a link
/// ([`link::set_link`]) another thread waits for its arrival.
pub(crate) fn is_light(bytes: usize) -> bool {
    bytes <= LIGHT && matches!(link::link(), Ok(None))
}

impl Copy {
    /// Copies. A copy of what failed fails with the same cause.
    pub fn perform(self) -> Outcome {
        let Copy { source: (source, ready), offset, target, between, ty, is_light } = self;
        let outcome = ready.wait();
        if outcome.is_ok() {
            let start = Instant::now();
            let _span = trace::copy(|| format!("{} -> {}", name(between.0), name(between.1)), &ty);
            // SAFETY: the source is complete, whoever overwrites it waits for this task, and has all that is copied; the
            // target is new memory of the size of the part that nobody reads before this task has completed.
            unsafe { std::ptr::copy_nonoverlapping(source.pointer().add(offset), target.pointer(), target.bytes()) };
            if !is_light {
                link::arrive(start, target.bytes());
            }
        }
        outcome
    }
}

fn name(device: DeviceId) -> String {
    Device::by_id(device).map_or_else(|| "a device that has gone away".into(), |device| device.to_string())
}
