//! Waking threads that wait under a lock.

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, sleep};
use std::time::Instant;

/// What wakes a thread that sleeps under the lock.
#[derive(Default)]
pub struct Bell {
    condvar: Condvar,
    asleep: AtomicBool,
    /// A hint for who has not fallen asleep yet.
    rung: AtomicBool,
}

impl Bell {
    /// Wakes the thread. The lock is held.
    pub fn ring(&self) {
        self.rung.store(true, Relaxed);
        if self.asleep.load(Relaxed) {
            self.condvar.notify_one();
        }
    }

    /// Looks for a moment, without the lock, whether the bell rings: much shorter than falling asleep and waking up.
    pub fn spin<'a, T>(&self, mutex: &'a Mutex<T>, guard: MutexGuard<'a, T>, spins: usize) -> MutexGuard<'a, T> {
        if spins == 0 {
            return guard;
        }
        self.rung.store(false, Relaxed);
        drop(guard);
        for _ in 0..spins {
            if self.rung.load(Relaxed) {
                break;
            }
            std::hint::spin_loop();
        }
        lock(mutex)
    }

    /// Sleeps, without the lock, until the bell rings or the instant has come; wakes up with it.
    pub fn sleep<'a, T>(&self, guard: MutexGuard<'a, T>, until: Option<Instant>) -> MutexGuard<'a, T> {
        self.asleep.store(true, Relaxed);
        let guard = sleep(&self.condvar, guard, until);
        self.asleep.store(false, Relaxed);
        guard
    }
}
