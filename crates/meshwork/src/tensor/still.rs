//! The lock under which recorded nodes change.

use std::cell::UnsafeCell;
use std::sync::{Mutex, MutexGuard};

/// While it lives, no thread but its own collects, hands over, or looks at what nodes hold.
pub(crate) struct Still {
    walks: MutexGuard<'static, u64>,
}

/// Waits until other threads have handed over what they were about to.
pub(crate) fn hold_still() -> Still {
    static WALKS: Mutex<u64> = Mutex::new(0);
    Still { walks: WALKS.lock().unwrap_or_else(|e| e.into_inner()) }
}

impl Still {
    /// The number of a new walk over nodes.
    pub fn walk(&mut self) -> u64 {
        *self.walks += 1;
        *self.walks
    }
}

/// What only the holder of [`Still`] sees and changes.
pub(crate) struct Guarded<T>(UnsafeCell<T>);

// SAFETY: access takes the only `Still` that there is, or the cell itself.
unsafe impl<T: Send + Sync> Sync for Guarded<T> {}

impl<T> Guarded<T> {
    pub fn new(value: T) -> Self {
        Guarded(UnsafeCell::new(value))
    }

    pub fn get<'a>(&'a self, _still: &'a Still) -> &'a T {
        // SAFETY: who changes the value borrows the only `Still` mutably, which is borrowed here.
        unsafe { &*self.0.get() }
    }

    pub fn get_mut<'a>(&'a self, _still: &'a mut Still) -> &'a mut T {
        // SAFETY: whoever else looks at the value borrows the only `Still`, which is borrowed mutably here.
        unsafe { &mut *self.0.get() }
    }

    pub fn own(&mut self) -> &mut T {
        self.0.get_mut()
    }
}
