//! What a device computes with: its threads, and memory for what lives only during a run.

use crate::buffer::Pool;
use crate::cores;
use crate::execute::Run;
use crate::load::{Meter, Task};
use crate::memory;
use meshwork_cpu::{Level, Par};
use meshwork_queue::{Event, RunError, help_serving};
use std::ptr::NonNull;
use std::sync::Arc;

/// The context of a device's compute queue. The thread that serves the queue is the first thread of its kernels.
pub(crate) struct Worker {
    pool: Arc<Pool>,
    /// The cores that its threads stay on; any, if there are none.
    cores: Arc<[usize]>,
    par: Option<Par>,
    arena: Arena,
    meter: Arc<Meter>,
}

impl Worker {
    pub fn new(pool: Arc<Pool>, cores: &[usize], meter: Arc<Meter>) -> Worker {
        Worker { pool, cores: cores.into(), par: None, arena: Arena::default(), meter }
    }

    /// Keeps the calling thread on the first core of the device.
    pub fn pin(&self) {
        cores::pin(&self.cores, 0);
    }

    /// Runs a program, and completes the event's results.
    pub fn run(&mut self, mut run: Run, done: &Event) {
        if self.par.as_ref().is_none_or(|par| par.threads() != run.threads) {
            self.par = None;
            let cores = self.cores.clone();
            let start = move |thread| {
                cores::pin(&cores, thread);
                help_serving();
            };
            match Par::with_start(run.threads, start) {
                Ok(par) => self.par = Some(par),
                Err(e) => {
                    let cause = format!("the system refuses {} threads ({e}); set fewer", run.threads);
                    let failure = RunError(cause.into());
                    (0..run.outputs.len()).for_each(|i| done.complete(i, Err(failure.clone())));
                }
            }
        }
        let running = self.meter.begin(Task::Program(run.program.clone()));
        let Some(par) = &self.par else { return };
        let bytes = run.program.memory.arena;
        self.pool.account(bytes);
        run.execute(self.arena.at_least(bytes), par, Level::current(), done, &running);
        self.pool.unaccount(bytes);
        // Whoever waits for the end of the run finds the memory of dropped inputs free.
        run.let_go();
    }
}

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
