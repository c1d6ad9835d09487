//! Which threads worked, how long and where, as the system counts it.

use crate::bench::timing::thread_time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

/// What the threads of this process did while something was measured.
#[derive(Clone, Debug, Default)]
pub struct Load {
    wall: Duration,
    threads: BTreeMap<u64, Thread>,
}

#[derive(Clone, Debug)]
struct Thread {
    name: String,
    /// Where it ran last.
    core: usize,
    busy: Duration,
}

/// Threads that are busy for less than this share of the time are not mentioned.
const IDLE: f64 = 0.01;

/// How long each thread of this process has run so far; none where the system does not tell.
pub struct Counters {
    threads: BTreeMap<u64, Thread>,
    /// This thread, without the reading of the counters.
    own: Duration,
}

impl Counters {
    /// Reads them.
    pub fn now() -> Counters {
        let threads = Counters::threads();
        Counters { threads, own: thread_time() }
    }

    fn threads() -> BTreeMap<u64, Thread> {
        let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let read = |task: fs::DirEntry| Some((task.file_name().to_str()?.parse().ok()?, Thread::read(&task)?));
        tasks.filter_map(read).collect()
    }
}

impl Thread {
    fn read(task: &fs::DirEntry) -> Option<Thread> {
        let text = |file: &str| fs::read_to_string(task.path().join(file)).ok();
        // The first number: nanoseconds on a processor.
        let busy = text("schedstat")?.split_whitespace().next()?.parse().ok()?;
        let stat = text("stat")?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
        // After the name in brackets comes the third value; the 39th is the core.
        let core = rest.split_whitespace().nth(36)?.parse().ok()?;
        Some(Thread { name: words(name), core, busy: Duration::from_nanos(busy) })
    }
}

/// What a thread is called here.
fn words(name: &str) -> String {
    match name.strip_prefix("meshwork-").and_then(|name| name.split_once([':', '-']).or(Some((name, "")))) {
        Some(("cpu", device)) => format!("cpu:{device}"),
        Some(("copy", device)) => format!("copies to cpu:{device}"),
        Some(_) => "worker".to_string(),
        None => "recording".to_string(),
    }
}

impl Load {
    /// Adds what happened since the main thread, which calls this, has read the counters: `wall` ago.
    pub fn add(&mut self, before: &Counters, wall: Duration) {
        let own = thread_time() - before.own;
        self.wall += wall;
        for (id, now) in Counters::threads() {
            let sum = self.threads.entry(id).or_insert_with(|| Thread { busy: Duration::ZERO, ..now.clone() });
            let earlier = before.threads.get(&id).map_or(Duration::ZERO, |thread| thread.busy);
            let is_own = id == u64::from(std::process::id());
            sum.busy += if is_own { own } else { now.busy.saturating_sub(earlier) };
            sum.core = now.core;
        }
    }

    /// The threads that worked, and for which share of the time; the busiest first.
    fn threads(&self) -> Vec<(&Thread, f64)> {
        let share = |thread: &Thread| thread.busy.as_secs_f64() / self.wall.as_secs_f64().max(1e-9);
        let mut threads: Vec<(&Thread, f64)> = self.threads.values().map(|thread| (thread, share(thread))).collect();
        threads.retain(|(_, share)| *share >= IDLE);
        threads.sort_by(|a, b| b.1.total_cmp(&a.1));
        threads
    }

    /// How many cores were busy, on average.
    pub fn cores(&self) -> f64 {
        self.threads().iter().map(|(_, share)| share).sum()
    }

    /// For people: `1.1 cores: cpu:0 on core 0 99 %, copies to cpu:1 on core 1 12 %`.
    pub fn text(&self) -> String {
        let thread = |(thread, share): &(&Thread, f64)| {
            format!("{} on core {} {:.0} %", thread.name, thread.core, 100.0 * share.min(1.0))
        };
        let threads: Vec<String> = self.threads().iter().map(thread).collect();
        if threads.is_empty() { String::new() } else { format!("{:.1} cores: {}", self.cores(), threads.join(", ")) }
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let thread =
            |(thread, share): (&Thread, f64)| json!({ "name": thread.name, "core": thread.core, "busy": share });
        self.threads().into_iter().map(thread).collect()
    }
}
