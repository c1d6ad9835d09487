//! Whose threads a kernel uses: persistent workers that spin briefly and then sleep.
//!
//! One job runs at a time. The caller publishes it by opening the `gate`, works on it itself and waits for the workers
//! inside, each on its own share first ([`Shares`]); whoever finds no task left closes the gate. A worker enters by incrementing the gate's count while it is
//! open, so a worker that sleeps through a job costs nothing, and the job's closure outlives everyone who may call it.
//!
//! A group that is a member of a [`Commons`] opens its gate for guests, too: threads of other groups that have nothing
//! to do.

mod commons;
mod shares;
mod slots;

pub use commons::{Commons, Member};
pub use shares::Shares;
pub use slots::with_slots;

use meshwork_graph::ops::Parallel;
use meshwork_simd::line::{prefetch_to_write, prefetch_value};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A group of threads, one of which is whoever calls [`Par::run`].
pub struct Par {
    threads: usize,
    lanes: usize,
    /// With whom the group shares its jobs.
    commons: Option<Arc<Commons>>,
    shared: Arc<SharedState>,
    caller: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

type Task = *const (dyn Fn(usize) + Sync);

/// Room for a closure, with nothing beside it.
#[repr(C, align(4096))]
struct Desk([MaybeUninit<u8>; DESK]);

const DESK: usize = 4096;

/// A closure on the desk, which is dropped there when a task panics.
struct Taken<F>(*mut F);

impl<F> Drop for Taken<F> {
    fn drop(&mut self) {
        // SAFETY: who has it has the turn, and the job has ended.
        unsafe { self.0.drop_in_place() }
    }
}

/// Low bits of the gate: workers inside the job.
const INSIDE: u64 = 0xFFFF;
/// The gate is open: workers may enter.
const OPEN: u64 = 1 << 16;
/// The open gate is open for guests, too.
const FOR_GUESTS: u64 = 1 << 17;

/// How long an idle worker looks for the next job before it sleeps.
const SPIN: Duration = Duration::from_micros(60);

struct SharedState {
    gate: AtomicU64,
    /// Written by the caller while the gate is closed and nobody is inside, read by workers inside.
    job: UnsafeCell<Option<Task>>,
    /// Where the closure of a job may be, for who has the turn.
    desk: Box<UnsafeCell<Desk>>,
    /// The tasks of the job, by thread.
    shares: Shares,
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
    /// What calls this thread away from the job of another group, which it works on.
    static AWAY: Cell<Option<*const Called<'static>>> = const { Cell::new(None) };
}

type Called<'a> = dyn Fn() -> bool + Sync + 'a;

/// Whether this thread helps another group and has something of its own to do: a task that is long because it takes
/// piece after piece of its job may leave the rest to the other threads. The caller of [`Par::run`] is never called away.
pub fn is_called_away() -> bool {
    // SAFETY: whoever set it holds it until the job has ended for this thread.
    AWAY.get().is_some_and(|called| unsafe { (*called)() })
}

/// Does something with [`is_called_away`] answering what `called` says.
fn helping<R>(called: &Called, work: impl FnOnce() -> R) -> R {
    struct Back(Option<*const Called<'static>>);
    impl Drop for Back {
        fn drop(&mut self) {
            AWAY.set(self.0);
        }
    }
    // SAFETY: the lifetime is erased until the end of this function.
    let called = unsafe { std::mem::transmute::<*const Called<'_>, *const Called<'static>>(called) };
    let _back = Back(AWAY.replace(Some(called)));
    work()
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
        Par::with_start(threads, |_| || {})
    }

    /// As [`Par::try_new`]; worker number 1, 2, … calls `start` with its number before it works, and what that gives after each
    /// job: it often has nothing to do for a moment then.
    ///
    /// # Panics
    /// When `threads` is 0 or more than 65,535.
    pub fn with_start<F: Fn()>(
        threads: usize,
        start: impl Fn(usize) -> F + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        assert!((1..=INSIDE as usize).contains(&threads), "a group needs 1 to 65535 threads, not {threads}");
        let shared = Arc::new(SharedState {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            desk: Box::new(UnsafeCell::new(Desk([MaybeUninit::uninit(); DESK]))),
            shares: Shares::new(threads),
            panic: Mutex::new(None),
            sleeping: AtomicUsize::new(0),
            bed: Mutex::new(()),
            bell: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        let mut par =
            Par { threads, lanes: threads, commons: None, shared, caller: Mutex::new(()), workers: Vec::new() };
        for i in 1..threads {
            let shared = par.shared.clone();
            let name = format!("meshwork-worker-{i}");
            let start = start.clone();
            let body = move || {
                let afterwards = start(i);
                shared.work(i, &afterwards);
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

    /// Number of threads that a job should have work and room for: those of the group, and guests.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Calls `task(0)`, …, `task(count - 1)` in any order on any of the threads; returns when all are done.
    ///
    /// # Panics
    /// With the panic of a task, after all tasks that had started are done.
    pub fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync)) {
        if count <= 1 || self.lanes == 1 || IN_TASK.get() {
            (0..count).for_each(task);
            return;
        }
        let _turn = self.turn();
        self.open(count, task, self.guests());
    }

    /// As [`Par::run`], for jobs so short that it counts how threads come to know them: the closure, which should hold all that
    /// its tasks need, is moved to a place that nobody else writes near. On the caller's stack threads would take lines beside it
    /// along, for which the caller then waits. Gives the closure back.
    ///
    /// # Panics
    /// As [`Par::run`].
    #[inline(always)]
    pub fn run_held<F: Fn(usize) + Sync>(&self, count: usize, task: F) -> F {
        let fits = size_of::<F>() <= size_of::<Desk>() && align_of::<F>() <= align_of::<Desk>();
        if count <= 1 || self.lanes == 1 || IN_TASK.get() || !fits {
            self.run(count, &task);
            return task;
        }
        let _turn = self.turn();
        let place: *mut F = self.shared.desk.get().cast();
        prefetch_to_write(place.cast(), size_of::<F>());
        // SAFETY: the closure fits, and whoever has the turn has the desk.
        let held = unsafe {
            place.write(task);
            Taken(place)
        };
        // SAFETY: it stays there until the job has ended.
        self.open(count, unsafe { &*held.0 }, self.guests());
        let Taken(place) = *std::mem::ManuallyDrop::new(held);
        // SAFETY: nobody has it any more, and it is not dropped there.
        unsafe { place.read() }
    }

    /// The right to run a job.
    fn turn(&self) -> MutexGuard<'_, ()> {
        self.caller.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whose threads may join jobs.
    fn guests(&self) -> Option<&Commons> {
        self.commons.as_deref().filter(|_| self.lanes > self.threads)
    }

    /// As [`Par::run`] with more than one task, outside of all tasks, for who has the turn.
    fn open(&self, count: usize, task: &(dyn Fn(usize) + Sync), guests: Option<&Commons>) {
        let shared = &*self.shared;
        // SAFETY: the gate is closed and nobody is inside. The lifetime is erased, but nobody follows the pointer
        // after this function has ended, in whatever way.
        unsafe {
            let task: Task = std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Task>(task);
            *shared.job.get() = Some(task);
        }
        shared.shares.deal(count);
        let open = OpenGate(shared);
        shared.gate.fetch_or(OPEN | if guests.is_some() { FOR_GUESTS } else { 0 }, Ordering::SeqCst);
        if shared.sleeping.load(Ordering::SeqCst) > 0 {
            let _bed = shared.bed.lock().unwrap_or_else(|e| e.into_inner());
            shared.bell.notify_all();
        }
        guests.into_iter().for_each(Commons::call);
        shared.tasks(task, 0, &|| false);
        drop(open);
        let panic = shared.panic.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Splits `0..len` into equal ranges of at least `grain` and calls `task` for each, on all threads.
    pub fn ranges(&self, len: usize, grain: usize, task: &(dyn Fn(std::ops::Range<usize>) + Sync)) {
        let parts = (len / grain.max(1)).clamp(1, self.lanes * 4);
        let bound = |i: usize| (i as u128 * len as u128 / parts as u128) as usize;
        self.run(parts, &|i| task(bound(i)..bound(i + 1)));
    }
}

impl SharedState {
    /// Does tasks, those of share number `own` first, until none is left, which closes the gate, or a guest is called
    /// away. Only for who is inside, or the caller, who stays.
    fn tasks(&self, task: &(dyn Fn(usize) + Sync), own: usize, called: &dyn Fn() -> bool) {
        let outer = IN_TASK.replace(true);
        while !called() {
            let Some(i) = self.shares.take(own) else {
                // The next job cannot have begun: this one has not ended for who is inside.
                self.gate.fetch_and(!(OPEN | FOR_GUESTS), Ordering::SeqCst);
                break;
            };
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(i))) {
                self.shares.clear();
                self.panic.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(panic);
            }
        }
        IN_TASK.set(outer);
    }

    /// Whether there is a job that whoever looks for this bit of the gate may join.
    fn is_open(&self, bit: u64) -> bool {
        self.gate.load(Ordering::SeqCst) & bit != 0
    }

    /// Enters if the gate is open for this bit, and does tasks, those of share number `own` first, until none is left or
    /// `called`, holding what `begin` gives. Says whether it entered.
    fn join<T>(&self, bit: u64, own: usize, called: &dyn Fn() -> bool, begin: impl Fn() -> T) -> bool {
        let entered = |gate: u64| (gate & bit != 0 && gate & INSIDE != INSIDE).then_some(gate + 1);
        if self.gate.fetch_update(Ordering::AcqRel, Ordering::Acquire, entered).is_err() {
            return false;
        }
        let busy = begin();
        // SAFETY: we are inside, so the job stays as it is and its closure alive.
        let task = unsafe { &*(*self.job.get()).expect("a published job") };
        prefetch_value(task);
        self.tasks(task, own, called);
        drop(busy);
        self.gate.fetch_sub(1, Ordering::Release);
        true
    }

    fn work(&self, own: usize, afterwards: &dyn Fn()) {
        let mut patience = Patience::new();
        while !self.stop.load(Ordering::Relaxed) {
            if self.join(OPEN, own, &|| false, || ()) {
                afterwards();
                patience = Patience::new();
            } else if !patience.look_again() {
                self.sleep();
                patience = Patience::new();
            }
        }
    }

    /// Sleeps until a job is open. The count of sleepers is raised before the gate is looked at, and the caller opens
    /// the gate before it looks at the count: one of the two sees the other.
    fn sleep(&self) {
        let mut bed = self.bed.lock().unwrap_or_else(|e| e.into_inner());
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        while !self.stop.load(Ordering::SeqCst) && !self.is_open(OPEN) {
            bed = self.bell.wait(bed).unwrap_or_else(|e| e.into_inner());
        }
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A job that is published; dropping it closes the gate, and waits for those inside.
struct OpenGate<'a>(&'a SharedState);

impl Drop for OpenGate<'_> {
    fn drop(&mut self) {
        self.0.gate.fetch_and(!(OPEN | FOR_GUESTS), Ordering::SeqCst);
        let mut spins = 0u32;
        while self.0.gate.load(Ordering::Acquire) & INSIDE != 0 {
            spins += 1;
            if spins.is_multiple_of(1 << 12) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    }
}

/// Looking for work for a while, about as long as waking a thread takes.
pub struct Patience {
    since: Instant,
    looks: u32,
}

impl Patience {
    /// From now on.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Patience {
        Patience { since: Instant::now(), looks: 0 }
    }

    /// Pauses for a moment, unless it is time to sleep.
    pub fn look_again(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        let goes_on = !self.looks.is_multiple_of(64) || self.since.elapsed() < SPIN;
        if goes_on {
            std::hint::spin_loop();
        }
        goes_on
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
    fn a_held_closure_comes_back_whole_and_is_dropped_once() {
        fn check<const BYTES: usize>(threads: usize, count: usize, panics: bool) {
            let (par, sum, owners) = (Par::new(threads), AtomicUsize::new(0), Arc::new(()));
            let (sum, held, fill) = (&sum, owners.clone(), [7u8; BYTES]);
            let task = move |i: usize| {
                assert!(!panics || i + 1 < count, "the last task");
                assert!(fill.iter().all(|&x| x == 7) && Arc::strong_count(&held) == 2);
                sum.fetch_add(i, Ordering::Relaxed);
            };
            let result = catch_unwind(AssertUnwindSafe(|| par.run_held(count, task)));
            assert_eq!(result.is_err(), panics && count > 0);
            if let Ok(task) = result {
                assert_eq!(sum.load(Ordering::Relaxed), count * count.saturating_sub(1) / 2);
                task(count);
            }
            assert_eq!(Arc::strong_count(&owners), 1);
        }
        for threads in [1, 2, 3] {
            for (count, panics) in [(0, false), (1, false), (2, false), (50, false), (1, true), (50, true)] {
                check::<1>(threads, count, panics);
                check::<1000>(threads, count, panics);
                check::<5000>(threads, count, panics);
            }
        }
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
