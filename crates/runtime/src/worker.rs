//! What a device computes with: its threads, and memory for what lives only during a run.

use crate::buffer::Pool;
use crate::cores;
use crate::execute::Run;
use crate::load::{Meter, Task};
use crate::memory;
use crate::trace;
use meshwork_cpu::Level;
use meshwork_cpu::par::{Commons, Member, Par, Patience};
use meshwork_queue::{Event, Idle, Queue, Ringer, RunError, help_serving};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

/// The devices of this process help each other: one that waits for others computes with them.
static COMMONS: LazyLock<Arc<Commons>> = LazyLock::new(Arc::default);

/// What a program was compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Width {
    /// Threads of the device.
    pub threads: usize,
    /// Threads of other devices that find work and room in a kernel when they have nothing to do.
    pub guests: usize,
}

impl Width {
    /// Threads for which there is work and room in a kernel.
    pub fn lanes(self) -> usize {
        self.threads + self.guests
    }
}

/// The context of a device's compute queue. The thread that serves the queue is the first thread of its kernels.
pub(crate) struct Worker {
    pool: Arc<Pool>,
    /// The cores that its threads stay on; any, if there are none.
    cores: Arc<[usize]>,
    /// Its threads, what they are for, and the right to help others.
    group: Option<(Par, Width, Option<Member>)>,
    arena: Arena,
    meter: Arc<Meter>,
    /// Where its work comes from.
    queue: Weak<Queue<Worker>>,
    /// The core of the thread that has woken last who waited for room.
    idle_core: Arc<AtomicUsize>,
}

/// No thread has woken anybody, or the system does not say on which core.
pub(crate) const NO_CORE: usize = usize::MAX;

impl Worker {
    pub fn new(pool: Arc<Pool>, cores: &[usize], meter: Arc<Meter>, queue: &Arc<Queue<Worker>>) -> Worker {
        let (queue, idle_core) = (Arc::downgrade(queue), Arc::new(AtomicUsize::new(NO_CORE)));
        Worker { pool, cores: cores.into(), group: None, arena: Arena::default(), meter, queue, idle_core }
    }

    /// The core of the thread that has woken last who waited for room, or [`NO_CORE`].
    pub fn idle_core(&self) -> Arc<AtomicUsize> {
        self.idle_core.clone()
    }

    /// Keeps the calling thread on the first core of the device.
    pub fn pin(&self) {
        cores::pin(&self.cores, 0);
    }

    /// Runs a program, and completes the event's results.
    pub fn run(&mut self, mut run: Run, done: &Event) {
        if self.group.as_ref().is_none_or(|(_, width, _)| *width != run.width) {
            self.group = None;
            match self.start(run.width) {
                Ok((par, member)) => self.group = Some((par, run.width, member)),
                Err(e) => {
                    let cause = format!("the system refuses {} threads ({e}); set fewer", run.width.threads);
                    let failure = RunError(cause.into());
                    (0..run.outputs.len()).for_each(|i| done.complete(i, Err(failure.clone())));
                }
            }
        }
        let running = self.meter.begin(Task::Program(run.program.clone()));
        let Some((par, ..)) = &self.group else { return };
        let bytes = run.program.memory.arena;
        self.pool.account(bytes);
        run.execute(self.arena.at_least(bytes), par, Level::current(), done, &running);
        self.pool.unaccount(bytes);
        // Whoever waits for the end of the run finds the memory of dropped inputs free.
        run.let_go();
    }

    /// Starts the threads.
    fn start(&self, width: Width) -> std::io::Result<(Par, Option<Member>)> {
        let cores = self.cores.clone();
        let ringer = self.queue.upgrade().map(|queue| queue.ringer());
        let idle_core = self.idle_core.clone();
        let mut par = Par::with_start(width.threads, move |thread| {
            cores::pin(&cores, thread);
            help_serving();
            let (ringer, idle_core) = (ringer.clone(), idle_core.clone());
            move || {
                if ringer.as_ref().is_some_and(Ringer::ring_if_due) {
                    idle_core.store(cores::current().unwrap_or(NO_CORE), Ordering::Relaxed);
                }
            }
        })?;
        let queue = self.queue.clone();
        let call = move || queue.upgrade().into_iter().for_each(|queue| queue.nudge());
        let member = (width.guests > 0).then(|| par.share(&COMMONS, width.guests, call));
        Ok((par, member))
    }
}

/// What a device does that waits for others.
pub(crate) struct Helping;

impl Idle<Worker> for Helping {
    const HELPS: bool = true;

    /// Only a device that has all cores: others, which have some, may share them.
    fn linger(&self, worker: &mut Worker, called: &dyn Fn() -> bool) {
        let mut patience = Patience::new();
        while worker.cores.is_empty() && !called() && patience.look_again() {
            std::thread::yield_now();
        }
    }

    fn help(&self, worker: &mut Worker, called: &(dyn Fn() -> bool + Sync)) {
        if let Some((par, _, Some(member))) = &worker.group {
            let since = member.help(par, called, || (worker.meter.help(), trace::help()));
            trace::waited(since, Instant::now(), WAITED);
        }
    }

    fn lie_down(&self, worker: &mut Worker) -> bool {
        matches!(&worker.group, Some((.., Some(member))) if member.lie_down())
    }

    fn get_up(&self, worker: &mut Worker) {
        if let Some((.., Some(member))) = &worker.group {
            member.get_up();
        }
    }

    fn slept(&self, since: Instant, until: Instant) {
        trace::waited(since, until, WAITED);
    }
}

/// What a queue that copies does when it waits for others.
pub(crate) struct Waiting;

impl<C> Idle<C> for Waiting {
    const HELPS: bool = false;

    fn slept(&self, since: Instant, until: Instant) {
        trace::waited(since, until, WAITED);
    }
}

const WAITED: &str = "what other queues have not done yet";

/// Memory for what lives only during a run, kept over runs.
#[derive(Default)]
struct Arena {
    block: Option<NonNull<u8>>,
    bytes: usize,
}

// SAFETY: the block belongs to the arena alone.
unsafe impl Send for Arena {}

impl Arena {
    fn at_least(&mut self, bytes: usize) -> *mut u8 {
        if self.block.is_none() || self.bytes < bytes {
            *self = Arena::default();
            let block = memory::take(bytes);
            // SAFETY: the block has so many bytes. Kernels find initialised memory.
            unsafe { block.write_bytes(0, bytes) };
            *self = Arena { block: NonNull::new(block), bytes };
        }
        self.block.map_or(std::ptr::null_mut(), NonNull::as_ptr)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        if let Some(block) = self.block {
            // SAFETY: it was taken for so many bytes.
            unsafe { memory::give_back(block.as_ptr(), self.bytes) };
        }
    }
}
