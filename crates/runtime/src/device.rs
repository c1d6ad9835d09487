//! A device: a queue with its own threads and memory.

use crate::Value;
use crate::buffer::{Buffer, MemoryStats, Pool};
use crate::event::{Event, Ready};
use crate::execute::{Binding, Run};
use crate::load::{DeviceLoad, Meter, Task};
use meshwork_cpu::{Level, Par};
use meshwork_graph::program::Program;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};

/// What is wrong with a request for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A thread count that no device can have.
    #[error("{0} threads: a device needs 1 to 1024 (this machine has {1} cores)")]
    Threads(usize, usize),
    /// A device that does not exist.
    #[error("cpu:{0} does not exist: there is one CPU device, cpu:0, with all cores")]
    NoSuchDevice(usize),
}

/// A group of cores with its own queue and memory. Cheap to clone; clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    index: usize,
    threads: AtomicUsize,
    queue: Mutex<SyncSender<Job>>,
    pool: Arc<Pool>,
    meter: Arc<Meter>,
}

enum Job {
    Run(Box<Run>),
    Mark(Mark),
}

/// An event that is complete when the queue has come this far, or has ended.
struct Mark(Arc<Event>);

impl Drop for Mark {
    fn drop(&mut self) {
        self.0.complete(Vec::new());
    }
}

/// Most runs that wait for the queue. Who hands over more waits: recording never runs far ahead, and the memory that
/// waiting runs hold stays bounded.
const MAX_WAITING: usize = 4;

/// Most threads that a device accepts.
const MAX_THREADS: usize = 1024;

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

impl Device {
    /// The CPU device number `index`. Device 0 has all cores of the machine; there is no other one yet.
    pub fn cpu(index: usize) -> Result<Device, DeviceError> {
        static FIRST: OnceLock<Device> = OnceLock::new();
        match index {
            0 => Ok(FIRST.get_or_init(|| Device::start(0, cores())).clone()),
            _ => Err(DeviceError::NoSuchDevice(index)),
        }
    }

    fn start(index: usize, threads: usize) -> Device {
        // A level that `MESHWORK_SIMD` asks for in vain is an error here, not on the queue's thread.
        Level::current();
        let (queue, jobs) = sync_channel(MAX_WAITING);
        let pool = Arc::new(Pool::default());
        let memory = pool.clone();
        let meter = Arc::new(Meter::new(format!("cpu:{index}")));
        let own_meter = meter.clone();
        std::thread::Builder::new()
            .name(format!("meshwork-cpu:{index}"))
            .spawn(move || serve(jobs, &memory, &own_meter))
            .expect("the system has no thread left for a device's queue");
        let inner = Inner { index, threads: AtomicUsize::new(threads), queue: Mutex::new(queue), pool, meter };
        Device { inner: Arc::new(inner) }
    }

    /// Number of threads that the device's kernels use.
    pub fn num_threads(&self) -> usize {
        self.inner.threads.load(Ordering::Relaxed)
    }

    /// Changes the number of threads for work that is handed over from now on. Results do not depend on it.
    pub fn set_num_threads(&self, threads: usize) -> Result<(), DeviceError> {
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(DeviceError::Threads(threads, cores()));
        }
        self.inner.threads.store(threads, Ordering::Relaxed);
        Ok(())
    }

    /// Memory in use on the device.
    pub fn memory(&self) -> MemoryStats {
        self.inner.pool.stats()
    }

    /// What the device is doing now.
    pub fn load(&self) -> DeviceLoad {
        let meter = &self.inner.meter;
        DeviceLoad {
            name: format!("{self:?}"),
            threads: self.num_threads(),
            queues: vec![meter.load()],
            memory: self.memory(),
            planned: meter.planned(),
        }
    }

    /// Starts a new measurement of the peak.
    pub fn reset_peak_memory(&self) {
        self.inner.pool.reset_peak();
    }

    /// Waits until all work that was handed over so far is done. Errors reach those who read the values.
    pub fn synchronize(&self) {
        let event = Arc::new(Event::default());
        self.submit(Job::Mark(Mark(event.clone())));
        event.wait();
    }

    /// A value with these bytes.
    pub fn upload(&self, contents: &[u8]) -> Value {
        Value::new(Arc::new(Buffer::of(&self.inner.pool, contents)), Ready::now())
    }

    /// Hands a program over. Returns its outputs before they are computed, at once unless several runs are waiting
    /// already; runs are computed in the order of hand-over.
    ///
    /// Donated inputs are overwritten; for the other outputs memory is allocated. The program runs on as many threads as
    /// it was compiled for.
    ///
    /// # Panics
    /// When the number of inputs is not the program's.
    pub fn run(&self, program: Arc<Program>, inputs: Vec<Binding>, threads: usize) -> Vec<Value> {
        assert_eq!(inputs.len(), program.inputs.len(), "inputs of a program");
        let outputs: Vec<Arc<Buffer>> = program
            .outputs
            .iter()
            .map(|output| match output.donated.map(|i| &inputs[i]) {
                Some(Binding::Buffer(buffer, _)) => buffer.clone(),
                _ => Arc::new(Buffer::new(&self.inner.pool, output.ty.bytes())),
            })
            .collect();
        let done = Arc::new(Event::default());
        let value = |(i, buffer): (usize, &Arc<Buffer>)| Value::new(buffer.clone(), Ready::with(&done, i));
        let values = outputs.iter().enumerate().map(value).collect();
        self.inner.meter.queued();
        self.submit(Job::Run(Box::new(Run { program, threads, inputs, outputs, done })));
        values
    }

    fn submit(&self, job: Job) {
        let queue = self.inner.queue.lock().unwrap_or_else(|e| e.into_inner());
        queue.send(job).expect("a device's queue runs as long as the device");
    }
}

/// The queue's thread: it is also the first thread of the device's kernels.
fn serve(jobs: Receiver<Job>, pool: &Arc<Pool>, meter: &Meter) {
    let mut par: Option<Par> = None;
    let mut arena = Arena::default();
    while let Ok(job) = jobs.recv() {
        let mut run = match job {
            Job::Run(run) => run,
            Job::Mark(mark) => {
                drop(mark);
                continue;
            }
        };
        let running = meter.begin(Task::Program(run.program.clone()));
        if par.as_ref().is_none_or(|par| par.threads() != run.threads) {
            par = None;
            match Par::try_new(run.threads) {
                Ok(new) => par = Some(new),
                Err(e) => run.fail(&format!("the system refuses {} threads ({e}); set fewer", run.threads)),
            }
        }
        let Some(par) = &par else { continue };
        pool.account(run.program.memory.arena);
        let room = arena.at_least(run.program.memory.arena);
        let outcomes = run.execute(room, par, Level::current(), &running);
        pool.unaccount(run.program.memory.arena);
        // Whoever waits for the run finds the memory of dropped inputs free.
        run.let_go();
        drop(running);
        run.done.complete(outcomes);
    }
}

/// Memory for what lives only during a run, kept over runs.
#[derive(Default)]
struct Arena {
    blocks: Vec<Line>,
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl Arena {
    fn at_least(&mut self, bytes: usize) -> *mut u8 {
        let lines = bytes.div_ceil(size_of::<Line>());
        if self.blocks.len() < lines {
            self.blocks = Vec::new();
            self.blocks = vec![Line([0; 64]); lines];
        }
        self.blocks.as_mut_ptr().cast()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu:{}", self.inner.index)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}
