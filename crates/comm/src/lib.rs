//! Collectives over plain buffers: the operations through which ranks exchange and add up what they have.
//!
//! [`spawn`] starts the ranks, threads of this process that share its memory; each gets a [`local::Group`], whose
//! collectives are those of the trait [`Communicator`], in place or in the background. Sub-groups come from
//! [`local::Group::new_group`] and, for the axes of a mesh, [`local::Group::along_axes`].
//!
//! ```
//! use meshwork_comm::{Communicator, ReduceOp, spawn};
//!
//! let sums = spawn(3, |group| {
//!     let mut values = [group.rank() as f32, 1.0];
//!     group.all_reduce(&mut values, ReduceOp::Sum)?;
//!     Ok::<_, meshwork_comm::CommError>(values)
//! })?;
//! assert_eq!(sums, [Ok([3.0, 3.0]), Ok([3.0, 3.0]), Ok([3.0, 3.0])]);
//! # Ok::<(), meshwork_comm::CommError>(())
//! ```
//!
//! Sums are those of the tree of adjacent pairs over the ranks, whatever the sizes and the timing, so they have the same
//! bits everywhere and always. f16 and bf16 are added in f32 and rounded once.
//!
//! Nothing hangs. Calls that do not fit each other end, on every rank, in an error that names each rank's call and its
//! line; so do a rank that panics, one that ends while others wait for it, and ranks that wait for each other in a
//! circle; and who waits longer than a deadline is told for whom. `PROTOCOL.md`, beside this file's folder, says why;
//! `tests/models` lets a model checker try.

mod bell;
mod call;
mod communicator;
mod element;
mod error;
mod jitter;
pub mod local;
mod op;
mod posted;
mod reduce;
mod rendezvous;
mod seat;
mod share;
mod sync;

pub use call::{ANY, Call, Operation};
pub use communicator::{Buffers, Communicator, Given, Lent, Pending, Request};
pub use element::{DType, Element};
pub use error::{CommError, Doing, RankCall, State};
pub use local::{World, spawn};
pub use op::ReduceOp;
