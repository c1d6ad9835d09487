//! Completion of a task, part by part.

use crate::serving;
use crate::sync::{Condvar, Mutex, lock, sleep};
use smallvec::{SmallVec, smallvec};
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Why a part of a task failed. Everything that needs it fails with the same cause; nothing else is touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RunError(pub Arc<str>);

/// How a part ended.
pub type Outcome = Result<(), RunError>;

/// What of a task one waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One of its results, which may be there before the task ends.
    Result(usize),
    /// Its end, when it has let go of everything.
    End,
}

/// Most light tasks that one completion runs.
const MOST_HERE: usize = 3;

/// Something that starts when several parts are complete.
pub(crate) trait Dependent: Send + Sync {
    /// Whether it takes less time than waking who else would run it.
    fn is_light(&self) -> bool;

    /// One part less is missing; who is light and starts now may run `here`.
    fn release(self: Arc<Self>, here: bool);
}

/// Says how each result of a task ended, once it has. Only the queue that a task was submitted to makes events, and gates, which
/// end when they are dropped: so every event completes.
pub struct Event {
    state: Mutex<State>,
    bell: Condvar,
}

struct State {
    outcomes: SmallVec<[Option<Outcome>; 4]>,
    /// When the task ended, and whether it panicked.
    ended: Option<(Instant, Outcome)>,
    dependents: SmallVec<[(Part, Arc<dyn Dependent>); 2]>,
    sleepers: usize,
}

impl State {
    fn is_complete(&self, part: Part) -> bool {
        match part {
            Part::Result(i) => self.outcomes[i].is_some(),
            Part::End => self.ended.is_some(),
        }
    }

    fn outcome(&self, part: Part) -> Outcome {
        match part {
            Part::Result(i) => self.outcomes[i].clone().expect("a complete part"),
            Part::End => {
                let (_, rest) = self.ended.as_ref().expect("a complete part");
                let failed = self.outcomes.iter().flatten().find(|outcome| outcome.is_err());
                failed.unwrap_or(rest).clone()
            }
        }
    }

    /// Takes the dependents of complete parts off the list.
    fn due(&mut self) -> SmallVec<[Arc<dyn Dependent>; 4]> {
        let mut due = SmallVec::new();
        let mut i = 0;
        while i < self.dependents.len() {
            if self.is_complete(self.dependents[i].0) {
                due.push(self.dependents.swap_remove(i).1);
            } else {
                i += 1;
            }
        }
        due
    }
}

impl Event {
    pub(crate) fn new(results: usize) -> Event {
        let state = State { outcomes: smallvec![None; results], ended: None, dependents: SmallVec::new(), sleepers: 0 };
        Event { state: Mutex::new(state), bell: Condvar::new() }
    }

    /// Completes a result before the task ends. Only the first outcome of a result counts.
    pub fn complete(&self, result: usize, outcome: Outcome) {
        self.change(|state| {
            state.outcomes[result].get_or_insert(outcome);
        });
    }

    /// Completes the results that are not complete yet, and the end.
    pub(crate) fn end(&self, rest: &Outcome) {
        self.change(|state| {
            for outcome in &mut state.outcomes {
                outcome.get_or_insert_with(|| rest.clone());
            }
            state.ended.get_or_insert_with(|| (Instant::now(), rest.clone()));
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let (due, has_sleepers) = {
            let mut state = lock(&self.state);
            change(&mut state);
            (state.due(), state.sleepers > 0)
        };
        // What others run first; of what is light, not so much that whoever completes the part is kept for long.
        let (light, heavy): (SmallVec<[_; 4]>, SmallVec<[_; 4]>) = due.into_iter().partition(|task| task.is_light());
        heavy.into_iter().for_each(|task| task.release(false));
        // Not under the lock, which those who wake take.
        if has_sleepers {
            self.bell.notify_all();
        }
        light.into_iter().enumerate().for_each(|(i, task)| task.release(i < MOST_HERE));
    }

    /// Has the dependent released when the part is complete; false if it is already.
    pub(crate) fn tell(&self, part: Part, dependent: impl FnOnce() -> Arc<dyn Dependent>) -> bool {
        let mut state = lock(&self.state);
        let missing = !state.is_complete(part);
        if missing {
            state.dependents.push((part, dependent()));
        }
        missing
    }

    /// Whether the part is complete.
    pub fn is_complete(&self, part: Part) -> bool {
        lock(&self.state).is_complete(part)
    }

    /// When the task ended, if it has.
    pub fn ended(&self) -> Option<Instant> {
        lock(&self.state).ended.as_ref().map(|(at, _)| *at)
    }

    /// Waits until the part is complete, and says how it ended; for [`Part::End`] with the first failure of a result, or
    /// the panic.
    ///
    /// # Panics
    /// When a task waits for another one: it would keep its queue from what it waits for.
    pub fn wait(&self, part: Part) -> Outcome {
        assert!(
            !serving::is_serving() || self.is_complete(part),
            "a kernel must not wait for values that are not there: read them before they are handed to it"
        );
        let mut state = lock(&self.state);
        while !state.is_complete(part) {
            state.sleepers += 1;
            state = sleep(&self.bell, state);
            state.sleepers -= 1;
        }
        state.outcome(part)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        let done = state.outcomes.iter().flatten().count();
        let end = if state.ended.is_some() { "ended" } else { "not ended" };
        write!(f, "Event({done} of {} results, {end})", state.outcomes.len())
    }
}
