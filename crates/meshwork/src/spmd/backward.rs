//! Gradients through collectives.
//!
//! A collective ends the recorded graph of its rank: its result is a new leaf, and an [`Entry`] says where it came from
//! and how gradients get back. Between collectives, gradients are those of the recorded graph.

use super::moves::Site;
use super::{CommError, Dist, Distribution, Group, ReduceOp, Replicated};
use crate::tensor::{Tensor, gradients};
use meshwork_comm::Operation;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A leaf of the recorded graph: a variable, or the result of a collective.
pub(super) struct Entry {
    /// Position in the order in which entries were made, over all threads.
    id: u64,
    leaf: Tensor,
    source: Option<Source>,
}

/// Where the result of a collective came from.
struct Source {
    input: Tensor,
    trail: Trail,
    group: Group,
    transpose: Transpose,
    site: Site,
}

/// What the gradient of a result goes through to be that of the input.
#[derive(Clone, Copy)]
pub(super) enum Transpose {
    /// It stays as it is.
    Identity,
    /// It is added up over the ranks.
    AllReduce,
    /// Each rank takes what belongs to its part, which begins there.
    Own { dim: usize, start: usize },
    /// It is added up over the ranks, and each takes its part, which begins there.
    AddedOwn { dim: usize, start: usize },
    /// The ranks put their parts together.
    AllGather { dim: usize },
    /// The ranks exchange their parts.
    AllToAll { split: usize, join: usize },
}

impl Entry {
    fn new(leaf: Tensor, source: Option<Source>) -> Rc<Entry> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Rc::new(Entry { id: NEXT.fetch_add(1, Ordering::Relaxed), leaf, source })
    }

    /// A leaf that was no tensor of the graph before.
    pub fn variable(leaf: Tensor) -> Rc<Entry> {
        Entry::new(leaf, None)
    }

    pub fn leaf(&self) -> &Tensor {
        &self.leaf
    }
}

/// The leaves that a value may depend on, each once, in the order in which they were made.
#[derive(Clone, Default)]
pub(super) struct Trail(Rc<[Rc<Entry>]>);

impl Trail {
    pub fn of(entry: &Rc<Entry>) -> Trail {
        Trail([entry.clone()].into())
    }

    /// The leaves of either.
    pub fn and(&self, other: &Trail) -> Trail {
        if Rc::ptr_eq(&self.0, &other.0) || other.0.is_empty() {
            return self.clone();
        }
        let both: BTreeMap<u64, &Rc<Entry>> = self.0.iter().chain(&*other.0).map(|entry| (entry.id, entry)).collect();
        Trail(both.into_values().cloned().collect())
    }
}

impl<K: Distribution> Dist<K> {
    /// The result of a collective, whose gradient goes back to this value.
    pub(super) fn result<J: Distribution>(&self, result: &Tensor, transpose: Transpose, site: Site) -> Dist<J> {
        if !self.tensor().requires_grad() {
            return Dist::new(result.clone(), Trail::default(), self.group().clone());
        }
        let (input, trail, group) = (self.tensor().clone(), self.trail().clone(), self.group().clone());
        let source = Source { input, trail, group, transpose, site };
        Dist::at(&Entry::new(result.variable(), Some(source)), self.group().clone())
    }
}

impl Dist<Replicated> {
    /// The gradients of this scalar by everything that it depends on. All ranks of the group must call it.
    ///
    /// # Errors
    /// When a collective of the backward pass fails; it is named by the line of the one in the forward pass.
    ///
    /// # Panics
    /// When this is not one floating-point number.
    #[track_caller]
    pub fn backward(&self) -> Result<Gradients, CommError> {
        let loss = self.tensor();
        let scalar = loss.numel() == 1 && loss.dtype().is_float();
        assert!(scalar, "backward: the gradient of {loss:?} needs a scalar loss");
        let mut found = Gradients::default();
        found.flow(loss, &loss.ones_like(), self.trail());
        // What an entry's gradient adds to are entries that were made before it.
        let mut next = found.before(u64::MAX);
        while let Some((entry, gradient)) = next {
            if let Some(source) = &entry.source {
                let gradient = source.transpose(&gradient)?;
                found.flow(&source.input, &gradient, &source.trail);
            }
            next = found.before(entry.id);
        }
        Ok(found)
    }
}

impl Source {
    /// The gradient by the input of a collective, from that by its result.
    fn transpose(&self, gradient: &Tensor) -> Result<Tensor, CommError> {
        let Source { group, site, .. } = self;
        let added = || group.in_place(gradient, Operation::AllReduce(ReduceOp::Sum), site)?.wait();
        let own =
            |whole: &Tensor, dim: usize, start: usize| whole.narrow(dim as isize, start, self.input.size(dim as isize));
        match self.transpose {
            Transpose::Identity => Ok(gradient.clone()),
            Transpose::AllReduce => added(),
            Transpose::Own { dim, start } => Ok(own(gradient, dim, start)),
            Transpose::AddedOwn { dim, start } => Ok(own(&added()?, dim, start)),
            Transpose::AllGather { dim } => group.join(gradient, dim, None, site)?.wait(),
            Transpose::AllToAll { split, join } => group.exchange_parts(gradient, split, join, site)?.wait(),
        }
    }
}

/// Gradients of a loss, for each value that it depends on.
#[derive(Default)]
pub struct Gradients {
    found: BTreeMap<u64, (Rc<Entry>, Tensor)>,
}

impl Gradients {
    /// Adds what flows from a tensor to the leaves of its trail.
    fn flow(&mut self, tensor: &Tensor, gradient: &Tensor, trail: &Trail) {
        let leaves: Vec<&Tensor> = trail.0.iter().map(|entry| entry.leaf()).collect();
        // Tensors have history in common: that of one must outlive the gradients of the other.
        let flowing = gradients(&[tensor], Some(&[gradient]), &leaves, true);
        for (entry, gradient) in trail.0.iter().zip(flowing) {
            let Some(gradient) = gradient else { continue };
            let sum = match self.found.remove(&entry.id) {
                Some((_, before)) => before + gradient,
                None => gradient,
            };
            self.found.insert(entry.id, (entry.clone(), sum.detach()));
        }
    }

    /// The last entry before this one, with its gradient.
    fn before(&self, id: u64) -> Option<(Rc<Entry>, Tensor)> {
        self.found.range(..id).next_back().map(|(_, (entry, gradient))| (entry.clone(), gradient.clone()))
    }

    /// The gradient by a variable or the result of a collective; zeros where the loss does not depend on it.
    ///
    /// # Panics
    /// When the value is neither.
    #[track_caller]
    pub fn of<K: Distribution>(&self, value: &Dist<K>) -> Dist<K::Gradient> {
        let is_leaf = |entry: &&Rc<Entry>| Arc::ptr_eq(entry.leaf().node(), value.tensor().node());
        let Some(entry) = value.trail().0.iter().find(is_leaf) else {
            panic!(
                "the gradient by {value:?} needs a variable (make it one with variable()) or the result of a collective"
            );
        };
        let gradient = match self.found.get(&entry.id) {
            Some((_, gradient)) => gradient.clone(),
            None => value.tensor().detach().zeros_like(),
        };
        Dist::new(gradient, Trail::default(), value.group().clone())
    }
}
