//! What the models are made of, and who tries their orders.

use meshwork_queue::{Outcome, Queue, RunError};
use std::ops::Index;
use std::sync::Arc;

#[cfg(loom)]
pub use loom::{sync::Mutex, sync::atomic::AtomicUsize, thread};
#[cfg(shuttle)]
pub use shuttle::{sync::Mutex, sync::atomic::AtomicUsize, thread};
#[cfg(not(any(loom, shuttle)))]
pub use std::{sync::Mutex, sync::atomic::AtomicUsize, thread};

/// Runs a model in every order with up to three preemptions; `LOOM_MAX_PREEMPTIONS` sets another number.
#[cfg(loom)]
pub fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(model);
}

/// Runs a model in many random orders, and in many with few preemptions.
#[cfg(shuttle)]
pub fn explore(model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let again = model.clone();
    shuttle::check_random(move || model(), 5000);
    shuttle::check_pct(move || again(), 5000, 3);
}

/// Runs a model in the orders that happen.
#[cfg(not(any(loom, shuttle)))]
pub fn explore(model: impl Fn() + Send + Sync + 'static) {
    within_a_minute(move || (0..300).for_each(|_| model()));
}

/// Fails when the body takes longer than a minute: something waits for what never comes.
#[cfg(not(any(loom, shuttle)))]
pub fn within_a_minute(body: impl FnOnce() + Send + 'static) {
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let running = thread::spawn(move || {
        let _end = end;
        body();
    });
    let timeout = Err(std::sync::mpsc::RecvTimeoutError::Timeout);
    assert!(ended.recv_timeout(std::time::Duration::from_secs(60)) != timeout, "no end after a minute");
    running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// Queues, each with a thread that serves it and notes what it ran.
pub struct Queues {
    queues: Vec<Arc<Queue<Vec<usize>>>>,
    threads: Vec<thread::JoinHandle<Vec<usize>>>,
}

impl Queues {
    pub fn start(count: usize) -> Queues {
        let queues: Vec<_> = (0..count).map(|_| Arc::new(Queue::new())).collect();
        let serve = |queue: &Arc<Queue<Vec<usize>>>| {
            let queue = queue.clone();
            thread::spawn(move || {
                let mut ran = Vec::new();
                queue.serve(&mut ran, &());
                ran
            })
        };
        let threads = queues.iter().map(serve).collect();
        Queues { queues, threads }
    }

    /// Closes all queues, and gives what each has run once its thread has ended.
    pub fn close(self) -> Vec<Vec<usize>> {
        self.queues.iter().for_each(|queue| queue.close());
        let ran = self.threads.into_iter().map(|thread| thread.join().expect("serving does not panic")).collect();
        assert!(self.queues.iter().all(|queue| queue.depth() == 0 && queue.unfinished().is_empty()));
        ran
    }

    #[cfg(not(loom))]
    pub fn list(&self) -> &[Arc<Queue<Vec<usize>>>] {
        &self.queues
    }
}

impl Index<usize> for Queues {
    type Output = Arc<Queue<Vec<usize>>>;

    fn index(&self, i: usize) -> &Self::Output {
        &self.queues[i]
    }
}

/// A number that tasks write and read in the weakest order: who must see it is ordered by the protocol alone.
#[derive(Clone)]
pub struct Cell(Arc<AtomicUsize>);

const WEAKEST: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

impl Cell {
    pub fn new() -> Cell {
        Cell(Arc::new(AtomicUsize::new(0)))
    }

    pub fn get(&self) -> usize {
        self.0.load(WEAKEST)
    }

    pub fn set(&self, value: usize) {
        self.0.store(value, WEAKEST);
    }
}

pub fn failure(cause: &str) -> Outcome {
    Err(RunError(cause.into()))
}
