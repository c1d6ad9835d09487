//! Queues of tasks that start when what they need is there.
//!
//! A [`Queue`] belongs to one worker: the compute threads of a device, whatever copies into it, a stream of an
//! accelerator. A task is submitted with the parts of earlier tasks that it starts after, and gives an [`Event`] that
//! says when each of its results is there. Nobody blocks a worker: a task that is not ready waits in no queue, and
//! the others overtake it, unless the queue keeps the order. `PROTOCOL.md`, beside this file's folder, says why no wake-up
//! is lost and no cycle of waits can arise; `tests/models` lets model checkers try.

mod event;
mod gate;
mod queue;
mod room;
mod serving;
mod sync;

pub use event::{Event, Outcome, Part, RunError};
pub use gate::Gate;
pub use queue::{Idle, Queue, message};
pub use room::Ringer;
pub use serving::{help_serving, is_serving};
