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
}

/// Most bytes that whoever has computed them copies itself: waking another thread would take longer.
const LIGHT: usize = 1 << 16;

impl Copy {
    /// Whether whoever has computed the source makes the copy. Over a link ([`link::set_link`]) another thread waits for its
    /// arrival.
    pub fn is_light(&self) -> bool {
        self.ty.bytes() <= LIGHT && matches!(link::link(), Ok(None))
    }

    /// Copies. A copy of what failed fails with the same cause.
    pub fn perform(self) -> Outcome {
        let Copy { source: (source, ready), offset, target, between, ty } = self;
        let outcome = ready.wait();
        if outcome.is_ok() {
            let start = Instant::now();
            let _span = trace::copy(|| format!("{} -> {}", name(between.0), name(between.1)), &ty);
            // SAFETY: the source is complete, whoever overwrites it waits for this task, and has all that is copied; the
            // target is new memory of the size of the part that nobody reads before this task has completed.
            unsafe { std::ptr::copy_nonoverlapping(source.pointer().add(offset), target.pointer(), target.bytes()) };
            link::arrive(start, target.bytes());
        }
        outcome
    }
}

fn name(device: DeviceId) -> String {
    Device::by_id(device).map_or_else(|| "a device that has gone away".into(), |device| device.to_string())
}
