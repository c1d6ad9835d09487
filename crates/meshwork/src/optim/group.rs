//! Parameters that share their options.

use super::Rule;
use crate::nn::{Module, Parameter};
use crate::tensor::{Tensor, with_default_device};

/// Parameters with their names: from a module (`&model`), a list, or a choice of one by name.
#[derive(Clone, Default)]
pub struct Named(pub Vec<(String, Parameter)>);

impl<M: Module + ?Sized> From<&M> for Named {
    fn from(module: &M) -> Self {
        Named(module.named_parameters())
    }
}

impl From<Vec<(String, Parameter)>> for Named {
    fn from(parameters: Vec<(String, Parameter)>) -> Self {
        Named(parameters)
    }
}

impl Named {
    /// Those whose names the predicate chooses, and the others.
    pub fn partition(self, choose: impl Fn(&str) -> bool) -> (Named, Named) {
        let (chosen, others) = self.0.into_iter().partition(|(name, _)| choose(name));
        (Named(chosen), Named(others))
    }
}

/// Parameters and the options of their optimizer.
pub struct Group<R: Rule> {
    /// Learning rate, weight decay and the like; may be changed between steps.
    pub options: R,
    /// The rate that the group was made with, for the ratio between groups.
    pub(crate) base_lr: f64,
    pub(crate) members: Vec<Member>,
}

/// A parameter with what the optimizer keeps for it.
pub(crate) struct Member {
    pub name: String,
    pub parameter: Parameter,
    /// Steps in which it had a gradient.
    pub steps: u64,
    /// In the order of [`Rule::slots`].
    pub slots: Vec<Tensor>,
    /// The average of its values, if they are averaged.
    pub average: Option<Tensor>,
}

impl<R: Rule> Group<R> {
    /// A group of parameters.
    ///
    /// # Panics
    /// When the options make no sense.
    #[track_caller]
    pub fn new(parameters: impl Into<Named>, options: R) -> Group<R> {
        options.check();
        let members = parameters.into().0.into_iter().map(|(name, parameter)| Member {
            slots: options.slots().iter().map(|slot| filled(&parameter, slot.initial)).collect(),
            name,
            parameter,
            steps: 0,
            average: None,
        });
        Group { base_lr: options.lr(), members: members.collect(), options }
    }

    /// The parameters of the group.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &Parameter)> {
        self.members.iter().map(|m| (m.name.as_str(), &m.parameter))
    }
}

/// A tensor of the parameter's type that is there at once: it makes no program of the first step's own.
fn filled(parameter: &Parameter, value: f64) -> Tensor {
    let element = Tensor::scalar(value, parameter.dtype()).to_bytes();
    let values = || Tensor::from_bytes(&element.repeat(parameter.numel()), parameter.dtype(), parameter.shape());
    parameter.state_beside(with_default_device(&parameter.value().device(), values))
}
