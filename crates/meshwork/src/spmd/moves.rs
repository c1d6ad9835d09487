//! What collectives on tensors do with their elements. Every one is begun here, at a line of the user's.

use super::shapes::{by_dtype, elements_of_parts, of_parts, part, parts, stride, with_size};
use super::{CommError, Group, Pending, ReduceOp};
use crate::DType;
use crate::tensor::{Tensor, with_default_device};
use meshwork_comm::{ANY, Buffers, Communicator, Given, Lent, Operation, Pending as _, Request};
use std::panic::Location;

pub type Site = &'static Location<'static>;

/// Dimensions of a tensor that is scattered.
const MAX_RANK: usize = 14;

/// A collective before it begins.
struct Begin<T> {
    operation: Operation,
    buffers: Given<T>,
    shape: Vec<usize>,
    counts: Option<(Vec<usize>, Vec<usize>)>,
    site: Site,
}

impl Group {
    /// Begins a collective; `finish` makes a tensor of its result, on the device of the rank.
    fn begin<T: meshwork_comm::Element>(
        &self,
        Begin { operation, buffers, shape, counts, site }: Begin<T>,
        finish: impl FnOnce(Vec<T>) -> Tensor + 'static,
    ) -> Result<Pending, CommError> {
        let pending = self.comm().start(Request { operation, buffers, counts, shape: Some(shape), site })?;
        let device = self.device().clone();
        Ok(Pending::new(move || {
            let result = pending.wait()?;
            Ok(with_default_device(&device, || finish(result)))
        }))
    }

    /// A small exchange of numbers that say how long buffers are.
    fn exchange(&self, operation: Operation, buffers: Lent<'_, i64>, site: Site) -> Result<(), CommError> {
        self.comm().run(Request { operation, buffers, counts: None, shape: None, site })
    }

    /// Everyone's size.
    fn sizes(&self, own: usize, site: Site) -> Result<Vec<usize>, CommError> {
        let mut sizes = vec![0; self.world_size()];
        let buffers = Buffers::Apart { input: &[own as i64][..], output: &mut sizes[..] };
        self.exchange(Operation::AllGather, buffers, site)?;
        Ok(sizes.into_iter().map(|size| size as usize).collect())
    }

    /// A collective in place: all-reduce, reduce, broadcast.
    pub(super) fn in_place(&self, x: &Tensor, operation: Operation, site: Site) -> Result<Pending, CommError> {
        let shape = x.shape().to_vec();
        by_dtype!(x.dtype(), T => {
            let buffers = Buffers::InPlace(x.to_vec::<T>());
            let begin = Begin { operation, buffers, shape: shape.clone(), counts: None, site };
            self.begin(begin, move |values| Tensor::from_slice::<T>(&values, &shape))
        })
    }

    pub(super) fn reduce_parts(&self, x: &Tensor, dim: usize, op: ReduceOp, site: Site) -> Result<Pending, CommError> {
        let shape = x.shape().to_vec();
        let sizes = parts(shape[dim], self.world_size());
        let own = with_size(&shape, dim, sizes[self.rank()]);
        let operation = Operation::ReduceScatter(op);
        by_dtype!(x.dtype(), T => {
            let output = vec![Default::default(); own.iter().product()];
            let buffers = Buffers::Apart { input: elements_of_parts::<T>(x, dim, &sizes), output };
            self.begin(Begin { operation, buffers, shape, counts: None, site }, move |values| {
                Tensor::from_slice::<T>(&values, &own)
            })
        })
    }

    /// Everyone's tensors along a dimension: for everyone, or for a root.
    pub(super) fn join(&self, x: &Tensor, dim: usize, root: Option<usize>, site: Site) -> Result<Pending, CommError> {
        let shape = x.shape().to_vec();
        let sizes = self.sizes(shape[dim], site)?;
        let operation = root.map_or(Operation::AllGather, |root| Operation::Gather { root });
        let sizes = if root.is_none_or(|root| root == self.rank()) { sizes } else { Vec::new() };
        let len = sizes.iter().sum::<usize>() * stride(&shape, dim);
        by_dtype!(x.dtype(), T => {
            let buffers = Buffers::Apart { input: x.to_vec::<T>(), output: vec![Default::default(); len] };
            let begin = Begin { operation, buffers, shape: with_size(&shape, dim, ANY), counts: None, site };
            self.begin(begin, move |values| match sizes[..] {
                [] => Tensor::from_slice::<T>(&[], &[0]),
                _ => of_parts::<T>(&values, &shape, dim, &sizes),
            })
        })
    }

    pub(super) fn exchange_parts(
        &self,
        x: &Tensor,
        split: usize,
        join: usize,
        site: Site,
    ) -> Result<Pending, CommError> {
        let shape = x.shape().to_vec();
        let sizes = parts(shape[split], self.world_size());
        let own = with_size(&shape, split, sizes[self.rank()]);
        // Along the dimension that is joined, every rank brings its own size.
        let joined = match split == join {
            true => vec![own[join]; self.world_size()],
            false => self.sizes(shape[join], site)?,
        };
        let send = sizes.iter().map(|size| size * stride(&shape, split)).collect();
        let receive: Vec<usize> = joined.iter().map(|size| size * stride(&own, join)).collect();
        let operation = Operation::AllToAll;
        by_dtype!(x.dtype(), T => {
            let output = vec![Default::default(); receive.iter().sum()];
            let buffers = Buffers::Apart { input: elements_of_parts::<T>(x, split, &sizes), output };
            let shape = if split == join { shape } else { with_size(&shape, join, ANY) };
            self.begin(Begin { operation, buffers, shape, counts: Some((send, receive)), site }, move |values| {
                of_parts::<T>(&values, &own, join, &joined)
            })
        })
    }

    pub(super) fn deal(&self, x: Option<&Tensor>, dim: usize, root: usize, site: Site) -> Result<Pending, CommError> {
        // The others do not know yet what there is.
        let mut about = [0i64; MAX_RANK + 2];
        if let Some(x) = x {
            assert!((1..=MAX_RANK).contains(&x.rank()), "scatter: a tensor of 1 to {MAX_RANK} dims, not {x:?}");
            let dtype = DType::ALL.iter().position(|&dtype| dtype == x.dtype()).expect("all are listed");
            let sizes = x.shape().iter().map(|&size| size as i64);
            let words = [dtype as i64, x.rank() as i64].into_iter().chain(sizes);
            about.iter_mut().zip(words).for_each(|(about, word)| *about = word);
        }
        self.exchange(Operation::Broadcast { root }, Buffers::InPlace(&mut about[..]), site)?;
        let dtype = DType::ALL[about[0] as usize];
        let shape: Vec<usize> = about[2..2 + about[1] as usize].iter().map(|&size| size as usize).collect();
        let own = with_size(&shape, dim, part(shape[dim], self.world_size(), self.rank()).len());
        let operation = Operation::Scatter { root };
        let moved = if dtype == DType::Bool { DType::U8 } else { dtype };
        let x = x.map(|x| x.to_dtype(moved));
        let pending = by_dtype!(moved, T => {
            let sizes = parts(shape[dim], self.world_size());
            let input = x.map(|x| elements_of_parts::<T>(&x, dim, &sizes)).unwrap_or_default();
            let buffers = Buffers::Apart { input, output: vec![Default::default(); own.iter().product()] };
            self.begin(Begin { operation, buffers, shape, counts: None, site }, move |values| {
                Tensor::from_slice::<T>(&values, &own)
            })
        })?;
        Ok(pending.then(move |part| part.to_dtype(dtype)))
    }

    pub(super) fn receive(&self, shape: &[usize], dtype: DType, from: usize, site: Site) -> Result<Pending, CommError> {
        let shape = shape.to_vec();
        let operation = Operation::Recv { from };
        by_dtype!(dtype, T => {
            let output = vec![Default::default(); shape.iter().product()];
            let buffers = Buffers::Apart { input: Vec::new(), output };
            let begin = Begin { operation, buffers, shape: shape.clone(), counts: None, site };
            self.begin(begin, move |values| Tensor::from_slice::<T>(&values, &shape))
        })
    }
}
