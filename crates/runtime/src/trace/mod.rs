//! Timelines: which queue did what when, in a file for [Perfetto](https://ui.perfetto.dev), `chrome://tracing` and
//! `meshwork trace`.
//!
//! Tracing is off until [`start`]; until then it costs one relaxed load for each program that runs. While it is on, a
//! finished span is put into a buffer, and a thread of its own brings what is there to the file several times a second,
//! so that the file of a process that was killed is complete up to that moment.
//!
//! Each thread that records is a queue with a name of its own: threads of devices have theirs, others are called
//! `host` and the thread's name.

mod file;
mod recorder;

use meshwork_graph::program::Program;
use meshwork_graph::shape::Type;
use recorder::Record;
use std::borrow::Cow;
use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use recorder::is_on;

/// Why there is no timeline, or only its beginning.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// There can be one at a time.
    #[error("a timeline is being written to {} already; stop that one first", .0.display())]
    AlreadyOn(PathBuf),
    /// The file cannot be written, or not to its end.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
}

/// What a queue does during a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It computes.
    Kernel,
    /// It computes a share of what another device computes.
    Help,
    /// It brings a value to another device.
    Copy,
    /// It waits.
    Wait,
}

impl Kind {
    /// The category in the file.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Kernel => "kernel",
            Kind::Help => "help",
            Kind::Copy => "copy",
            Kind::Wait => "wait",
        }
    }
}

/// Something that a queue did from one moment to another. Spans of a queue do not overlap, or lie in each other.
#[derive(Clone, Debug)]
pub struct Span {
    /// The queue, such as `cpu:0`, `copy to cpu:1` or `host main`.
    pub queue: Arc<str>,
    /// What it does.
    pub kind: Kind,
    /// The operation, or what is waited for.
    pub name: Cow<'static, str>,
    /// When it began.
    pub start: Instant,
    /// When it was done.
    pub end: Instant,
    /// Types of the operands and results, such as `f32[2, 3] f32[3] -> f32[2]`.
    pub shapes: Cow<'static, str>,
    /// Bytes that it must at least read and write, or that are copied.
    pub bytes: u64,
    /// Floating-point operations.
    pub flops: u64,
}

/// A timeline that is being written. It ends when this is dropped, or stopped.
#[derive(Debug)]
#[must_use = "the timeline ends when this is dropped"]
pub struct Trace {
    writer: Option<recorder::Writer>,
}

/// Begins to write a timeline, in place of what the file held.
///
/// # Errors
/// When the file cannot be written, or another timeline is being written.
pub fn start(path: impl AsRef<Path>) -> Result<Trace, TraceError> {
    recorder::Writer::start(path.as_ref()).map(|writer| Trace { writer: Some(writer) })
}

impl Trace {
    /// Writes what has been recorded and closes the file; says how many spans it has. Work that is still running is
    /// left out: `synchronize` before.
    ///
    /// # Errors
    /// When the file could not be written to its end, for instance because the disk was full. The timeline has ended
    /// there; nothing else was disturbed.
    pub fn stop(mut self) -> Result<u64, TraceError> {
        self.writer.take().expect("a timeline is stopped once").stop()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Some(Err(e)) = self.writer.take().map(recorder::Writer::stop) {
            eprintln!("warning: the timeline is not complete: {e}");
        }
    }
}

/// Adds a span. Does nothing while tracing is off.
pub fn record(span: Span) {
    if is_on() {
        recorder::push(Record::Span(span));
    }
}

thread_local! {
    static QUEUE: OnceCell<Arc<str>> = const { OnceCell::new() };
}

/// Says which queue this thread is. Counts once, before the thread's first span.
pub fn name_thread(queue: &str) {
    QUEUE.with(|name| _ = name.set(queue.into()));
}

/// The queue that this thread is.
pub fn this_queue() -> Arc<str> {
    let host = || format!("host {}", std::thread::current().name().unwrap_or("thread")).into();
    QUEUE.with(|name| name.get_or_init(host).clone())
}

/// What a device does that helps another.
pub(crate) const HELP: &str = "a share of another device's kernel";

/// Waits shorter than this are none.
const SHORTEST_WAIT: Duration = Duration::from_micros(1);

/// A span of this thread that ends when this is dropped. Nothing when tracing was off at its begin.
#[derive(Debug)]
#[must_use = "the span ends when this is dropped"]
pub struct Timer(Option<(Instant, What)>);

#[derive(Debug)]
enum What {
    Step(Arc<Program>, usize),
    Help,
    Copy(String, Type),
    Wait(String),
}

/// A kernel: step `step` of the program. The caller has asked whether tracing is on.
pub(crate) fn kernel(program: &Arc<Program>, step: usize) -> Timer {
    let what = What::Step(program.clone(), step);
    Timer(Some((Instant::now(), what)))
}

/// A share of a kernel of another device.
pub(crate) fn help() -> Timer {
    Timer(is_on().then(|| (Instant::now(), What::Help)))
}

/// A copy of a value between devices, such as `cpu:0 -> cpu:1`.
pub fn copy(between: impl FnOnce() -> String, ty: &Type) -> Timer {
    Timer(is_on().then(|| (Instant::now(), What::Copy(between(), ty.clone()))))
}

/// A wait for something, such as `the end of cpu:0`.
pub fn wait(what: impl FnOnce() -> String) -> Timer {
    Timer(is_on().then(|| (Instant::now(), What::Wait(what()))))
}

/// A wait of this thread that has ended.
pub(crate) fn waited(start: Instant, end: Instant, what: &'static str) {
    if is_on() && end - start >= SHORTEST_WAIT {
        let (queue, kind, name, shapes) = (this_queue(), Kind::Wait, what.into(), "".into());
        record(Span { queue, kind, name, start, end, shapes, bytes: 0, flops: 0 });
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let Some((start, what)) = self.0.take() else { return };
        let (queue, end) = (this_queue(), Instant::now());
        let span = |kind, name: String, shapes: String, bytes: usize| {
            let (name, shapes) = (name.into(), shapes.into());
            Record::Span(Span { queue: queue.clone(), kind, name, start, end, shapes, bytes: bytes as u64, flops: 0 })
        };
        recorder::push(match what {
            What::Step(program, step) => Record::Step { queue, program, step, start, end },
            What::Help => span(Kind::Help, HELP.into(), String::new(), 0),
            What::Copy(between, ty) => span(Kind::Copy, between, ty.to_string(), ty.bytes()),
            What::Wait(_) if end - start < SHORTEST_WAIT => return,
            What::Wait(what) => span(Kind::Wait, what, String::new(), 0),
        });
    }
}
