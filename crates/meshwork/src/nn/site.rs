//! Places that draw random numbers, addressed by seed, name, step and call.

use super::{Leaf, Module, Visitor};
use crate::tensor::{next_site, random_step, seed};
use meshwork_graph::philox::site_key;
use std::sync::{Mutex, MutexGuard};

/// A source of keys for random values: a field of modules that draw some, such as dropout.
///
/// [`Module::init`] names it by its path. A key depends on seed, name, training step, and the number of the call
/// within the step.
#[derive(Debug)]
pub struct RandomSite {
    kind: &'static str,
    number: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    assigned: Option<(u64, String)>,
    step: u64,
    calls: u64,
}

impl RandomSite {
    /// A site that is called `kind` and its number among this thread's sites until it gets a name.
    pub fn new(kind: &'static str) -> RandomSite {
        RandomSite { kind, number: next_site(), state: Mutex::default() }
    }

    /// The key of the next random values.
    pub fn next_key(&self) -> u64 {
        let step = random_step();
        let call = {
            let mut state = self.lock();
            if state.step != step {
                (state.step, state.calls) = (step, 0);
            }
            state.calls += 1;
            state.calls - 1
        };
        self.key_of(step, call)
    }

    /// The key of one call in one step.
    pub(crate) fn key_of(&self, step: u64, call: u64) -> u64 {
        let (seed, mut name) = match &self.lock().assigned {
            Some((seed, name)) => (*seed, name.clone()),
            None => (seed(), format!("{} {}", self.kind, self.number)),
        };
        if call > 0 {
            name.push_str(&format!(" call {call}"));
        }
        site_key(seed, &name, step)
    }

    /// Gives the site its seed and name, and starts its calls anew.
    pub(crate) fn assign(&self, seed: u64, name: &str) {
        *self.lock() = State { assigned: Some((seed, name.to_string())), ..State::default() };
    }

    /// Starts the calls of the step anew.
    pub(crate) fn restart(&self) {
        self.lock().calls = 0;
    }

    pub(crate) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Module for RandomSite {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.leaf(Leaf::Site(self));
    }
}
