//! The trait of everything that has parameters.

use super::{Buffer, Leaf, Parameter, StateError, Visitor, state};
use crate::Device;
use crate::mesh::{Mesh, Plan};
use crate::optim::Gradients;
use crate::tensor::{self, Tensor, evaluate, no_grad};
use rustc_hash::FxHashSet;

/// Something with parameters: a layer, a model, or a part of one.
///
/// Derive it; by hand, `visit` calls [`Visitor::field`] for every part. Names are those of the fields, joined by
/// dots: `conv1.weight`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    label = "holds no parameters that Meshwork knows of",
    note = "derive it with `#[derive(Module)]`, or leave the field out with `#[module(skip)]`"
)]
pub trait Module {
    /// Shows the visitor every part under its name.
    fn visit(&self, visitor: &mut Visitor<'_>);

    /// The parameters with their names, in the order of the fields. One that several fields share comes once,
    /// under its first name.
    fn named_parameters(&self) -> Vec<(String, Parameter)> {
        let mut seen = FxHashSet::default();
        let mut found = Vec::new();
        self.visit(&mut Visitor::new(&mut |path, leaf| {
            if let Leaf::Parameter(p) = leaf
                && seen.insert(p.address())
            {
                found.push((path.to_string(), p.clone()));
            }
        }));
        found
    }

    /// The parameters, each once.
    fn parameters(&self) -> Vec<Parameter> {
        let mut seen = FxHashSet::default();
        let mut found = Vec::new();
        self.visit(&mut Visitor::new(&mut |_, leaf| {
            if let Leaf::Parameter(p) = leaf
                && seen.insert(p.address())
            {
                found.push(p.clone());
            }
        }));
        found
    }

    /// The buffers with their names. One that several fields share comes once, under its first name.
    fn named_buffers(&self) -> Vec<(String, Buffer)> {
        let mut seen = FxHashSet::default();
        let mut found = Vec::new();
        self.visit(&mut Visitor::new(&mut |path, leaf| {
            if let Leaf::Buffer(b) = leaf
                && seen.insert(b.address())
            {
                found.push((path.to_string(), b.clone()));
            }
        }));
        found
    }

    /// Number of trained values; shared ones count once.
    fn num_parameters(&self) -> usize {
        self.parameters().iter().map(Parameter::numel).sum()
    }

    /// Switches to training: dropout drops, batch normalisation uses the batch. New modules are in training.
    fn train(&self) {
        set_training(self, true);
    }

    /// Switches to evaluation: dropout does nothing, batch normalisation uses its running statistics.
    fn eval(&self) {
        set_training(self, false);
    }

    /// (Re-)initialises all parameters and buffers, and seeds the random sites. A parameter's values depend on
    /// `seed`, its name and its shape alone, not on what was made before.
    fn init(&self, seed: u64) {
        let mut seen = FxHashSet::default();
        self.visit(&mut Visitor::new(&mut |path, leaf| match leaf {
            Leaf::Parameter(p) if seen.insert(p.address()) => p.init(seed, path),
            Leaf::Buffer(b) if seen.insert(b.address()) => b.reset(),
            Leaf::Site(s) if seen.insert(s.address()) => s.assign(seed, path),
            _ => {}
        }));
        evaluate(None);
    }

    /// Moves all parameters and buffers to a device. An optimizer that was made before keeps its state where it was: make
    /// it afterwards.
    fn to(&self, device: &Device) {
        let mut seen = FxHashSet::default();
        self.visit(&mut Visitor::new(&mut |_, leaf| match leaf {
            Leaf::Parameter(p) if seen.insert(p.address()) => {
                p.lie(None);
                p.set(no_grad(|| p.value().to(device)));
            }
            Leaf::Buffer(b) if seen.insert(b.address()) => {
                b.lie(None);
                b.set(no_grad(|| b.value().to(device)));
            }
            _ => {}
        }));
        evaluate(None);
    }

    /// Trains the model on all devices of a mesh, with every parameter on each of them and parts of each batch: what
    /// PyTorch calls `DataParallel`. For anything else make a [`Plan`](crate::mesh::Plan). Make the optimizer afterwards.
    fn on(&self, mesh: &Mesh) {
        Plan::default().apply(self, mesh).unwrap_or_else(|e| unreachable!("a plan without places: {e}"));
    }

    /// The values of all parameters and buffers under PyTorch's names, in the order of the fields. What several
    /// fields share is listed under each of their names.
    fn state(&self) -> Vec<(String, Tensor)> {
        let mut found = Vec::new();
        self.visit(&mut Visitor::new(&mut |path, leaf| match leaf {
            Leaf::Parameter(p) => found.push((path.to_string(), p.value().into_leaf(false))),
            Leaf::Buffer(b) => found.push((path.to_string(), b.value())),
            Leaf::Site(_) | Leaf::Mode(_) => {}
        }));
        found
    }

    /// Sets all parameters and buffers. What several fields share needs one of its names only.
    ///
    /// # Errors
    /// Lists every name that is missing, unknown (with the nearest known one), or of another shape or dtype. The
    /// module is unchanged then.
    fn load_state(&self, state: Vec<(String, Tensor)>) -> Result<(), StateError> {
        state::load(&mut |visitor| self.visit(visitor), state)
    }

    /// The gradients of a scalar loss by the parameters that it depends on.
    ///
    /// # Panics
    /// When the loss is not one floating-point number, or its history is gone.
    #[track_caller]
    fn gradients(&self, loss: &Tensor) -> Gradients {
        let known: Vec<(Parameter, Tensor)> = self
            .parameters()
            .into_iter()
            .filter(Parameter::requires_grad)
            .filter_map(|p| p.current().map(|value| (p, value)))
            .collect();
        let values: Vec<&Tensor> = known.iter().map(|(_, value)| value).collect();
        let found = tensor::gradients(&[loss], None, &values, false);
        known.iter().zip(found).filter_map(|((p, _), g)| Some((p.clone(), g?))).collect()
    }
}

fn set_training<M: Module + ?Sized>(module: &M, training: bool) {
    module.visit(&mut Visitor::new(&mut |_, leaf| {
        if let Leaf::Mode(mode) = leaf {
            mode.set(training);
        }
    }));
}
