//! From one distribution to another.

use super::backward::Transpose;
use super::shapes::part;
use super::{CommError, Dist, Group, Partial, ReduceOp, Replicated, Shared, Varying};
use crate::tensor::{Tensor, concat};
use meshwork_comm::Operation;
use std::panic::Location;

impl Group {
    /// This rank's own tensor, without its history.
    pub fn varying(&self, own: &Tensor) -> Dist<Varying> {
        Dist::new(own.detach(), Default::default(), self.clone())
    }

    /// A tensor that all ranks have, bit for bit, without its history. That they have it is checked.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    ///
    /// # Panics
    /// When ranks have different tensors.
    #[track_caller]
    pub fn replicated(&self, tensor: &Tensor) -> Result<Dist<Replicated>, CommError> {
        let bits = xxhash_rust::xxh3::xxh3_128(&tensor.to_bytes());
        let own = Tensor::from_slice(&[(bits >> 64) as i64, bits as i64], &[1, 2]);
        let all = self.all_gather(&own, 0)?.to_vec::<i64>();
        let other = all.chunks(2).position(|bits| bits != &all[..2]);
        assert!(other.is_none(), "replicated: the tensors of rank 0 and rank {} differ", other.unwrap_or_default());
        Ok(Dist::new(tensor.detach(), Default::default(), self.clone()))
    }

    /// The root's tensor, for all ranks.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn replicated_from(&self, tensor: &Tensor, root: usize) -> Result<Dist<Replicated>, CommError> {
        Ok(Dist::new(self.broadcast(tensor, root)?, Default::default(), self.clone()))
    }
}

impl Dist<Replicated> {
    /// The same tensors, to be used by each rank in its own way. The gradient is added up over the ranks: Megatron-LM's
    /// *f* (Shoeybi et al., 2019).
    #[track_caller]
    pub fn fan_out(&self) -> Dist<Shared> {
        self.result(self.tensor(), Transpose::AllReduce, Location::caller())
    }

    /// Each rank's part of a dimension, divided as evenly as it goes. The gradients are put together.
    #[track_caller]
    pub fn shard(&self, dim: isize) -> Dist<Varying> {
        let own = self.group().part_of(self.tensor(), dim);
        self.result(&own, Transpose::AllGather { dim: self.tensor().dim(dim) }, Location::caller())
    }

    /// The same tensors as constants for each rank to use in its own way: no gradient flows back.
    #[track_caller]
    pub fn constant(&self) -> Dist<Shared> {
        self.detach().reinterpret()
    }
}

impl Dist<Shared> {
    /// The same tensors as each rank's own.
    pub fn vary(&self) -> Dist<Varying> {
        self.reinterpret()
    }

    /// Each rank's part of a dimension, divided as evenly as it goes.
    #[track_caller]
    pub fn shard(&self, dim: isize) -> Dist<Varying> {
        self.map(|x| self.group().part_of(x, dim)).reinterpret()
    }
}

impl Dist<Varying> {
    /// The same tensors as parts of a sum: for instance products over each rank's part of the features, or losses of each
    /// rank's samples.
    pub fn partial(&self) -> Dist<Partial> {
        self.reinterpret()
    }

    /// The tensors of all ranks, one after the other along a dimension, in which their sizes may differ. Each rank takes
    /// its part of the gradient.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn all_gather(&self, dim: isize) -> Result<Dist<Replicated>, CommError> {
        let (whole, dim, start) = self.gathered(dim)?;
        Ok(self.result(&whole, Transpose::Own { dim, start }, Location::caller()))
    }

    /// As [`Dist::all_gather`], for each rank to use in its own way: the gradient is added up over the ranks before each
    /// takes its part.
    ///
    /// # Errors
    /// As [`Dist::all_gather`].
    #[track_caller]
    pub fn all_gather_shared(&self, dim: isize) -> Result<Dist<Shared>, CommError> {
        let (whole, dim, start) = self.gathered(dim)?;
        Ok(self.result(&whole, Transpose::AddedOwn { dim, start }, Location::caller()))
    }

    /// The whole, the dimension, and where this rank's part of it begins.
    #[track_caller]
    fn gathered(&self, dim: isize) -> Result<(Tensor, usize, usize), CommError> {
        let (group, at) = (self.group(), self.tensor().dim(dim));
        let sizes = group.all_gather(&Tensor::from_slice(&[self.shape()[at] as i64], &[1]), 0)?.to_vec::<i64>();
        let start = sizes[..group.rank()].iter().sum::<i64>() as usize;
        Ok((group.all_gather(self.tensor(), dim)?, at, start))
    }

    /// Divides each rank's tensor along the dimension `split`, and gives each rank its parts, one after the other along
    /// `join`: what was divided along one dimension is divided along the other. The gradient goes the way back.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    ///
    /// # Panics
    /// When the sizes of the parts along `join` are not those of a whole that was divided as evenly as it goes, or both
    /// dimensions are the same.
    #[track_caller]
    pub fn all_to_all(&self, split: isize, join: isize) -> Result<Dist<Varying>, CommError> {
        let (x, group) = (self.tensor(), self.group());
        let (from, to) = (x.dim(split), x.dim(join));
        assert!(from != to, "all_to_all: two different dims, not {split} and {join}");
        let result = group.all_to_all(x, split, join)?;
        let even = part(result.shape()[to], group.world_size(), group.rank()).len();
        assert!(even == x.shape()[to], "all_to_all: dim {join} of {x:?} is no even part of {}", result.shape()[to]);
        Ok(self.result(&result, Transpose::AllToAll { split: to, join: from }, Location::caller()))
    }

    /// The greatest of the ranks' elements, as a constant: no gradient flows back.
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn all_reduce_max(&self) -> Result<Dist<Replicated>, CommError> {
        let greatest = self.group().all_reduce(&self.tensor().detach(), ReduceOp::Max)?;
        Ok(Dist::new(greatest, Default::default(), self.group().clone()))
    }
}

impl Dist<Partial> {
    /// The sum over the ranks. Its gradient is that of each part: Megatron-LM's *g* (Shoeybi et al., 2019).
    ///
    /// # Errors
    /// When the calls of the ranks do not fit each other, or one never comes: see [`CommError`].
    #[track_caller]
    pub fn all_reduce(&self) -> Result<Dist<Replicated>, CommError> {
        let sum = self.group().all_reduce(self.tensor(), ReduceOp::Sum)?;
        Ok(self.result(&sum, Transpose::Identity, Location::caller()))
    }

    /// The sum over the ranks, for each of them to use in its own way: its gradient is added up too.
    ///
    /// # Errors
    /// As [`Dist::all_reduce`].
    #[track_caller]
    pub fn all_reduce_shared(&self) -> Result<Dist<Shared>, CommError> {
        let sum = self.group().all_reduce(self.tensor(), ReduceOp::Sum)?;
        Ok(self.result(&sum, Transpose::AllReduce, Location::caller()))
    }

    /// The sum over the ranks, of which each gets its part of a dimension. The gradients are put together.
    ///
    /// # Errors
    /// As [`Dist::all_reduce`].
    #[track_caller]
    pub fn reduce_scatter(&self, dim: isize) -> Result<Dist<Varying>, CommError> {
        let own = self.group().reduce_scatter(self.tensor(), dim, ReduceOp::Sum)?;
        Ok(self.result(&own, Transpose::AllGather { dim: self.tensor().dim(dim) }, Location::caller()))
    }
}

/// [`Dist::all_reduce`] of several values of one dtype in a single collective. Each sum has the bits that it has by itself;
/// partial values cannot be added to each other before, since that would be another order.
///
/// # Errors
/// As [`Dist::all_reduce`].
///
/// # Panics
/// When the values are of different dtypes or groups.
#[track_caller]
pub fn all_reduce_together(values: &[&Dist<Partial>]) -> Result<Vec<Dist<Replicated>>, CommError> {
    let Some(first) = values.first() else { return Ok(Vec::new()) };
    let (group, dtype) = (first.group(), first.tensor().dtype());
    let alike = |value: &&Dist<Partial>| value.group().ranks() == group.ranks() && value.tensor().dtype() == dtype;
    assert!(values.iter().all(alike), "all_reduce_together: values of one group and one dtype");
    let site = Location::caller();
    let flat: Vec<Tensor> = values.iter().map(|value| value.tensor().reshape(&[-1])).collect();
    let bucket = concat(&flat.iter().collect::<Vec<_>>(), 0).detach();
    let sum = group.in_place(&bucket, Operation::AllReduce(ReduceOp::Sum), site)?.wait()?;
    let sizes: Vec<usize> = flat.iter().map(Tensor::numel).collect();
    let shaped = |(sum, value): (Tensor, &&Dist<Partial>)| {
        let shape: Vec<isize> = value.shape().iter().map(|&size| size as isize).collect();
        value.result(&sum.reshape(&shape), Transpose::Identity, site)
    };
    Ok(sum.split(&sizes, 0).into_iter().zip(values).map(shaped).collect())
}
