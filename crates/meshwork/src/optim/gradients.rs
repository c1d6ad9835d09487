//! Gradients by parameter.

use super::norm::sum_of_squares;
use crate::nn::Parameter;
use crate::tensor::{Tensor, no_grad};
use meshwork_graph::DType;
use rustc_hash::FxHashMap;
use std::sync::OnceLock;

/// The gradients of a loss, one tensor for each parameter that it depends on.
///
/// Nothing is computed until a value is read or an optimizer steps. What [`crate::optim::Optimizer::step`] consumes is
/// never stored; clone the gradients to look at them after the step.
#[derive(Clone, Default)]
pub struct Gradients {
    entries: Vec<(Parameter, Tensor)>,
    index: FxHashMap<usize, usize>,
    /// The sums of squares, once somebody has asked for them.
    squares: OnceLock<Vec<Tensor>>,
}

impl FromIterator<(Parameter, Tensor)> for Gradients {
    /// # Panics
    /// When a gradient has another shape than its parameter.
    fn from_iter<I: IntoIterator<Item = (Parameter, Tensor)>>(entries: I) -> Self {
        let mut gradients = Gradients::default();
        for (parameter, gradient) in entries {
            gradients.insert(&parameter, gradient);
        }
        gradients
    }
}

impl Gradients {
    /// Sets the gradient of a parameter.
    ///
    /// # Panics
    /// When it has another shape than the parameter.
    #[track_caller]
    pub fn insert(&mut self, parameter: &Parameter, gradient: Tensor) {
        assert!(
            gradient.shape() == parameter.shape(),
            "a gradient {gradient:?} of a parameter {parameter:?}: shapes must be equal"
        );
        self.squares.take();
        match self.index.get(&parameter.address()) {
            Some(&i) => self.entries[i].1 = gradient,
            None => {
                self.index.insert(parameter.address(), self.entries.len());
                self.entries.push((parameter.clone(), gradient));
            }
        }
    }

    /// The gradient of a parameter, if the loss depends on it.
    pub fn get(&self, parameter: &Parameter) -> Option<&Tensor> {
        self.index.get(&parameter.address()).map(|&i| &self.entries[i].1)
    }

    /// Parameters and their gradients.
    pub fn iter(&self) -> impl Iterator<Item = (&Parameter, &Tensor)> {
        self.entries.iter().map(|(p, g)| (p, g))
    }

    /// Number of parameters with a gradient.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the loss depends on no parameter.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The root of the sum of squares over all gradients, a scalar of at least f32.
    pub fn global_norm(&self) -> Tensor {
        no_grad(|| {
            let squares = self.squares().iter().cloned();
            squares.reduce(|a, b| a + b).map_or_else(|| Tensor::scalar(0.0, DType::F32), |sum| sum.sqrt())
        })
    }

    /// The sum of the squares of each gradient, in the order of [`Gradients::iter`]: scalars of at least f32.
    pub(crate) fn squares(&self) -> &[Tensor] {
        self.squares.get_or_init(|| no_grad(|| self.entries.iter().map(|(_, g)| sum_of_squares(g)).collect()))
    }

    /// Scales all gradients by max / (norm + 1e-6) if their [`Gradients::global_norm`] is larger than `max`. Returns
    /// the norm before.
    pub fn clip_by_global_norm(&mut self, max: f64) -> Tensor {
        no_grad(|| {
            let norm = self.global_norm();
            let factor = (Tensor::scalar(max, norm.dtype()) / (&norm + 1e-6)).minimum(1.0);
            self.each(|g| g * &factor.to_dtype(g.dtype()));
            norm
        })
    }

    /// The largest sum of squares of a gradient, a scalar of at least f32: not finite if a gradient is not, or is too large to
    /// be squared; 0 without any.
    pub(crate) fn largest_square(&self) -> Tensor {
        no_grad(|| {
            let squares = self.squares().iter().cloned();
            squares.reduce(|a, b| a.maximum(b.brought_beside(&a))).unwrap_or_else(|| Tensor::scalar(0.0, DType::F32))
        })
    }

    /// Where parameters are on a mesh, brings their gradients to where the optimizer's state is: those that are computed
    /// before a step take no more memory than those that it consumes.
    pub(crate) fn keep_beside_state(&mut self) {
        self.squares.take();
        for (parameter, gradient) in &mut self.entries {
            *gradient = parameter.state_beside(gradient.clone());
        }
    }

    /// Multiplies all gradients by a number.
    pub fn scale(&mut self, factor: f64) {
        no_grad(|| self.each(|g| g * factor));
    }

    /// Adds other gradients; a parameter that has none yet takes the other's.
    pub fn accumulate(&mut self, other: Gradients) {
        no_grad(|| {
            for (parameter, gradient) in other.entries {
                let sum = match self.get(&parameter) {
                    Some(own) => own + &gradient,
                    None => gradient,
                };
                self.insert(&parameter, sum);
            }
        });
    }

    fn each(&mut self, change: impl Fn(&Tensor) -> Tensor) {
        self.squares.take();
        for (_, gradient) in &mut self.entries {
            *gradient = change(gradient);
        }
    }
}
