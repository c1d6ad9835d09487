//! The primitives that the protocol rests on: those of the standard library, or those of a model checker that tries
//! the orders in which threads can meet.

#[cfg(loom)]
pub use loom::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread_local,
};
#[cfg(shuttle)]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread_local,
};
#[cfg(not(any(loom, shuttle)))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread_local,
};

/// The lock, also after a panic of another thread: nothing here panics while it holds one.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Sleeps until the bell rings.
pub fn sleep<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    bell.wait(guard).unwrap_or_else(|e| e.into_inner())
}
