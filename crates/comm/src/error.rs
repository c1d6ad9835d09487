//! What can go wrong between ranks.

use crate::Call;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A call, and who made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankCall {
    /// The rank in the world, not in a sub-group.
    pub rank: usize,
    /// Its call.
    pub call: Call,
}

impl fmt::Display for RankCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} calls {}", self.rank, self.call)
    }
}

/// What a rank does while others wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doing {
    /// The rank in the world.
    pub rank: usize,
    /// What its thread does.
    pub state: State,
    /// Its last call, if it made one.
    pub last: Option<Call>,
}

/// What the thread of a rank does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It computes.
    Running,
    /// It waits for others.
    Waiting,
    /// The body of the rank has returned.
    Ended,
}

impl fmt::Display for Doing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Doing { rank, state, last } = self;
        match (state, last) {
            (State::Waiting, Some(call)) => write!(f, "rank {rank} waits in {call}"),
            (State::Waiting, None) => write!(f, "rank {rank} waits"),
            (State::Running, Some(call)) => write!(f, "rank {rank} is running, and its last call was {call}"),
            (State::Running, None) => write!(f, "rank {rank} is running and has called nothing yet"),
            (State::Ended, Some(call)) => write!(f, "rank {rank} has ended, and its last call was {call}"),
            (State::Ended, None) => write!(f, "rank {rank} has ended without a call"),
        }
    }
}

/// Why a collective failed. The first failure is that of all ranks, and of every later call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommError {
    /// Ranks met whose calls do not fit each other.
    #[error("the calls of the ranks do not fit, {what}: {}", list(calls))]
    Mismatch {
        /// What does not fit.
        what: &'static str,
        /// All calls.
        calls: Vec<RankCall>,
    },
    /// A call that makes no sense by itself.
    #[error("{call}: {reason}")]
    Misuse {
        /// The call.
        call: RankCall,
        /// What is wrong.
        reason: String,
    },
    /// A rank panicked.
    #[error("rank {rank} panicked: {cause}")]
    Panicked {
        /// The rank.
        rank: usize,
        /// What it said.
        cause: Arc<str>,
    },
    /// A rank has returned from its body while others wait for it.
    #[error("{doing}; it never comes to where the others wait: {}", list(waiting))]
    Ended {
        /// The rank that has ended.
        doing: Doing,
        /// The calls that need it.
        waiting: Vec<RankCall>,
    },
    /// Every rank waits for another one: for instance, two groups are used in different orders.
    #[error("all ranks wait for each other: {}", list(ranks))]
    Deadlock {
        /// Where each of them waits.
        ranks: Vec<Doing>,
    },
    /// Somebody did not come in time.
    #[error("nothing for {after:?}: {}; missing: {}", list(waiting), list(missing))]
    Deadline {
        /// The longest wait that was allowed.
        after: Duration,
        /// The calls that were there.
        waiting: Vec<RankCall>,
        /// Who was not.
        missing: Vec<Doing>,
    },
}

fn list<T: fmt::Display>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join("; ")
}
