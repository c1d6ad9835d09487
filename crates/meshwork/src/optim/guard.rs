//! Keeps numbers that are not finite out of the weights.

use super::{Gradients, Optimizer, StepCounts};
use crate::DType;
use crate::nn::{Buffer, Module};
use crate::tensor::{Tensor, evaluate, no_grad, random_step, set_random_step, stack, where_, with_default_device};
use meshwork_graph::mesh::Placement;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::fmt;

/// Stops a training before the first update by a loss or gradients that are not finite.
///
/// The check is part of the step's program: nobody waits for it. A step that fails it writes the old values of weights,
/// optimizer state and the model's buffers, and so does every step after it, until [`Guard::settle`] has told of the first.
/// Steps that pass have the bits that they have without a guard.
///
/// ```
/// use meshwork::optim::{Guard, Sgd, SgdOptions};
/// use meshwork::prelude::*;
///
/// let model = Linear::new(2, 1);
/// model.init(0);
/// let mut optimizer = Sgd::new(&model, SgdOptions::new(1e30));
/// let mut guard = Guard::new(&model);
/// let x = Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], &[2, 2]);
/// let stopped = (0..5).find_map(|_| {
///     guard.begin(&optimizer);
///     let loss = model.forward(&x).square().mean(..);
///     let gradients = model.gradients(&loss);
///     guard.examine(&loss, &gradients);
///     guard.step(&mut optimizer, gradients);
///     guard.settle(&mut optimizer).err()
/// });
/// assert_eq!(stopped.unwrap().step, 2);
/// assert!(model.forward(&x).to_vec::<f32>().iter().all(|y| y.is_finite()));
/// ```
pub struct Guard {
    /// Of parameters, by their addresses.
    names: FxHashMap<usize, String>,
    /// The model's buffers, and their values before the forward pass.
    buffers: Vec<Buffer>,
    before: Vec<Tensor>,
    /// Those of the optimizer then.
    counts: Option<StepCounts>,
    /// Whether everything has been finite so far, bool `[]`, and whether it had been before the last step. Both are held, so
    /// that the first step is the same program as all others.
    fine: Tensor,
    fine_before: Tensor,
    examined: Option<Examined>,
    waiting: VecDeque<Waiting>,
}

/// What a step is judged by.
struct Examined {
    /// The loss, `[]`.
    loss: Tensor,
    /// The sum of squares of each gradient, `[P]`, and the addresses of their parameters.
    squares: Option<Tensor>,
    parameters: Vec<usize>,
}

/// A step that has been handed over.
struct Waiting {
    fine: Tensor,
    examined: Examined,
    lr: f64,
    counts: StepCounts,
    random_step: u64,
}

/// A step whose loss or gradients are not finite. It was not done.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFinite {
    /// The number of the step that failed, from 1.
    pub step: u64,
    /// Its learning rate.
    pub lr: f64,
    /// Its loss.
    pub loss: f64,
    /// The parameters whose gradients' sum of squares is not finite, by name.
    pub parameters: Vec<String>,
    /// The number of parameters that have a gradient.
    pub of: usize,
}

impl std::error::Error for NonFinite {}

impl fmt::Display for NonFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMED: usize = 4;
        let NonFinite { step, lr, loss, parameters, of } = self;
        write!(f, "step {step}, learning rate {lr:?}: the loss is {loss}")?;
        if !parameters.is_empty() {
            let link = if loss.is_finite() { "but" } else { "and" };
            let names: Vec<&str> = parameters.iter().take(NAMED).map(String::as_str).collect();
            let (count, names) = (parameters.len(), names.join(", "));
            let more = if count > NAMED { format!(" and {} more", count - NAMED) } else { String::new() };
            write!(f, ", {link} {count} of {of} gradients are not finite, or too large to be squared: {names}{more}")?;
        }
        f.write_str(
            "; weights and optimizer are as before the step. Try a smaller learning rate, warm-up or a smaller largest \
             gradient norm, or look for such numbers in the data",
        )
    }
}

impl Guard {
    /// A guard of a training of this model. Make it when the model is where it is trained.
    pub fn new<M: Module + ?Sized>(model: &M) -> Guard {
        let parameters = model.named_parameters();
        let fine = yes(parameters.first().map(|(_, parameter)| parameter.value()).as_ref());
        Guard {
            names: parameters.into_iter().map(|(name, parameter)| (parameter.address(), name)).collect(),
            buffers: model.named_buffers().into_iter().map(|(_, buffer)| buffer).collect(),
            before: Vec::new(),
            counts: None,
            fine_before: fine.clone(),
            fine,
            examined: None,
            waiting: VecDeque::new(),
        }
    }

    /// Remembers the model's buffers, such as running means, which the forward pass changes, and the optimizer's learning
    /// rate: call it before either changes. Without it a step that fails leaves its marks in them.
    pub fn begin(&mut self, optimizer: &dyn Optimizer) {
        self.counts = Some(optimizer.counts());
        self.before = self.buffers.iter().map(Buffer::value).collect();
    }

    /// Looks at the loss and the gradients of the next step, before anything is done to them (clipping would spread one
    /// parameter's NaN to all).
    ///
    /// # Panics
    /// When the loss is not one number.
    #[track_caller]
    pub fn examine(&mut self, loss: &Tensor, gradients: &Gradients) {
        assert!(loss.numel() == 1, "a loss is one number, not {:?}", loss.shape());
        no_grad(|| {
            let is_finite = |x: &Tensor| x.abs().lt(f64::INFINITY);
            let loss = loss.reshape(&[]);
            let squares: Vec<Tensor> = gradients.squares().iter().map(|x| x.brought_beside(&loss)).collect();
            let squares = (!squares.is_empty()).then(|| stack(&squares.iter().collect::<Vec<_>>(), 0));
            let mut fine = self.fine.brought_beside(&loss).logical_and(&is_finite(&loss));
            if let Some(squares) = &squares {
                fine = fine.logical_and(&is_finite(&squares.amax(..)));
            }
            if let Some(mesh) = fine.mesh() {
                fine = fine.place(&mesh, &vec![Placement::Replicated; mesh.axes().len()]);
            }
            let parameters = gradients.iter().map(|(parameter, _)| parameter.address()).collect();
            self.fine_before = std::mem::replace(&mut self.fine, fine.into_leaf(false));
            self.examined = Some(Examined { loss: loss.into_leaf(false), squares, parameters });
        });
    }

    /// [`Optimizer::step`] if what was examined, and every step so far, is finite. Hands the step over and waits for
    /// nothing.
    ///
    /// # Panics
    /// When nothing was examined for the step.
    #[track_caller]
    pub fn step(&mut self, optimizer: &mut dyn Optimizer, gradients: Gradients) {
        let examined = self.examined.take().expect("the loss and gradients of a step are examined before it is done");
        no_grad(|| {
            for (buffer, old) in self.buffers.iter().zip(self.before.drain(..)) {
                let new = buffer.value();
                if !new.is(&old) {
                    buffer.set(where_(&self.fine.brought_beside(&old), &new, &old));
                }
            }
        });
        let counts = self.counts.take().unwrap_or_else(|| optimizer.counts());
        let (lr, random_step) = (optimizer.lr(), random_step());
        self.waiting.push_back(Waiting { fine: self.fine.clone(), examined, lr, counts, random_step });
        optimizer.step_where(&self.fine, gradients);
    }

    /// Waits for the earliest step that has not been asked about. If it failed, the optimizer counts neither it nor the
    /// steps that were handed over since, and the training can go on from there, with other settings.
    ///
    /// # Errors
    /// What was not finite.
    pub fn settle(&mut self, optimizer: &mut dyn Optimizer) -> Result<(), NonFinite> {
        let Some(Waiting { fine, examined, lr, counts, random_step }) = self.waiting.pop_front() else { return Ok(()) };
        if fine.to_bytes() != [0] {
            return Ok(());
        }
        self.waiting.clear();
        self.examined = None;
        self.fine = yes(Some(&self.fine));
        self.fine_before = self.fine.clone();
        let step = counts.steps + 1;
        optimizer.set_counts(counts);
        set_random_step(random_step);
        let Examined { loss, squares, parameters } = examined;
        let squares = squares.map_or_else(Vec::new, |squares| squares.to_f64());
        let bad = parameters.iter().zip(squares).filter(|(_, square)| !square.is_finite());
        let name = |parameter: &usize| self.names.get(parameter).map_or("a parameter of another model", String::as_str);
        let names = bad.map(|(parameter, _)| name(parameter).to_string()).collect();
        Err(NonFinite { step, lr, loss: loss.item(), parameters: names, of: parameters.len() })
    }
}

/// True, there at once where another value is.
fn yes(beside: Option<&Tensor>) -> Tensor {
    let yes = || Tensor::from_bytes(&[1], DType::Bool, &[]);
    let Some(other) = beside else { return yes() };
    let placed = match other.mesh() {
        Some(mesh) => no_grad(|| yes().place(&mesh, &vec![Placement::Replicated; mesh.axes().len()])),
        None => with_default_device(&other.device(), yes),
    };
    let placed = placed.into_leaf(false);
    evaluate(None);
    placed
}
