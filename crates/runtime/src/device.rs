//! A device: threads and memory of its own, a queue that computes and one that copies in.

use crate::ahead::Ahead;
use crate::buffer::{Buffer, MemoryStats, Pool};
use crate::copy::{self, Copy};
use crate::cores;
use crate::event::Event;
use crate::execute::{Binding, Run};
use crate::link::link;
use crate::load::{DeviceLoad, Meter, Task};
use crate::registry::DeviceError;
use crate::trace;
use crate::value::{Ready, Value};
use crate::worker::{Helping, NO_CORE, Waiting, Width, Worker};
use meshwork_cpu::Level;
use meshwork_graph::Type;
use meshwork_graph::program::{OutputPlace, Program};
use meshwork_queue::{Event as TaskEvent, Part, Queue};
use smallvec::SmallVec;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

/// The identity of a device in this process; no two devices ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// A group of cores with its own queues and memory. Cheap to clone; clones are the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    id: DeviceId,
    index: usize,
    cores: Vec<usize>,
    threads: AtomicUsize,
    /// Threads of other devices that could help.
    others: usize,
    compute: Arc<Queue<Worker>>,
    /// See [`Worker::idle_core`].
    idle_core: Arc<AtomicUsize>,
    copies: OnceLock<Arc<Queue<()>>>,
    pool: Arc<Pool>,
    /// What the two queues are doing.
    meters: [Arc<Meter>; 2],
    ahead: Mutex<Ahead>,
    /// What work that is handed over from now on starts after.
    fences: Mutex<Vec<Event>>,
}

/// Most threads that a device accepts.
pub(crate) const MAX_THREADS: usize = 1024;

/// The number of a task: its place in the order of hand-over, over all devices.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Device {
    pub(crate) fn start(id: DeviceId, index: usize, cores: &[usize], pinned: bool, others: usize) -> Device {
        // A level that `MESHWORK_SIMD` asks for in vain is an error here, not on the queue's thread.
        Level::current();
        let pool = Arc::new(Pool::new(id));
        let compute = Arc::new(Queue::new());
        let meters = [format!("cpu:{index}"), format!("copy to cpu:{index}")].map(|name| Arc::new(Meter::new(name)));
        let pinned = if pinned { cores } else { &[] };
        let (queue, mut worker) = (compute.clone(), Worker::new(pool.clone(), pinned, meters[0].clone(), &compute));
        let idle_core = worker.idle_core();
        spawn(format!("meshwork-cpu:{index}"), move || {
            trace::name_thread(&format!("cpu:{index}"));
            worker.pin();
            queue.serve(&mut worker, &Helping);
        });
        let inner = Inner {
            id,
            index,
            cores: cores.to_vec(),
            threads: AtomicUsize::new(cores.len()),
            others,
            compute,
            idle_core,
            copies: OnceLock::new(),
            pool,
            meters,
            ahead: Mutex::default(),
            fences: Mutex::default(),
        };
        Device { inner: Arc::new(inner) }
    }

    /// What tells the device from all others.
    pub fn id(&self) -> DeviceId {
        self.inner.id
    }

    /// The numbers of its cores.
    pub fn cores(&self) -> &[usize] {
        &self.inner.cores
    }

    /// Number of threads that the device's kernels use.
    pub fn num_threads(&self) -> usize {
        self.inner.threads.load(Ordering::Relaxed)
    }

    /// Changes the number of threads for work that is handed over from now on. Results do not depend on it.
    ///
    /// # Errors
    /// When the number is 0 or absurdly large.
    pub fn set_num_threads(&self, threads: usize) -> Result<(), DeviceError> {
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(DeviceError::Threads(threads, cores::all().len()));
        }
        self.inner.threads.store(threads, Ordering::Relaxed);
        Ok(())
    }

    /// What programs are to be compiled for that run on this device from now on: its threads, and as many guests, where
    /// other devices have cores of their own. A device whose work waits for others computes with those instead; over a
    /// link ([`set_link`](crate::set_link)) devices stand for machines, which cannot.
    pub fn width(&self) -> Width {
        let threads = self.num_threads();
        let guests = if matches!(link(), Ok(None)) { self.inner.others.min(threads) } else { 0 };
        Width { threads, guests }
    }

    /// Whether programs begin in the order of hand-over from now on. Otherwise (at first) one that is ready overtakes those
    /// that wait for other devices: faster for most layouts, but then chance decides how many values are there at a time, and
    /// a step may take more memory than planned. Results do not depend on it.
    pub fn set_in_order(&self, in_order: bool) {
        self.inner.compute.set_in_order(in_order);
    }

    /// See [`Device::set_in_order`].
    pub fn is_in_order(&self) -> bool {
        self.inner.compute.is_in_order()
    }

    /// Memory in use on the device.
    pub fn memory(&self) -> MemoryStats {
        self.inner.pool.stats()
    }

    /// What the device is doing now.
    pub fn load(&self) -> DeviceLoad {
        let [compute, copies] = &self.inner.meters;
        let copies = self.inner.copies.get().map(|_| copies.load());
        DeviceLoad {
            name: self.to_string(),
            threads: self.num_threads(),
            queues: std::iter::once(compute.load()).chain(copies).collect(),
            memory: self.memory(),
            planned: compute.planned(),
        }
    }

    /// Starts a new measurement of the peak.
    pub fn reset_peak_memory(&self) {
        self.inner.pool.reset_peak();
    }

    /// Waits until all work that was handed over to this device so far is done, copies into it included. Errors reach
    /// those who read the values.
    pub fn synchronize(&self) {
        let _wait = trace::wait(|| format!("the end of {self}"));
        // The last one first: a thread that wakes takes a core from the kernels, so it shall not wake for each.
        for event in self.unfinished().iter().rev() {
            let _ = event.wait(Part::End);
        }
    }

    /// An event that is complete when all work that was handed over to this device so far is done.
    pub fn record_event(&self) -> Event {
        let unfinished = self.unfinished();
        let after = unfinished.iter().map(|event| (event, Part::End));
        Event { task: self.inner.compute.submit(next_number(), 0, after, |_, _| {}) }
    }

    /// Has everything that is handed over to this device from now on start after the event.
    pub fn wait_event(&self, event: &Event) {
        let mut fences = self.inner.fences.lock().unwrap_or_else(|e| e.into_inner());
        fences.retain(|fence| !fence.is_complete());
        fences.push(event.clone());
    }

    fn unfinished(&self) -> Vec<Arc<TaskEvent>> {
        let mut events = self.inner.compute.unfinished();
        events.extend(self.inner.copies.get().map_or_else(Vec::new, |copies| copies.unfinished()));
        events.into_iter().map(|(_, event)| event).collect()
    }

    /// A value with these bytes.
    pub fn upload(&self, contents: &[u8]) -> Value {
        Value::new(Arc::new(Buffer::of(&self.inner.pool, contents)), Ready::now())
    }

    /// Hands a program over. Returns its outputs before they are computed. The program starts when its inputs are there
    /// and all work that reads what it overwrites is done; each output is there as soon as its last kernel has run.
    ///
    /// Donated inputs are overwritten; for the other outputs memory is allocated. The program runs on as many threads as
    /// it was compiled for, its [`Device::width`] at that time.
    ///
    /// # Panics
    /// When the number of inputs is not the program's, or one is on another device.
    pub fn run(&self, program: Arc<Program>, inputs: Vec<Binding>, width: Width) -> Vec<Value> {
        assert_eq!(inputs.len(), program.inputs.len(), "inputs of a program");
        let donated = |i: usize| program.outputs.iter().any(|output| output.donated == Some(i));
        let outputs = self.outputs(&program, &inputs);
        let mut after = self.fences();
        let mut read: SmallVec<[Arc<Buffer>; 16]> = SmallVec::new();
        for (i, input) in inputs.iter().enumerate() {
            let Binding::Buffer(buffer, ready) = input else { continue };
            assert_eq!(buffer.device(), self.inner.id, "the memory of an input is the device's");
            after.extend(ready.after().map(|(event, part)| (event.clone(), part)));
            if donated(i) {
                after.extend(buffer.take_readers().into_iter().map(|event| (event, Part::End)));
            } else {
                read.push(buffer.clone());
            }
        }
        self.ahead().add(program.steps.len(), read.iter().map(|buffer| buffer.bytes()).sum());
        let run = Run { program, width, inputs, outputs: outputs.clone() };
        let after = after.iter().map(|(event, part)| (event, *part));
        let work = move |worker: &mut Worker, done: &TaskEvent| worker.run(run, done);
        self.inner.meters[0].queued();
        let done = self.inner.compute.submit(next_number(), outputs.len(), after, work);
        read.iter().for_each(|buffer| buffer.add_reader(&done));
        let value = |(i, buffer): (usize, Arc<Buffer>)| Value::new(buffer, Ready::with(&done, i));
        outputs.into_iter().enumerate().map(value).collect()
    }

    /// What [`Device::run`] would give, without running the program or taking memory.
    pub fn plan_run(&self, program: &Program, inputs: &[Binding]) -> Vec<Value> {
        self.outputs(program, inputs).into_iter().map(|buffer| Value::new(buffer, Ready::never())).collect()
    }

    /// What [`Device::copy`] would give, without copying or taking memory.
    pub fn plan_copy(&self, ty: &Type) -> Value {
        Value::new(Arc::new(Buffer::new(&self.inner.pool, ty.bytes())), Ready::never())
    }

    /// The buffers of a program's results: of donated inputs, or new.
    fn outputs(&self, program: &Program, inputs: &[Binding]) -> Vec<Arc<Buffer>> {
        let buffer = |output: &OutputPlace| match output.donated.map(|i| &inputs[i]) {
            Some(Binding::Buffer(buffer, _)) => buffer.clone(),
            _ => Arc::new(Buffer::new(&self.inner.pool, output.ty.bytes())),
        };
        program.outputs.iter().map(buffer).collect()
    }

    /// Copies a value from any device to this one, or a part of it: the elements of this type from element `offset` on.
    /// The copy begins when all of the task has ended that `room` is a result of. Returns before the value is computed or
    /// copied.
    ///
    /// # Panics
    /// When the value has fewer elements.
    pub fn copy(&self, value: &Value, offset: usize, ty: &Type, room: Option<&Value>) -> Value {
        let offset = offset * ty.dtype.size();
        assert!(offset + ty.bytes() <= value.buffer().bytes(), "a part of a value ends within it");
        let target = Arc::new(Buffer::new(&self.inner.pool, ty.bytes()));
        let between = (value.device(), self.inner.id);
        let (source, is_light) = (value.clone_parts(), copy::is_light(ty.bytes()));
        let copy = Copy { source, offset, target: target.clone(), between, ty: ty.clone(), is_light };
        let mut after = self.fences();
        after.extend(value.ready().after().map(|(event, part)| (event.clone(), part)));
        after.extend(room.and_then(|room| room.ready().after()).map(|(event, _)| (event.clone(), Part::End)));
        let after = after.iter().map(|(event, part)| (event, *part));
        let queue = self.inner.copies.get_or_init(|| {
            let queue = Arc::new(Queue::new());
            let (served, index) = (queue.clone(), self.inner.index);
            spawn(format!("meshwork-copy:{index}"), move || {
                trace::name_thread(&format!("copy to cpu:{index}"));
                served.serve(&mut (), &Waiting);
            });
            queue
        });
        self.ahead().add(1, ty.bytes());
        let (number, meter) = (next_number(), self.inner.meters[1].clone());
        meter.queued();
        // Whoever waits for a copy finds no memory in use because of it.
        let done = if is_light {
            queue.submit_light(number, 1, after, move |done: &TaskEvent| {
                let start = Instant::now();
                let outcome = copy.perform();
                meter.passed(start.elapsed());
                done.complete(0, outcome);
            })
        } else {
            queue.submit(number, 1, after, move |_, done: &TaskEvent| {
                let running = meter.begin(Task::Copy(copy.ty.clone()));
                let outcome = copy.perform();
                drop(running);
                done.complete(0, outcome);
            })
        };
        value.buffer().add_reader(&done);
        Value::new(target, Ready::with(&done, 0))
    }

    fn fences(&self) -> SmallVec<[(Arc<TaskEvent>, Part); 16]> {
        let mut fences = self.inner.fences.lock().unwrap_or_else(|e| e.into_inner());
        fences.retain(|fence| !fence.is_complete());
        fences.iter().map(|fence| (fence.task.clone(), Part::End)).collect()
    }

    /// Says that everything up to here was one hand-over.
    pub fn end_of_hand_over(&self) {
        self.ahead().end(next_number);
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        self.inner.ahead.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub(crate) fn wait_for_room(&self) {
        let (full, enough) = self.ahead().room(self.inner.compute.has_ringers());
        let _wait = trace::wait(|| format!("room in the queues of {self}"));
        if !self.inner.compute.has_room(full) && self.num_threads() >= cores::all().len() {
            // Whoever wakes takes some thread's core. It shall be that of the one that wakes it: the system mostly leaves
            // threads where they fell asleep.
            let core = self.inner.idle_core.load(Ordering::Relaxed);
            if core != NO_CORE && cores::current() != Some(core) {
                cores::visit(core);
            }
        }
        self.inner.compute.wait_for_room(full, enough);
        if let Some(copies) = self.inner.copies.get() {
            copies.wait_for_room(full, enough);
        }
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().name(name).spawn(body);
    thread.expect("the system has no thread left for a device's queue");
}

/// The queues end when their tasks have.
impl Drop for Inner {
    fn drop(&mut self) {
        self.compute.close();
        if let Some(copies) = self.copies.get() {
            copies.close();
        }
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpu:{}", self.inner.index)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Self) -> bool {
        self.inner.id == other.inner.id
    }
}

impl Eq for Device {}
