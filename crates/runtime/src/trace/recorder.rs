//! The switch, the buffer of finished spans, and the thread that brings them to the file.

use super::file::TraceFile;
use super::{Span, TraceError};
use meshwork_graph::program::Program;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is recorded: a span, or a kernel whose text the writer makes.
pub(super) enum Record {
    Span(Span),
    Step { queue: Arc<str>, program: Arc<Program>, step: usize, start: Instant, end: Instant },
}

static ON: AtomicBool = AtomicBool::new(false);
/// What waits for the writer. The switch changes only under this lock.
static BUFFER: Mutex<Vec<Record>> = Mutex::new(Vec::new());
/// Rung when the writer has emptied the buffer, and when tracing ends.
static ROOM: Condvar = Condvar::new();
/// The file that the timeline goes to, from start to stop.
static CURRENT: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Most records in the buffer. Who has one more waits for the writer: nothing is lost, and memory stays bounded.
const MOST: usize = 1 << 17;
/// Time between two visits of the writer.
const EVERY: Duration = Duration::from_millis(50);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Whether a timeline is being written.
#[inline]
pub fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

pub(super) fn push(record: Record) {
    let has_room = |buffer: &mut Vec<Record>| is_on() && buffer.len() >= MOST;
    let mut buffer = ROOM.wait_while(lock(&BUFFER), has_room).unwrap_or_else(|e| e.into_inner());
    if is_on() {
        buffer.push(record);
    }
}

fn turn_off() {
    let _buffer = lock(&BUFFER);
    ON.store(false, Ordering::Relaxed);
    ROOM.notify_all();
}

/// The thread that writes the file.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    thread: JoinHandle<io::Result<u64>>,
}

impl Writer {
    pub fn start(path: &Path) -> Result<Writer, TraceError> {
        let mut current = lock(&CURRENT);
        if let Some(path) = &*current {
            return Err(TraceError::AlreadyOn(path.clone()));
        }
        let open = || {
            let file = TraceFile::begin(File::create(path)?, Instant::now())?;
            std::thread::Builder::new().name("meshwork-trace".into()).spawn(|| write(file))
        };
        // On before the thread looks for the first time.
        let buffer = lock(&BUFFER);
        let thread = open().map_err(|source| TraceError::Write { path: path.to_owned(), source })?;
        ON.store(true, Ordering::Relaxed);
        drop(buffer);
        *current = Some(path.to_owned());
        Ok(Writer { path: path.to_owned(), thread })
    }

    pub fn stop(self) -> Result<u64, TraceError> {
        turn_off();
        self.thread.thread().unpark();
        let outcome = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writer panicked")));
        lock(&BUFFER).clear();
        *lock(&CURRENT) = None;
        outcome.map_err(|source| TraceError::Write { path: self.path, source })
    }
}

/// Nobody waits for a writer that has ended, in whatever way.
struct TurnsOff;

impl Drop for TurnsOff {
    fn drop(&mut self) {
        turn_off();
    }
}

/// Empties the buffer into the file until tracing ends, or the file cannot be written.
fn write(mut file: TraceFile<File>) -> io::Result<u64> {
    let _turns_off = TurnsOff;
    let mut batch = Vec::new();
    loop {
        std::thread::park_timeout(EVERY);
        let is_on = {
            let mut buffer = lock(&BUFFER);
            std::mem::swap(&mut *buffer, &mut batch);
            ROOM.notify_all();
            is_on()
        };
        batch.drain(..).try_for_each(|record| file.add(&record))?;
        file.flush()?;
        if !is_on {
            return file.end();
        }
    }
}
