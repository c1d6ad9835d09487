//! Tensors whose distribution over a group is their type.

use super::backward::{Entry, Trail};
use super::{Distribution, Group, Local, Replicated, Varying};
use crate::tensor::{DimList, Tensor};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// A tensor on each rank of a group, which belong together as `K` says.
pub struct Dist<K: Distribution> {
    tensor: Tensor,
    /// Where gradients go on behind this tensor.
    trail: Trail,
    group: Group,
    kind: PhantomData<K>,
}

impl<K: Distribution> Clone for Dist<K> {
    fn clone(&self) -> Self {
        Dist::new(self.tensor.clone(), self.trail.clone(), self.group.clone())
    }
}

impl<K: Distribution> fmt::Debug for Dist<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = std::any::type_name::<K>();
        write!(f, "{}({:?})", kind.rsplit("::").next().unwrap_or(kind), self.tensor)
    }
}

impl<K: Distribution> Dist<K> {
    pub(super) fn new(tensor: Tensor, trail: Trail, group: Group) -> Dist<K> {
        Dist { tensor, trail, group, kind: PhantomData }
    }

    /// A value at which gradients arrive.
    pub(super) fn at(entry: &Rc<Entry>, group: Group) -> Dist<K> {
        Dist::new(entry.leaf().clone(), Trail::of(entry), group)
    }

    pub(super) fn tensor(&self) -> &Tensor {
        &self.tensor
    }

    pub(super) fn trail(&self) -> &Trail {
        &self.trail
    }

    /// The group over which the value is distributed.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The shape of this rank's tensor.
    pub fn shape(&self) -> &[usize] {
        self.tensor.shape()
    }

    /// The same tensors with another distribution, where they have it.
    pub(super) fn reinterpret<J: Distribution>(&self) -> Dist<J> {
        Dist::new(self.tensor.clone(), self.trail.clone(), self.group.clone())
    }

    /// The same value without history: gradients do not flow through it.
    #[track_caller]
    pub fn detach(&self) -> Dist<K> {
        Dist::new(self.tensor.detach(), Trail::default(), self.group.clone())
    }

    /// The same value as a variable of its own: gradients flow to it and not beyond it.
    ///
    /// # Panics
    /// When the dtype is not a floating-point one.
    #[track_caller]
    pub fn variable(&self) -> Dist<K> {
        Dist::at(&Entry::variable(self.tensor.variable()), self.group.clone())
    }
}

impl<K: Local> Dist<K> {
    /// A local computation with one value.
    pub(super) fn map(&self, f: impl FnOnce(&Tensor) -> Tensor) -> Dist<K> {
        Dist::new(f(&self.tensor), self.trail.clone(), self.group.clone())
    }
}

impl Dist<Replicated> {
    /// The value, which is the same on all ranks.
    pub fn value(&self) -> &Tensor {
        &self.tensor
    }

    /// The only element.
    ///
    /// # Panics
    /// When there is not exactly one, or the computation failed.
    #[track_caller]
    pub fn item(&self) -> f64 {
        self.tensor.item()
    }
}

impl Dist<Varying> {
    /// This rank's own tensor.
    pub fn local(&self) -> &Tensor {
        &self.tensor
    }
}

impl<K: Local> Dist<K> {
    /// Sum over dimensions of each rank's tensor, which vanish.
    #[track_caller]
    pub fn sum(&self, dims: impl DimList) -> Dist<K> {
        self.map(|x| x.sum(dims))
    }

    /// Mean over dimensions of each rank's tensor, which vanish.
    #[track_caller]
    pub fn mean(&self, dims: impl DimList) -> Dist<K> {
        self.map(|x| x.mean(dims))
    }

    /// Maximum over dimensions of each rank's tensor, which vanish.
    #[track_caller]
    pub fn amax(&self, dims: impl DimList) -> Dist<K> {
        self.map(|x| x.amax(dims))
    }
}
