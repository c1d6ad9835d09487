//! Programs in which every device runs the same code on its own data (SPMD), written by hand.
//!
//! [`spawn`] runs a body once for each rank, on a thread and a device of its own. The ranks exchange tensors through the
//! collectives of their [`Group`], as PyTorch's `torch.distributed` has them:
//!
//! ```
//! use meshwork::Tensor;
//! use meshwork::spmd::{CommError, ReduceOp, spawn};
//!
//! let sums = spawn(2, |group| {
//!     let x = Tensor::from_slice(&[1.0f32, group.rank() as f32], &[2]);
//!     let sum = group.all_reduce_async(&x, ReduceOp::Sum)?;
//!     let all = group.all_gather(&x, 0)?;
//!     Ok::<_, CommError>((sum.wait()?.to_vec::<f32>(), all.to_vec::<f32>()))
//! })?;
//! assert_eq!(sums[0], Ok((vec![2.0, 1.0], vec![1.0, 0.0, 1.0, 1.0])));
//! assert_eq!(sums[0], sums[1]);
//! # Ok::<(), CommError>(())
//! ```
//!
//! Collectives are computed at once: they run what is pending, and their results have no history for gradients. Calls
//! that do not fit each other fail on all ranks with an error that names every rank's call and line.
//!
//! # Values whose distribution is their type
//!
//! Gradients by hand are where such programs go wrong: an all-reduce that is missing in the backward pass, or done twice,
//! is a wrong result and no error. [`Dist`] makes it a type error. A `Dist<K>` is a tensor on each rank of a group, and `K`
//! says how the tensors of the ranks belong together, and their gradients:
//!
//! | `K` | the tensors | their gradients | becomes |
//! |---|---|---|---|
//! | [`Replicated`] | equal | equal | `Shared` by [`fan_out`](Dist::fan_out), `Varying` by [`shard`](Dist::shard) |
//! | [`Shared`] | equal | parts of a sum | `Varying` by [`vary`](Dist::vary) |
//! | [`Varying`] | each rank's own | each rank's own | `Replicated` by [`all_gather`](Dist::all_gather), `Partial` by [`partial`](Dist::partial) |
//! | [`Partial`] | parts of a sum | equal | `Replicated` by [`all_reduce`](Dist::all_reduce), `Varying` by [`reduce_scatter`](Dist::reduce_scatter) |
//!
//! A replicated value must be fanned out before ranks use it in different ways: that is Megatron-LM's *f*, the identity
//! whose gradient is added up over the ranks. A partial value must be added up before it is used: that is its *g*, the
//! all-reduce whose gradient is passed on as it is (Shoeybi et al., 2019). Values of one kind are computed with as ever;
//! `Shared` and `Varying` give `Varying`; nothing else mixes. The loss that is read and differentiated is `Replicated`, and
//! an optimizer takes `Replicated` gradients of `Replicated` parameters and `Varying` gradients of `Varying` ones.
//!
//! ```
//! use meshwork::Tensor;
//! use meshwork::spmd::{CommError, Replicated, Varying, spawn};
//!
//! let results = spawn(2, |group| {
//!     // Two layers, the first split by columns, the second by rows.
//!     let x = group.replicated(&Tensor::from_slice(&[1.0f32, 2.0], &[1, 2]))?;
//!     let a = group.varying(&Tensor::from_slice(&[1.0f32, -1.0 - group.rank() as f32], &[2, 1])).variable();
//!     let b = group.varying(&Tensor::from_slice(&[3.0f32], &[1, 1])).variable();
//!     let x = x.variable();
//!     let hidden = x.fan_out().matmul(&a).square();
//!     let y = hidden.matmul(&b).partial().all_reduce()?;
//!     let loss = y.sum(..);
//!     let gradients = loss.backward()?;
//!     Ok::<_, CommError>((loss.item(), gradients.of(&x).value().to_vec::<f32>()))
//! })?;
//! assert_eq!(results[0], Ok((3.0 * (1.0 + 9.0), vec![3.0 * (-2.0 - 6.0), 3.0 * (2.0 + 12.0)])));
//! assert_eq!(results[0], results[1]);
//! # Ok::<(), CommError>(())
//! ```
//!
//! What types do not see are numbers that differ between the ranks: `&x * rank as f64` is not replicated any more. Nor do
//! they promise bits: a product whose columns are divided has those of the whole, but sums over divided features or samples
//! are added in another order than on one device, unless they are exact.
//!
//! [`mistakes`] shows programs that do not compile, and the types that stop them.

mod backward;
mod collectives;
mod dist;
mod group;
mod kind;
pub mod mistakes;
mod moves;
mod ops;
mod parameter;
mod pending;
mod shapes;
mod spawn;

pub use backward::Gradients;
pub use collectives::all_reduce_together;
pub use dist::Dist;
pub use group::Group;
pub use kind::{Distribution, Joins, Local, Partial, Replicated, Shared, Trained, Varying};
pub use meshwork_comm::{CommError, ReduceOp, World};
pub use parameter::{Parameter, Update};
pub use pending::Pending;
pub use spawn::{spawn, spawn_in};
