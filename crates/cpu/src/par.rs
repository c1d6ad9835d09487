//! Whose threads a kernel uses: persistent workers that spin briefly and then sleep.
//!
//! One job runs at a time. The caller publishes it by opening the `gate` under a new generation, works on it
//! itself, closes the gate when no task is left and waits for the workers inside. A worker enters by
//! incrementing the gate's count while it is open, so a worker that sleeps through a job costs nothing, and the
//! job's closure outlives everyone who may call it.

use meshwork_graph::ops::Parallel;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A group of threads, one of which is whoever calls [`Par::run`].
pub struct Par {
    threads: usize,
    shared: Arc<SharedState>,
    caller: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

type Task = *const (dyn Fn(usize) + Sync);

/// Low bits of the gate: workers inside the job.
const INSIDE: u64 = 0xFFFF;
/// The gate is open: workers may enter.
const OPEN: u64 = 1 << 16;
/// One generation; every job has its own.
const GENERATION: u64 = 1 << 17;

/// How long an idle worker looks for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(60);

struct SharedState {
    gate: AtomicU64,
    /// Written by the caller while the gate is closed and nobody is inside, read by workers inside.
    job: UnsafeCell<(Option<Task>, usize)>,
    next: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleeping: AtomicUsize,
    bed: Mutex<()>,
    bell: Condvar,
    stop: AtomicBool,
}

// SAFETY: `job` is guarded by the gate as described at the top.
unsafe impl Sync for SharedState {}
// SAFETY: the task pointer is only followed while the caller of `run` keeps the closure alive.
unsafe impl Send for SharedState {}

thread_local! {
    /// Set while this thread runs a task: a nested `run` is done by this thread alone.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

impl Par {
    /// A group of `threads` threads: the caller's and `threads - 1` workers.
    ///
    /// # Panics
    /// When `threads` is 0 or more than 65,535, or the system refuses a thread.
    pub fn new(threads: usize) -> Self {
        Par::try_new(threads).expect("the system has no thread left for a worker")
    }

    /// As [`Par::new`], with an error when the system refuses a thread.
    ///
    /// # Panics
    /// When `threads` is 0 or more than 65,535.
    pub fn try_new(threads: usize) -> std::io::Result<Self> {
        Par::with_start(threads, |_| {})
    }

    /// As [`Par::try_new`]; worker number 1, 2, … calls `start` with its number before it works.
    ///
    /// # Panics
    /// When `threads` is 0 or more than 65,535.
    pub fn with_start(threads: usize, start: impl Fn(usize) + Clone + Send + 'static) -> std::io::Result<Self> {
        assert!((1..=INSIDE as usize).contains(&threads), "a group needs 1 to 65535 threads, not {threads}");
        let shared = Arc::new(SharedState {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new((None, 0)),
            next: AtomicUsize::new(0),
            panic: Mutex::new(None),
            sleeping: AtomicUsize::new(0),
            bed: Mutex::new(()),
            bell: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let mut par = Par { threads, shared, caller: Mutex::new(()), workers: Vec::new() };
        for i in 1..threads {
            let shared = par.shared.clone();
            let name = format!("meshwork-worker-{i}");
            let start = start.clone();
            let body = move || {
                start(i);
                shared.work();
            };
            par.workers.push(std::thread::Builder::new().name(name).spawn(body)?);
        }
        Ok(par)
    }

    /// The caller's thread alone.
    pub fn serial() -> &'static Par {
        static SERIAL: LazyLock<Par> = LazyLock::new(|| Par::new(1));
        &SERIAL
    }

    /// Number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `task(0)`, …, `task(count - 1)` in any order on any of the threads; returns when all are done.
    ///
    /// # Panics
    /// With the panic of a task, after all tasks that had started are done.
    pub fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.threads == 1 || IN_TASK.get() {
            (0..count).for_each(task);
            return;
        }
        let _turn = self.caller.lock().unwrap_or_else(|e| e.into_inner());
        let shared = &*self.shared;
        // SAFETY: the gate is closed and nobody is inside. The lifetime is erased, but nobody follows the pointer
        // after this function has returned.
        unsafe {
            let task: Task = std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Task>(task);
            *shared.job.get() = (Some(task), count);
        }
        shared.next.store(0, Ordering::Relaxed);
        shared.gate.fetch_add(GENERATION | OPEN, Ordering::SeqCst);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            let _bed = shared.bed.lock().unwrap_or_else(|e| e.into_inner());
            shared.bell.notify_all();
        }
        shared.tasks(task, count);
        shared.gate.fetch_and(!OPEN, Ordering::SeqCst);
        let mut spins = 0u32;
        while shared.gate.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins.is_multiple_of(1 << 12) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let panic = shared.panic.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Splits `0..len` into equal ranges of at least `grain` and calls `task` for each, on all threads.
    pub fn ranges(&self, len: usize, grain: usize, task: &(dyn Fn(std::ops::Range<usize>) + Sync)) {
        let parts = (len / grain.max(1)).clamp(1, self.threads * 4);
        let bound = |i: usize| (i as u128 * len as u128 / parts as u128) as usize;
        self.run(parts, &|i| task(bound(i)..bound(i + 1)));
    }
}

impl SharedState {
    fn tasks(&self, task: &(dyn Fn(usize) + Sync), count: usize) {
        IN_TASK.set(true);
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= count {
                break;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(i))) {
                self.next.store(count, Ordering::Relaxed);
                self.panic.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(panic);
            }
        }
        IN_TASK.set(false);
    }

    fn work(&self) {
        let mut done = 0;
        let (mut idle, mut looks) = (Instant::now(), 0u32);
        while !self.stop.load(Ordering::Relaxed) {
            let gate = self.gate.load(Ordering::Acquire);
            let fresh = gate / GENERATION != done && gate & OPEN != 0;
            if fresh && self.gate.compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                done = gate / GENERATION;
                // SAFETY: we are inside, so the job stays as it is and its closure alive.
                let (task, count) = unsafe { *self.job.get() };
                // SAFETY: as above.
                self.tasks(unsafe { &*task.expect("a published job") }, count);
                self.gate.fetch_sub(1, Ordering::Release);
                idle = Instant::now();
                continue;
            }
            looks = looks.wrapping_add(1);
            if fresh || !looks.is_multiple_of(64) || idle.elapsed() < SPIN {
                std::hint::spin_loop();
            } else {
                self.sleep(done);
                idle = Instant::now();
            }
        }
    }

    /// Sleeps until a job of another generation is open. The count of sleepers is raised before the gate is looked
    /// at, and the caller opens the gate before it looks at the count: one of the two sees the other.
    fn sleep(&self, done: u64) {
        let mut bed = self.bed.lock().unwrap_or_else(|e| e.into_inner());
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        loop {
            let gate = self.gate.load(Ordering::SeqCst);
            if self.stop.load(Ordering::SeqCst) || (gate / GENERATION != done && gate & OPEN != 0) {
                break;
            }
            bed = self.bell.wait(bed).unwrap_or_else(|e| e.into_inner());
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Par {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        {
            let _bed = self.shared.bed.lock().unwrap_or_else(|e| e.into_inner());
            self.shared.bell.notify_all();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Parallel for Par {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        Par::run(self, count, task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 8] {
            let par = Par::new(threads);
            for count in [0, 1, 2, 7, 100, 1000] {
                let hits: Vec<AtomicU32> = (0..count).map(|_| AtomicU32::new(0)).collect();
                par.run(count, &|i| {
                    hits[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(hits.iter().all(|h| h.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn sleepers_wake_up() {
        let par = Par::new(3);
        for round in 0..20 {
            std::thread::sleep(Duration::from_millis(round % 3));
            let sum = AtomicUsize::new(0);
            par.run(50, &|i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 1225);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_group_goes_on() {
        let par = Par::new(2);
        let result = catch_unwind(AssertUnwindSafe(|| par.run(10, &|i| assert!(i != 5, "task five"))));
        assert!(result.is_err());
        let count = AtomicUsize::new(0);
        par.run(10, &|_| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 10);
    }

    #[test]
    fn nested_runs_do_not_deadlock() {
        let par = Par::new(2);
        let count = AtomicUsize::new(0);
        par.run(4, &|_| {
            par.run(4, &|_| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(count.into_inner(), 16);
    }
}
