//! Background threads that read batches ahead of their reader.
//!
//! # Protocol
//! One mutex guards the *window*: the batches between the one that the reader wants next and the last one that
//! was handed to a worker, in order. A worker appends an empty slot to the window (its *ticket*), reads the
//! batch without the lock, and puts the result into its slot. The reader takes slots from the front, so the
//! order is exact however fast the workers are. The window never grows beyond its capacity.
//!
//! - A worker waits on `room` while the window is full. It is woken by the reader taking a slot, or by `stop`.
//! - The reader waits on `ready` while the front slot is empty. Every ticket is filled, whatever the dataset
//!   does: errors and panics are results too. The reader therefore never waits for ever.
//! - A dropped pool sets `stop` under the lock, wakes everyone and joins the threads. A worker looks at `stop`
//!   after every sample, so that this takes as long as reading one sample.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use crate::assemble::{Assembler, Job};
use crate::loader::Jobs;
use crate::{Batch, DataError, Result};

pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    assembler: Assembler,
    capacity: usize,
    window: Mutex<Window>,
    ready: Condvar,
    room: Condvar,
    stop: AtomicBool,
}

struct Window {
    jobs: Jobs,
    /// Whether `jobs` has come to its end.
    ended: bool,
    slots: VecDeque<Option<Result<Batch>>>,
    /// The ticket of the first slot.
    front: u64,
}

impl Workers {
    /// Starts `num_workers` threads that together keep up to `capacity` batches.
    pub fn start(assembler: Assembler, jobs: Jobs, num_workers: usize, capacity: usize) -> Result<Self> {
        let shared = Arc::new(Shared {
            assembler,
            capacity,
            window: Mutex::new(Window { jobs, ended: false, slots: VecDeque::new(), front: 0 }),
            ready: Condvar::new(),
            room: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let mut workers = Self { shared, threads: Vec::new() };
        for worker in 0..num_workers {
            let shared = Arc::clone(&workers.shared);
            let thread = thread::Builder::new()
                .name(format!("meshwork-data-{worker}"))
                .spawn(move || shared.work())
                .map_err(|source| DataError::Threads { worker, num_workers, source })?;
            workers.threads.push(thread);
        }
        Ok(workers)
    }

    /// Waits for the next batch in order; `None` behind the last epoch.
    pub fn next(&mut self) -> Option<Result<Batch>> {
        let shared = &self.shared;
        let mut window = shared.lock();
        loop {
            if matches!(window.slots.front(), Some(Some(_))) {
                window.front += 1;
                let batch = window.slots.pop_front().flatten();
                shared.room.notify_one();
                return batch;
            }
            if window.slots.is_empty() && window.ended {
                return None;
            }
            window = wait(&shared.ready, window);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        {
            let _window = self.shared.lock();
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        self.shared.room.notify_all();
        for thread in self.threads.drain(..) {
            // Panics of the dataset are results; there is nothing else that a worker could report.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some((ticket, job)) = self.take_job() {
            let result = self.assembler.read(job, || self.stopped());
            let Some(result) = result.transpose() else {
                return;
            };
            let mut window = self.lock();
            let slot = (ticket - window.front) as usize;
            window.slots[slot] = Some(result);
            drop(window);
            self.ready.notify_one();
        }
    }

    /// Waits for room in the window; `None` when the worker is to end.
    fn take_job(&self) -> Option<(u64, Job)> {
        let mut window = self.lock();
        while window.slots.len() >= self.capacity && !self.stopped() {
            window = wait(&self.room, window);
        }
        if self.stopped() || window.ended {
            return None;
        }
        let Some(job) = window.jobs.next() else {
            window.ended = true;
            drop(window);
            self.ready.notify_one();
            self.room.notify_all();
            return None;
        };
        window.slots.push_back(None);
        Some((window.front + window.slots.len() as u64 - 1, job))
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wait<'a>(condition: &Condvar, guard: MutexGuard<'a, Window>) -> MutexGuard<'a, Window> {
    condition.wait(guard).unwrap_or_else(PoisonError::into_inner)
}
