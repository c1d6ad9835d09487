//! Waking those who wait for room in a queue.
//!
//! A thread that wakes takes a core from whoever wakes it. So the thread that serves a queue leaves that to threads of its own
//! that have nothing to do just now, if there are such, for as long as it has tasks itself.

use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, MutexGuard, sleep};
use std::sync::Arc;

/// What those who wait for room hear. Whoever [`call`](Bell::call)s sees to it that it is rung [`if_due`](Bell::ring_if_due)
/// soon.
pub(crate) struct Bell {
    bell: Condvar,
    /// Some are to be woken.
    is_due: AtomicBool,
    ringers: AtomicUsize,
}

impl Bell {
    pub fn new() -> Bell {
        Bell { bell: Condvar::new(), is_due: AtomicBool::new(false), ringers: AtomicUsize::new(0) }
    }

    /// Sleeps until the bell rings.
    pub fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        sleep(&self.bell, guard)
    }

    /// Wakes them.
    pub fn ring(&self) {
        self.bell.notify_all();
    }

    /// Has them woken by a ringer, or wakes them if there is none.
    pub fn call(&self) {
        if self.has_ringers() {
            // An exchange, as those that take it back: a plain store might be lost to a ringer that looks just now (loom).
            self.is_due.swap(true, Ordering::AcqRel);
        } else {
            self.ring();
        }
    }

    /// Wakes them if no ringer has done so since the call, and says whether it did.
    pub fn ring_if_due(&self) -> bool {
        let rings = self.is_due.load(Ordering::Relaxed) && self.is_due.swap(false, Ordering::AcqRel);
        if rings {
            self.ring();
        }
        rings
    }

    pub fn has_ringers(&self) -> bool {
        self.ringers.load(Ordering::Relaxed) > 0
    }
}

/// The right to wake those who wait for room in a queue, for a thread that often has nothing to do for a moment.
pub struct Ringer(Arc<Bell>);

impl Ringer {
    pub(crate) fn new(bell: Arc<Bell>) -> Ringer {
        bell.ringers.fetch_add(1, Ordering::Relaxed);
        Ringer(bell)
    }

    /// Wakes them if they are to be woken, and says whether it did.
    pub fn ring_if_due(&self) -> bool {
        self.0.ring_if_due()
    }
}

impl Clone for Ringer {
    fn clone(&self) -> Ringer {
        Ringer::new(self.0.clone())
    }
}

impl Drop for Ringer {
    fn drop(&mut self) {
        self.0.ringers.fetch_sub(1, Ordering::Relaxed);
    }
}
