//! Starting ranks, and what becomes of them.

use super::Group;
use crate::CommError;
use crate::jitter::Jitter;
use crate::posted::Posted;
use crate::rendezvous::{Rendezvous, message};
use crate::sync::{spawn_named, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Runs a body on each of `world_size` ranks, which are threads, and gives what they return, in the order of the ranks.
///
/// The first failure (a panic of a rank, calls that do not fit) fails all later calls of all ranks with the same error.
///
/// # Errors
/// When a rank panics, with the first failure of the world: its panic, or why its call failed.
///
/// # Panics
/// When there is no rank.
pub fn spawn<T: Send>(world_size: usize, body: impl Fn(Group) -> T + Sync) -> Result<Vec<T>, CommError> {
    World::new(world_size).spawn(body)
}

/// Ranks to be started, and how they wait for each other.
#[derive(Clone, Debug)]
pub struct World {
    size: usize,
    deadline: Duration,
    jitter: Option<u64>,
}

impl World {
    /// So many ranks; who waits in vain for half a minute fails.
    ///
    /// # Panics
    /// When there is no rank.
    #[track_caller]
    pub fn new(size: usize) -> World {
        assert!(size > 0, "a world has at least one rank");
        World { size, deadline: Duration::from_secs(30), jitter: None }
    }

    /// Sets the longest wait for other ranks. (The time that it takes to move and reduce the data does not count.)
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> World {
        World { deadline, ..self }
    }

    /// Has ranks delayed at random before and inside collectives: for tests of programs that must not depend on
    /// timing.
    #[must_use]
    pub fn jitter(self, seed: u64) -> World {
        World { jitter: Some(seed), ..self }
    }

    /// Runs a body on each of the ranks: see [`spawn`].
    ///
    /// # Errors
    /// As [`spawn`].
    pub fn spawn<T: Send>(self, body: impl Fn(Group) -> T + Sync) -> Result<Vec<T>, CommError> {
        let results: Vec<Mutex<Option<T>>> = (0..self.size).map(|_| Mutex::new(None)).collect();
        self.run(&|rank, group| {
            let result = body(group);
            *results[rank].lock().expect("nothing panics meanwhile") = Some(result);
        })?;
        let result = |slot: Mutex<Option<T>>| slot.into_inner().ok().flatten().expect("every rank has come to its end");
        Ok(results.into_iter().map(result).collect())
    }

    /// The part of [`spawn`](Self::spawn) that is the same for all bodies, and so is compiled once.
    fn run(self, body: &(dyn Fn(usize, Group) + Sync)) -> Result<(), CommError> {
        let rendezvous = Arc::new(Rendezvous::<Posted>::new(self.size, self.deadline, spins(self.size)));
        let ranks: Arc<[usize]> = (0..self.size).collect();
        let is_complete = thread::scope(|scope| {
            let start = |rank: usize| {
                let (rendezvous, ranks) = (rendezvous.clone(), ranks.clone());
                let jitter = self.jitter.map(|seed| Jitter::new(seed, rank));
                spawn_named(scope, format!("rank {rank}"), move || {
                    let group = Group::of_world(rendezvous.clone(), ranks, rank, jitter);
                    let worker = group.worker();
                    let outcome = catch_unwind(AssertUnwindSafe(|| body(rank, group)));
                    rendezvous.end(rank, outcome.as_ref().err().map(|panic| message(&**panic)));
                    worker.join();
                    outcome.is_ok()
                })
            };
            let threads: Vec<_> = (0..self.size).map(start).collect();
            // Threads that are not waited for here end with the scope.
            threads.into_iter().all(|thread| thread.join().expect("panics of the body are caught"))
        });
        if is_complete { Ok(()) } else { Err(rendezvous.failure().expect("a rank that panics fails the world")) }
    }
}

/// How often who waits looks whether it can go on before it falls asleep: some microseconds, if every rank has a core.
fn spins(ranks: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if cfg!(shuttle) || ranks > cores { 0 } else { 1000 }
}
