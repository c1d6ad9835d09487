//! The primitives that the protocol rests on: those of the standard library, or those of a model checker that tries the
//! orders in which threads can meet.

use std::time::Instant;

#[cfg(shuttle)]
pub use shuttle::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};
#[cfg(not(shuttle))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, atomic},
    thread,
};

/// The lock, also after a panic of another thread: nothing here panics while it holds one.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Sleeps until the bell rings, or an instant has come. A model checker knows no time: there, only instants that are
/// over have come.
pub fn sleep<'a, T>(bell: &Condvar, guard: MutexGuard<'a, T>, until: Option<Instant>) -> MutexGuard<'a, T> {
    let Some(until) = until else {
        return bell.wait(guard).unwrap_or_else(|e| e.into_inner());
    };
    let left = until.saturating_duration_since(Instant::now());
    bell.wait_timeout(guard, left).unwrap_or_else(|e| e.into_inner()).0
}

/// Starts a thread of a scope under a name.
pub fn spawn_named<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    name: String,
    body: impl FnOnce() -> T + Send + 'scope,
) -> thread::ScopedJoinHandle<'scope, T> {
    #[cfg(not(shuttle))]
    return thread::Builder::new().name(name).spawn_scoped(scope, body).expect("the system starts a thread");
    #[cfg(shuttle)]
    {
        let _ = name;
        scope.spawn(body)
    }
}
