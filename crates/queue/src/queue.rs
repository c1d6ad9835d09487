//! A queue: the tasks of one worker, in the order in which they may start.

// Loom's macro takes no `const` block.
#![allow(clippy::missing_const_for_thread_local)]

use crate::event::{Dependent, Event, Part, RunError};
use crate::room::{Bell, Ringer};
use crate::serving::Serving;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, lock, sleep, thread_local};
use std::any::Any;
use std::cell::Cell;
use std::collections::{BTreeMap, BinaryHeap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

type Own<C> = Box<dyn FnOnce(&mut C, &Event) + Send>;
type Light = Box<dyn FnOnce(&Event) + Send>;

enum Work<C> {
    /// For the thread that serves the queue.
    Own(Own<C>),
    /// For whoever makes the task ready.
    Light(Light),
}

/// Most light tasks that a thread runs one in another, each of which has made the next one ready.
const DEEPEST: usize = 8;

thread_local! {
    static DEPTH: Cell<usize> = Cell::new(0);
}

/// Tasks for one worker, which brings a context `C` (its threads, its memory). A task is ready when everything that it
/// was submitted after is complete; of the ready ones, the worker takes the one with the lowest number. A queue in order takes
/// no task before those with lower numbers have ended.
pub struct Queue<C> {
    state: Mutex<State<C>>,
    /// Rung when a task may run or is light and the last one of a closed queue, when the queue is closed, and for help.
    ready: Condvar,
    /// Rung when a task has ended and somebody waits for room.
    room: Arc<Bell>,
    /// How many tasks have been submitted, for a thread that looks out for the next one: nothing else depends on it, so models
    /// need not know.
    submitted: std::sync::atomic::AtomicUsize,
}

struct State<C> {
    ready: BinaryHeap<Entry<C>>,
    unfinished: BTreeMap<u64, Arc<Event>>,
    closed: bool,
    in_order: bool,
    asleep: bool,
    /// Whether the thread that serves the queue sleeps without a task, and could help others while a task waits.
    is_free: bool,
    /// While the thread sleeps: since when tasks wait, and when the last of them was done elsewhere.
    waits: (Option<Instant>, Option<Instant>),
    /// Whether there is work elsewhere for the thread that serves the queue.
    is_nudged: bool,
    /// The lowest number that somebody waits for the end of, and of all before.
    awaited: Option<u64>,
}

impl<C> State<C> {
    /// Whether a task may run.
    fn has_next(&self) -> bool {
        let first = self.unfinished.first_key_value().map(|(&number, _)| number);
        self.ready.peek().is_some_and(|entry| !self.in_order || Some(entry.0.number) == first)
    }

    /// Takes the task that runs next, if one may.
    fn next(&mut self) -> Option<Arc<Task<C>>> {
        self.has_next().then(|| self.ready.pop().expect("it was there").0)
    }

    /// Whether the thread that serves the queue should not go to sleep.
    fn is_called(&self) -> bool {
        self.is_nudged || self.has_next() || self.is_over()
    }

    /// Whether no task is left, and none will come.
    fn is_over(&self) -> bool {
        self.closed && self.unfinished.is_empty()
    }

    /// Whether all tasks with numbers up to this one have ended.
    fn all_ended(&self, number: u64) -> bool {
        self.unfinished.first_key_value().is_none_or(|(&first, _)| first > number)
    }
}

/// What the thread that serves a queue does while tasks of the queue wait for others and none is ready. It may work for
/// somebody else.
pub trait Idle<C> {
    /// Whether it ever works for somebody else.
    const HELPS: bool;

    /// The last task has ended, and the thread would sleep until there is another: it may look out for that a while, until
    /// `called`. Waking a thread takes longer than much of what it is woken for.
    fn linger(&self, _worker: &mut C, _called: &dyn Fn() -> bool) {}

    /// Works for others until `called`, or there is nothing to do for them.
    fn help(&self, _worker: &mut C, _called: &(dyn Fn() -> bool + Sync)) {}

    /// The thread is about to sleep: says that whoever has work for it shall [`Queue::nudge`] the queue from now on, and
    /// whether somebody has already.
    fn lie_down(&self, _worker: &mut C) -> bool {
        false
    }

    /// The thread does not sleep any more.
    fn get_up(&self, _worker: &mut C) {}

    /// The thread has slept from one moment to the other while tasks waited.
    fn slept(&self, _since: Instant, _until: Instant) {}
}

/// Helps nobody.
impl<C> Idle<C> for () {
    const HELPS: bool = false;
}

/// A task that has been submitted and not begun.
struct Task<C> {
    number: u64,
    /// Parts that are not complete yet, and one while the task is being submitted.
    missing: AtomicUsize,
    work: Mutex<Option<Work<C>>>,
    is_light: bool,
    done: Arc<Event>,
    queue: Arc<Queue<C>>,
}

impl<C: 'static> Task<C> {
    /// Runs the task. A light one needs no context.
    fn run(&self, context: Option<&mut C>) {
        let work = lock(&self.work).take().expect("a task runs once");
        let outcome = catch_unwind(AssertUnwindSafe(|| match work {
            Work::Own(work) => work(context.expect("the queue's own thread runs it"), &self.done),
            Work::Light(work) => work(&self.done),
        }));
        let rest = outcome.map_err(|panic| RunError(message(&*panic).into()));
        self.done.end(&rest);
    }
}

impl<C: 'static> Dependent for Task<C> {
    fn is_light(&self) -> bool {
        self.is_light
    }

    fn release(self: Arc<Self>, here: bool) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let depth = DEPTH.with(Cell::get);
        if self.is_light && here && depth < DEEPEST {
            DEPTH.with(|cell| cell.set(depth + 1));
            self.run(None);
            DEPTH.with(|cell| cell.set(depth));
            if self.queue.note_end(self.number) {
                self.queue.room.ring();
            }
        } else {
            let queue = self.queue.clone();
            queue.push(self);
        }
    }
}

/// Ordered so that the heap's greatest is the lowest number.
struct Entry<C>(Arc<Task<C>>);

impl<C> PartialEq for Entry<C> {
    fn eq(&self, other: &Self) -> bool {
        self.0.number == other.0.number
    }
}

impl<C> Eq for Entry<C> {}

impl<C> PartialOrd for Entry<C> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> Ord for Entry<C> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.0.number.cmp(&self.0.number)
    }
}

impl<C: 'static> Default for Queue<C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<C: 'static> Queue<C> {
    /// A queue without tasks. Nothing runs until somebody calls [`Queue::serve`].
    pub fn new() -> Self {
        let state = State {
            ready: BinaryHeap::new(),
            unfinished: BTreeMap::new(),
            closed: false,
            in_order: false,
            asleep: false,
            is_free: false,
            is_nudged: false,
            waits: (None, None),
            awaited: None,
        };
        let submitted = std::sync::atomic::AtomicUsize::new(0);
        Queue { state: Mutex::new(state), ready: Condvar::new(), room: Arc::new(Bell::new()), submitted }
    }

    /// Submits a task with `results` results that starts when all parts of `after` are complete, however they ended.
    /// Of tasks that are ready the one with the lowest `number` runs first; numbers are unique.
    ///
    /// The work completes its results through the event that it is given, at the latest by returning: what is
    /// not complete then is complete without a failure, or, when the work panics, failed with the panic's message.
    ///
    /// # Panics
    /// When the queue is closed.
    pub fn submit<'a>(
        self: &Arc<Self>,
        number: u64,
        results: usize,
        after: impl IntoIterator<Item = (&'a Arc<Event>, Part)>,
        work: impl FnOnce(&mut C, &Event) + Send + 'static,
    ) -> Arc<Event> {
        self.hand_over(number, results, after, Work::Own(Box::new(work)))
    }

    /// As [`Queue::submit`], for work that takes less time than waking a thread: whoever completes the last part that the
    /// task starts after runs it at once, or this thread if they all are complete. Its order among other tasks is not that
    /// of numbers.
    pub fn submit_light<'a>(
        self: &Arc<Self>,
        number: u64,
        results: usize,
        after: impl IntoIterator<Item = (&'a Arc<Event>, Part)>,
        work: impl FnOnce(&Event) + Send + 'static,
    ) -> Arc<Event> {
        self.hand_over(number, results, after, Work::Light(Box::new(work)))
    }

    fn hand_over<'a>(
        self: &Arc<Self>,
        number: u64,
        results: usize,
        after: impl IntoIterator<Item = (&'a Arc<Event>, Part)>,
        work: Work<C>,
    ) -> Arc<Event> {
        let done = Arc::new(Event::new(results));
        let is_free = {
            let mut state = lock(&self.state);
            assert!(!state.closed, "a task for a queue that is closed");
            state.unfinished.insert(number, done.clone());
            self.submitted.fetch_add(1, Ordering::Relaxed);
            if state.waits.1.is_some() {
                state.waits = (Some(Instant::now()), None);
            }
            state.is_free
        };
        if is_free {
            self.ready.notify_one();
        }
        let task = Arc::new(Task {
            number,
            missing: AtomicUsize::new(1),
            is_light: matches!(work, Work::Light(_)),
            work: Mutex::new(Some(work)),
            done: done.clone(),
            queue: self.clone(),
        });
        for (event, part) in after {
            task.missing.fetch_add(1, Ordering::Relaxed);
            if !event.tell(part, || task.clone()) {
                task.missing.fetch_sub(1, Ordering::Relaxed);
            }
        }
        task.release(true);
        done
    }

    fn push(&self, task: Arc<Task<C>>) {
        let asleep = {
            let mut state = lock(&self.state);
            state.ready.push(Entry(task));
            state.asleep
        };
        if asleep {
            self.ready.notify_one();
        }
    }

    /// Runs tasks until the queue is closed and no task is left. One thread serves a queue.
    pub fn serve(&self, context: &mut C, idle: &impl Idle<C>) {
        let _serving = Serving::begin();
        let mut ended = None;
        while let Some(task) = self.next(ended, context, idle) {
            task.run(Some(context));
            ended = Some(task.number);
        }
    }

    /// Notes that a task has ended, and says whether somebody who waits for room is to be woken.
    fn note_end(&self, number: u64) -> bool {
        let (room, ready) = {
            let mut state = lock(&self.state);
            state.unfinished.remove(&number);
            let room = state.awaited.is_some_and(|awaited| state.all_ended(awaited));
            if room {
                state.awaited = None;
            }
            if state.unfinished.is_empty() && state.waits.0.is_some() {
                state.waits.1.get_or_insert_with(Instant::now);
            }
            (room, state.asleep && (state.is_over() || state.has_next()))
        };
        // Not under the lock, which those who wake take.
        if ready {
            self.ready.notify_one();
        }
        room
    }

    /// Notes that a task has ended, and waits for the next one.
    fn next<I: Idle<C>>(&self, ended: Option<u64>, context: &mut C, idle: &I) -> Option<Arc<Task<C>>> {
        // What was left to others during the last task.
        self.room.ring_if_due();
        if ended.is_some_and(|number| self.note_end(number)) {
            self.room.call();
        }
        let mut lingers = ended.is_some();
        let mut state = lock(&self.state);
        loop {
            if let Some(task) = state.next() {
                return Some(task);
            }
            self.room.ring_if_due();
            if state.is_over() {
                return None;
            }
            if state.unfinished.is_empty() && std::mem::take(&mut lingers) {
                let seen = self.submitted.load(Ordering::Relaxed);
                drop(state);
                idle.linger(context, &|| self.submitted.load(Ordering::Relaxed) != seen);
                state = lock(&self.state);
                continue;
            }
            if state.unfinished.is_empty() {
                (state.asleep, state.is_free) = (true, I::HELPS);
                state = sleep(&self.ready, state);
                (state.asleep, state.is_free) = (false, false);
                continue;
            }
            drop(state);
            idle.help(context, &|| lock(&self.state).has_next());
            let is_needed = idle.lie_down(context);
            state = lock(&self.state);
            if !is_needed && !state.is_called() {
                (state.asleep, state.waits) = (true, (Some(Instant::now()), None));
                state = sleep(&self.ready, state);
                state.asleep = false;
                if let (Some(since), until) = std::mem::take(&mut state.waits) {
                    idle.slept(since, until.unwrap_or_else(Instant::now));
                }
            }
            state.is_nudged = false;
            idle.get_up(context);
        }
    }

    /// Wakes the thread that serves the queue, if it sleeps, or is about to, while tasks wait: there is work for it elsewhere.
    pub fn nudge(&self) {
        let sleeps = {
            let mut state = lock(&self.state);
            state.is_nudged = true;
            state.asleep && !state.is_free
        };
        if sleeps {
            self.ready.notify_one();
        }
    }

    /// Whether tasks run in the order of their numbers from now on, instead of overtaking those that are not ready. Whoever
    /// hands tasks over must number them so that none needs one with a greater number.
    pub fn set_in_order(&self, in_order: bool) {
        lock(&self.state).in_order = in_order;
        self.ready.notify_one();
    }

    /// Whether tasks run in the order of their numbers.
    pub fn is_in_order(&self) -> bool {
        lock(&self.state).in_order
    }

    /// Whether all tasks with numbers up to this one have ended.
    pub fn has_room(&self, full: u64) -> bool {
        lock(&self.state).all_ended(full)
    }

    /// Makes ringers, which wake those who wait for room as long as they live.
    pub fn ringer(&self) -> Ringer {
        Ringer::new(self.room.clone())
    }

    /// Whether there are ringers.
    pub fn has_ringers(&self) -> bool {
        self.room.has_ringers()
    }

    /// Ends the queue when all its tasks have. No task may be submitted afterwards.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.ready.notify_one();
    }

    /// The events of all tasks that have been submitted and not ended, by number.
    pub fn unfinished(&self) -> Vec<(u64, Arc<Event>)> {
        lock(&self.state).unfinished.iter().map(|(&number, event)| (number, event.clone())).collect()
    }

    /// Number of tasks that have been submitted and not ended.
    pub fn depth(&self) -> usize {
        lock(&self.state).unfinished.len()
    }

    /// Returns at once when all tasks with numbers up to `full` have ended; otherwise waits until those up to `enough`
    /// have. (With `enough` above `full`, who keeps a queue full is woken once for several tasks.) Where there are ringers,
    /// one of them does that, or the thread that serves the queue when its next task has ended.
    pub fn wait_for_room(&self, full: u64, enough: u64) {
        let mut state = lock(&self.state);
        let mut number = full;
        while !state.all_ended(number) {
            number = enough.max(full);
            state.awaited = Some(state.awaited.map_or(number, |awaited| awaited.min(number)));
            state = self.room.sleep(state);
        }
    }
}

/// What a panic says.
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("it panicked without a message")
}
