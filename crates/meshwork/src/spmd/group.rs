//! A group of ranks, and collectives on its tensors.

use super::moves::Site;
use super::{CommError, Pending, ReduceOp};
use crate::tensor::Tensor;
use crate::{DType, Device};
use meshwork_comm::{Communicator, Operation, local};
use std::panic::Location;

/// A group of ranks, as one of them sees it. It stays on the thread of its rank; clones are the same group.
///
/// All ranks of a group must make the same calls in the same order. Reductions are those of the tree of adjacent pairs over
/// the ranks; f16 and bf16 are reduced in f32 and rounded once. A tensor is divided among the ranks as evenly as it goes:
/// the first parts may have one more than the last.
#[derive(Clone)]
pub struct Group {
    comm: local::Group,
    device: Device,
}

macro_rules! collectives {
    ($(
        $(#[$doc:meta])*
        $name:ident / $background:ident ($group:ident, $x:ident, $site:ident $(, $argument:ident: $type:ty)*) = $body:expr;
    )*) => {
        impl Group {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
                #[track_caller]
                pub fn $name(&self, $x: &Tensor $(, $argument: $type)*) -> Result<Tensor, CommError> {
                    self.$background($x $(, $argument)*)?.wait()
                }

                #[doc = concat!("[`Group::", stringify!($name), "`] in the background, once the value is there.")]
                ///
                /// # Errors
                /// When the group has failed already, or the call makes no sense by itself.
                #[track_caller]
                pub fn $background(&self, $x: &Tensor $(, $argument: $type)*) -> Result<Pending, CommError> {
                    let ($group, $site) = (self, Location::caller());
                    $body
                }
            )*
        }
    };
}

collectives! {
    /// The reduction of everyone's tensor, for everyone. All have one shape.
    all_reduce / all_reduce_async(group, x, site, op: ReduceOp)
        = group.in_place(reducible("all_reduce", x), Operation::AllReduce(op), site);

    /// The reduction of everyone's tensor; each rank gets its part along a dimension.
    reduce_scatter / reduce_scatter_async(group, x, site, dim: isize, op: ReduceOp)
        = group.reduce_parts(reducible("reduce_scatter", x), x.dim(dim), op, site);

    /// Everyone's tensors, one after the other along a dimension, in which their sizes may differ.
    all_gather / all_gather_async(group, x, site, dim: isize)
        = moved(x, |x| group.join(x, x.dim(dim), None, site));

    /// Divides the tensor along the dimension `split`, gives each rank its part, and puts what comes from the ranks one
    /// after the other along `join`.
    all_to_all / all_to_all_async(group, x, site, split: isize, join: isize)
        = moved(x, |x| group.exchange_parts(x, x.dim(split), x.dim(join), site));

    /// The tensor of the root, for everyone. All give one of its shape.
    broadcast / broadcast_async(group, x, site, root: usize)
        = moved(x, |x| group.in_place(x, Operation::Broadcast { root }, site));

    /// The reduction of everyone's tensor for the root; the others get their own tensor back.
    reduce / reduce_async(group, x, site, op: ReduceOp, root: usize)
        = group.in_place(reducible("reduce", x), Operation::Reduce { op, root }, site);
}

/// Moves a tensor; bool as u8.
fn moved(x: &Tensor, begin: impl FnOnce(&Tensor) -> Result<Pending, CommError>) -> Result<Pending, CommError> {
    match x.dtype() {
        DType::Bool => Ok(begin(&x.to_dtype(DType::U8))?.then(|result| result.to_dtype(DType::Bool))),
        _ => begin(x),
    }
}

/// Checks that a tensor can be reduced.
#[track_caller]
fn reducible<'a>(name: &str, x: &'a Tensor) -> &'a Tensor {
    assert!(x.dtype() != DType::Bool, "{name}: bool is not reduced; make it u8 with to_dtype");
    x
}

impl Group {
    /// The group of all ranks; its rank takes its turn of the devices.
    pub(super) fn of_world(comm: local::Group, devices: &[Device]) -> Group {
        let device = devices[comm.rank() % devices.len()].clone();
        Group { comm, device }
    }

    pub(super) fn comm(&self) -> &local::Group {
        &self.comm
    }

    /// The position of this rank in the group, from 0.
    pub fn rank(&self) -> usize {
        self.comm.rank()
    }

    /// The number of ranks in the group.
    pub fn world_size(&self) -> usize {
        self.comm.world_size()
    }

    /// The ranks in the world of the members, in their order.
    pub fn ranks(&self) -> &[usize] {
        self.comm.ranks()
    }

    /// The device of this rank.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Makes a group of some of the ranks, in this order. Every rank of this group must call it, with the same list;
    /// those that are not in it get none.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, one never comes, or the list names a rank twice or one that
    /// does not exist.
    #[track_caller]
    pub fn new_group(&self, members: &[usize]) -> Result<Option<Group>, CommError> {
        let made = self.comm.new_group(members)?;
        Ok(made.map(|comm| Group { comm, device: self.device.clone() }))
    }

    /// Lays the ranks out as a mesh with axes of these sizes, the last one running fastest, and makes, for each axis, the
    /// group of the ranks that differ from this one along that axis only.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, one never comes, or there are not as many ranks as places in
    /// the mesh.
    #[track_caller]
    pub fn along_axes(&self, sizes: &[usize]) -> Result<Vec<Group>, CommError> {
        let made = self.comm.along_axes(sizes)?;
        Ok(made.into_iter().map(|comm| Group { comm, device: self.device.clone() }).collect())
    }

    /// The part of a tensor that this rank gets when a dimension is divided.
    #[track_caller]
    pub fn part_of(&self, x: &Tensor, dim: isize) -> Tensor {
        let part = super::shapes::part(x.size(dim), self.world_size(), self.rank());
        x.narrow(dim, part.start, part.len())
    }

    /// Everyone's tensors for the root, one after the other along a dimension; nothing for the others.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn gather(&self, x: &Tensor, dim: isize, root: usize) -> Result<Option<Tensor>, CommError> {
        let site = Location::caller();
        let gathered = moved(x, |x| self.join(x, x.dim(dim), Some(root), site))?.wait()?;
        Ok((self.rank() == root).then_some(gathered))
    }

    /// Divides a tensor of the root along a dimension, and gives each rank its part. The others give nothing.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    ///
    /// # Panics
    /// When the root gives nothing, or the tensor has no such dimension.
    #[track_caller]
    pub fn scatter(&self, x: Option<&Tensor>, dim: usize, root: usize) -> Result<Tensor, CommError> {
        assert!(
            self.rank() != root || x.is_some_and(|x| dim < x.rank()),
            "scatter: the root gives a tensor with dim {dim}"
        );
        let site = Location::caller();
        self.deal(x.filter(|_| self.rank() == root), dim, root, site)?.wait()
    }

    /// Sends a tensor to another rank, which must receive it; returns when it has.
    ///
    /// # Errors
    /// When the calls of the two ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn send(&self, x: &Tensor, to: usize) -> Result<(), CommError> {
        self.send_async(x, to)?.wait().map(drop)
    }

    /// [`Group::send`] in the background. The result is the tensor that was sent.
    ///
    /// # Errors
    /// When the group has failed already, or the call makes no sense by itself.
    #[track_caller]
    pub fn send_async(&self, x: &Tensor, to: usize) -> Result<Pending, CommError> {
        let site = Location::caller();
        moved(x, |x| self.in_place(x, Operation::Send { to }, site))
    }

    /// Receives a tensor of this shape and dtype from another rank.
    ///
    /// # Errors
    /// When the calls of the two ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn recv(&self, shape: &[usize], dtype: DType, from: usize) -> Result<Tensor, CommError> {
        self.recv_async(shape, dtype, from)?.wait()
    }

    /// [`Group::recv`] in the background.
    ///
    /// # Errors
    /// When the group has failed already, or the call makes no sense by itself.
    #[track_caller]
    pub fn recv_async(&self, shape: &[usize], dtype: DType, from: usize) -> Result<Pending, CommError> {
        let site: Site = Location::caller();
        match dtype {
            DType::Bool => {
                let received = self.receive(shape, DType::U8, from, site)?;
                Ok(received.then(|x| x.to_dtype(DType::Bool)))
            }
            _ => self.receive(shape, dtype, from, site),
        }
    }

    /// Waits until all ranks are there.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn barrier(&self) -> Result<(), CommError> {
        self.comm.barrier()
    }
}
