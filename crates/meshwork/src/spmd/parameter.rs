//! Trained values, and what an optimizer takes.

use super::backward::Entry;
use super::{Dist, Group, Local, Trained};
use crate::nn;
use crate::optim::{self, Optimizer};
use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

/// A tensor that is trained on each rank: the same on all ([`super::Replicated`]) or each rank's own ([`super::Varying`]).
pub struct Parameter<K: Trained> {
    parameter: nn::Parameter,
    group: Group,
    /// The leaf of the current value.
    leaf: RefCell<Option<Rc<Entry>>>,
    kind: PhantomData<K>,
}

impl<K: Trained> Parameter<K> {
    /// A parameter that begins with this value.
    ///
    /// # Panics
    /// When the dtype is not a floating-point one.
    #[track_caller]
    pub fn new(value: &Dist<K>) -> Parameter<K> {
        let parameter = nn::Parameter::from_tensor(&value.tensor().detach());
        Parameter { parameter, group: value.group().clone(), leaf: RefCell::new(None), kind: PhantomData }
    }

    /// The value, to which gradients flow.
    pub fn value(&self) -> Dist<K>
    where
        K: Local,
    {
        let value = self.parameter.value();
        let mut leaf = self.leaf.borrow_mut();
        let current = leaf.take().filter(|entry| Arc::ptr_eq(entry.leaf().node(), value.node()));
        Dist::at(leaf.insert(current.unwrap_or_else(|| Entry::variable(value))), self.group.clone())
    }

    /// This rank's parameter under a name, for an optimizer of this rank.
    pub fn named(&self, name: &str) -> (String, nn::Parameter) {
        (name.to_string(), self.parameter.clone())
    }
}

/// Gradients for a step of an optimizer: for each parameter one of its own distribution.
#[derive(Default)]
pub struct Update {
    gradients: optim::Gradients,
}

impl Update {
    /// The update without a gradient.
    pub fn new() -> Update {
        Update::default()
    }

    /// With the gradient of a parameter.
    ///
    /// # Panics
    /// When it has another shape than the parameter.
    #[must_use]
    #[track_caller]
    pub fn with<K: Trained>(mut self, parameter: &Parameter<K>, gradient: &Dist<K>) -> Update {
        self.gradients.insert(&parameter.parameter, gradient.tensor().clone());
        self
    }

    /// Updates the parameters of this rank.
    pub fn step(self, optimizer: &mut impl Optimizer) {
        optimizer.step(self.gradients);
    }
}
