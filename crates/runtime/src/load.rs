//! What a queue says of itself while it works, for whoever watches.

use crate::buffer::MemoryStats;
use crate::trace::HELP;
use meshwork_graph::program::{Program, Step};
use meshwork_graph::{Op, Type};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a queue was doing at one moment, and has done since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueLoad {
    /// The queue's name: `cpu:0`.
    pub name: String,
    /// Time spent on tasks, the running one included, and on shares of other devices' kernels.
    pub busy: Duration,
    /// Tasks that wait.
    pub depth: usize,
    /// Tasks that are done.
    pub tasks: u64,
    /// Kernels that are done.
    pub kernels: u64,
    /// The operation that is running, with the type of its result: `dot -> f32[32, 10]`; or that it helps another device.
    pub running: Option<String>,
}

/// What a device was doing at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceLoad {
    /// The device's name: `cpu:0`.
    pub name: String,
    /// Threads of its kernels.
    pub threads: usize,
    /// Its queues.
    pub queues: Vec<QueueLoad>,
    /// Memory in use.
    pub memory: MemoryStats,
    /// Bytes that the largest program so far plans for its peak.
    pub planned: usize,
}

/// The name of a kernel: that of a chain has all of its kernels.
pub(crate) fn kernel_name(op: &Op) -> String {
    match op {
        Op::Chain(chain) => chain.names(kernel_name),
        Op::Epilogue(epilogue) => epilogue.names(kernel_name),
        op => op.operation().name().to_string(),
    }
}

/// A task, as far as it can be watched.
pub(crate) enum Task {
    /// Kernels, one after the other.
    Program(Arc<Program>),
    /// A share of what another device computes; none of the queue's own tasks.
    Help,
    /// A copy of a value of this type.
    Copy(Type),
}

/// What a queue counts of itself. A task takes the lock twice, which nobody but a watcher contends for, and a kernel
/// costs one relaxed store.
pub(crate) struct Meter {
    name: String,
    /// Submitters count up and the queue counts down, in whichever order they come.
    waiting: AtomicIsize,
    /// The step of the running program.
    step: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    running: Option<(Task, Instant)>,
    busy: Duration,
    tasks: u64,
    kernels: u64,
    planned: usize,
}

impl Meter {
    /// The meter of a queue that has done nothing yet.
    pub fn new(name: String) -> Meter {
        Meter { name, waiting: AtomicIsize::new(0), step: AtomicUsize::new(0), state: Mutex::default() }
    }

    /// A task begins to wait.
    pub fn queued(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// A task that waited begins; it ends when the guard is dropped.
    pub fn begin(&self, task: Task) -> Running<'_> {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        self.run(task)
    }

    /// A task that waited has been done beside the queue, in so long.
    pub fn passed(&self, time: Duration) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.lock();
        state.busy += time;
        state.tasks += 1;
    }

    /// The queue helps another one until the guard is dropped.
    pub fn help(&self) -> Running<'_> {
        self.run(Task::Help)
    }

    fn run(&self, task: Task) -> Running<'_> {
        let mut state = self.lock();
        if let Task::Program(program) = &task {
            state.planned = state.planned.max(program.memory.peak());
        }
        // Inside of the lock, so that a watcher never sees a program with a step of the one before.
        self.step.store(0, Ordering::Relaxed);
        state.running = Some((task, Instant::now()));
        Running(self)
    }

    /// The queue at this moment.
    pub fn load(&self) -> QueueLoad {
        let state = self.lock();
        let mut load = QueueLoad {
            name: self.name.clone(),
            busy: state.busy,
            depth: usize::try_from(self.waiting.load(Ordering::Relaxed)).unwrap_or(0),
            tasks: state.tasks,
            kernels: state.kernels,
            running: None,
        };
        let Some((task, since)) = &state.running else { return load };
        load.busy += since.elapsed();
        load.running = match task {
            Task::Copy(ty) => Some(format!("copy of {ty}")),
            Task::Help => Some(HELP.into()),
            Task::Program(program) => {
                let step = self.step.load(Ordering::Relaxed);
                load.kernels += step as u64;
                let name = |step: &Step| format!("{} -> {}", kernel_name(&step.op), step.outputs[0].ty);
                program.steps.get(step).map(name)
            }
        };
        load
    }

    /// Bytes that the largest program so far plans for its peak.
    pub fn planned(&self) -> usize {
        self.lock().planned
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// A task that is running; dropping it is its end.
pub(crate) struct Running<'a>(&'a Meter);

impl Running<'_> {
    /// The program has come to its step number `step`.
    pub fn at(&self, step: usize) {
        self.0.step.store(step, Ordering::Relaxed);
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        let Some((task, since)) = state.running.take() else { return };
        state.busy += since.elapsed();
        state.tasks += u64::from(!matches!(task, Task::Help));
        if let Task::Program(program) = task {
            state.kernels += program.steps.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwork_graph::program::Memory;

    fn program(arena: usize) -> Arc<Program> {
        let memory = Memory { arena, ..Memory::default() };
        Arc::new(Program { inputs: Vec::new(), outputs: Vec::new(), steps: Vec::new(), memory })
    }

    #[test]
    fn tasks_wait_run_and_are_counted() {
        let meter = Meter::new("cpu:7".into());
        meter.queued();
        meter.queued();
        assert_eq!(meter.load(), QueueLoad { name: "cpu:7".into(), depth: 2, ..QueueLoad::default() });

        let running = meter.begin(Task::Program(program(64)));
        std::thread::sleep(Duration::from_millis(2));
        let during = meter.load();
        assert!(during.busy >= Duration::from_millis(2), "{during:?}");
        assert_eq!((during.depth, during.tasks), (1, 0));
        drop(running);
        let after = meter.load();
        assert!(after.busy >= during.busy);
        assert_eq!((after.depth, after.tasks, meter.planned()), (1, 1, 64));
        assert_eq!(meter.load(), after, "an idle queue is not busy");

        drop(meter.begin(Task::Program(program(16))));
        assert_eq!((meter.load().depth, meter.load().tasks, meter.planned()), (0, 2, 64));

        meter.queued();
        meter.passed(Duration::from_millis(1));
        assert_eq!((meter.load().depth, meter.load().tasks), (0, 3));

        let after = meter.load();
        let helping = meter.help();
        assert_eq!(meter.load().running.as_deref(), Some(HELP));
        std::thread::sleep(Duration::from_millis(2));
        drop(helping);
        let helped = meter.load();
        assert!(helped.busy >= after.busy + Duration::from_millis(2), "{helped:?}");
        assert_eq!((helped.depth, helped.tasks, helped.running), (0, 3, None), "help is no task of its own");
    }
}
