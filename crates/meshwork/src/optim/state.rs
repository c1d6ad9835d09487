//! What is saved of an optimizer.

use crate::DType;
use crate::tensor::Tensor;
use std::collections::BTreeMap;

/// Everything that an optimizer's next steps depend on, besides the parameters and options.
#[derive(Clone, Debug)]
pub struct OptimizerState {
    /// Which optimizer: `sgd`, `adam`, …
    pub kind: String,
    /// Steps done.
    pub steps: u64,
    /// The learning rate of every group.
    pub lrs: Vec<f64>,
    /// For every parameter the number of steps in which it had a gradient.
    pub counts: Vec<(String, u64)>,
    /// What is kept for every parameter, as `momentum.conv1.weight`.
    pub tensors: Vec<(String, Tensor)>,
}

/// How far an optimizer has come, without the tensors: what a step that comes to nothing is taken back by.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepCounts {
    /// Steps done.
    pub steps: u64,
    /// The learning rate of every group.
    pub lrs: Vec<f64>,
    /// For every parameter, group by group, the number of steps in which it had a gradient.
    pub of_parameters: Vec<u64>,
}

/// Why a saved state does not fit an optimizer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptimizerStateError {
    /// It is of another optimizer.
    #[error("the state is of the optimizer {found}, not of {expected}")]
    Kind {
        /// The optimizer that should take the state.
        expected: String,
        /// The one that the state is of.
        found: String,
    },
    /// It has another number of groups.
    #[error("the state has {found} groups of parameters, the optimizer {expected}")]
    Groups {
        /// Groups of the optimizer.
        expected: usize,
        /// Groups of the state.
        found: usize,
    },
    /// Names or types differ; each line says one difference.
    #[error("the state does not fit the optimizer; nothing was loaded{}", .0.iter().map(|l| format!("\n  {l}")).collect::<String>())]
    Entries(Vec<String>),
}

/// Compares a saved state with the one of the optimizer.
pub(crate) fn check(own: &OptimizerState, saved: &OptimizerState) -> Result<(), OptimizerStateError> {
    if own.kind != saved.kind {
        return Err(OptimizerStateError::Kind { expected: own.kind.clone(), found: saved.kind.clone() });
    }
    if own.lrs.len() != saved.lrs.len() {
        return Err(OptimizerStateError::Groups { expected: own.lrs.len(), found: saved.lrs.len() });
    }
    let mut lines = Vec::new();
    let describe = |t: &Tensor| (t.dtype(), t.shape().to_vec());
    let entries = |state: &OptimizerState| -> BTreeMap<String, (DType, Vec<usize>)> {
        let counts = state.counts.iter().map(|(name, _)| (format!("the step count of {name}"), (DType::I64, vec![])));
        let tensors = state.tensors.iter().map(|(name, t)| (name.clone(), describe(t)));
        counts.chain(tensors).collect()
    };
    let (expected, found) = (entries(own), entries(saved));
    for (name, (dtype, shape)) in &expected {
        match found.get(name) {
            None => lines.push(format!("missing: {name}")),
            Some((d, s)) if (d, s) != (dtype, shape) => {
                lines.push(format!("wrong: {name} is {d}{s:?} and must be {dtype}{shape:?}"));
            }
            Some(_) => {}
        }
    }
    lines.extend(found.keys().filter(|name| !expected.contains_key(*name)).map(|name| format!("unknown: {name}")));
    if lines.is_empty() { Ok(()) } else { Err(OptimizerStateError::Entries(lines)) }
}
