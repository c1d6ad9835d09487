//! Plans: how a model is spread over a mesh, in a few words.

use super::{Mesh, MeshError, Placement, Rule};
use crate::Device;
use crate::nn::{Leaf, Module, Parameter, Visitor, nearest};
use crate::tensor::{Lying, evaluate};
use meshwork_graph::canonical::{Blocking, Blocks};
use meshwork_graph::mesh::Placements;
use rustc_hash::FxHashSet;
use std::fmt;
use std::str::FromStr;

/// How a model is trained on several devices.
///
/// As text `data=2,tensor=2,zero=1`. The axes of the mesh are `data` (the batch is split), `sequence` (positions of tokens
/// are split, as [`Tensor::batch_on`](crate::Tensor::batch_on) does, and what is placed so in code), `tensor` (parameters are split, as
/// [`Plan::places`] says), and `accumulate`, along which the parts of a batch are computed one after the other by one
/// device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Ranks that have parts of the batch; `None` for all devices that the other axes leave.
    pub data: Option<usize>,
    /// Ranks that have parts of the sequence.
    pub sequence: usize,
    /// Ranks that have parts of the parameters named in `places`.
    pub tensor: usize,
    /// What is split over the data axis.
    pub zero: Zero,
    /// Microbatches of a step.
    pub accumulate: usize,
    /// Placements of parameters by their names. The first that matches counts.
    pub places: Vec<Rule>,
}

/// Which state of the training is split over the data axis instead of replicated (Rajbhandari et al., 2020).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Zero {
    /// Nothing: plain data parallelism.
    #[default]
    Nothing,
    /// What the optimizer keeps.
    OptimizerState,
    /// And the gradients. As gradients are merged where they are needed, one step moves and keeps the same as with the
    /// optimizer's state alone.
    Gradients,
    /// And the parameters, which are gathered before they are used.
    Parameters,
}

/// Why a plan cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A word of a plan that means nothing.
    #[error("{word:?} in the plan {plan:?}: {problem}")]
    Word {
        /// The plan.
        plan: String,
        /// The word.
        word: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A text that is no rule.
    #[error("the rule {rule:?}: {problem}")]
    Rule {
        /// The text.
        rule: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The axes do not fit the devices.
    #[error("the plan needs {needed} devices ({axes}), and there are {devices}: {hint}")]
    Devices {
        /// The axes of the plan.
        axes: String,
        /// Their product.
        needed: usize,
        /// Devices that there are.
        devices: usize,
        /// What to do.
        hint: String,
    },
    /// A pattern that matches no parameter.
    #[error("no parameter is called {pattern:?}{hint}")]
    NoParameter {
        /// The pattern.
        pattern: String,
        /// The nearest name.
        hint: String,
    },
    /// A placement that a parameter cannot have.
    #[error("{parameter} {shape:?} cannot be {placement} along {axis}: {problem}")]
    Placement {
        /// The name of the parameter.
        parameter: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The placement.
        placement: String,
        /// The axis.
        axis: String,
        /// What is wrong.
        problem: String,
    },
    /// No such mesh.
    #[error(transparent)]
    Mesh(#[from] MeshError),
}

impl Default for Plan {
    /// Data parallel over all devices.
    fn default() -> Self {
        Plan { data: None, sequence: 1, tensor: 1, zero: Zero::Nothing, accumulate: 1, places: Vec::new() }
    }
}

impl FromStr for Plan {
    type Err = PlanError;

    /// A plan such as `data=2,tensor=2,zero=1`.
    fn from_str(text: &str) -> Result<Plan, PlanError> {
        let mut plan = Plan::default();
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let wrong = |problem: String| PlanError::Word { plan: text.to_string(), word: word.to_string(), problem };
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            if !Plan::WORDS.contains(&key) {
                let hint = nearest(key, Plan::WORDS.into_iter())
                    .map_or(String::new(), |near| format!(" (did you mean {near}?)"));
                return Err(wrong(format!("known are {}{hint}", Plan::WORDS.join(", "))));
            }
            if seen.contains(&key) {
                return Err(wrong("it is there twice".to_string()));
            }
            seen.push(key);
            let number = value.parse::<usize>();
            let number = number.map_err(|_| wrong(format!("{key} needs a whole number, such as {key}=2")))?;
            if key == "zero" {
                plan.zero = Zero::stage(number).ok_or_else(|| wrong("zero is 0, 1, 2 or 3".to_string()))?;
                continue;
            }
            if number == 0 {
                return Err(wrong(format!("{key} is at least 1")));
            }
            match key {
                "data" => plan.data = Some(number),
                "tensor" => plan.tensor = number,
                "sequence" => plan.sequence = number,
                _ => plan.accumulate = number,
            }
        }
        Ok(plan)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> = self.data.iter().map(|n| format!("data={n}")).collect();
        let others = [("sequence", self.sequence), ("tensor", self.tensor), ("accumulate", self.accumulate)];
        words.extend(others.iter().filter(|(_, n)| *n > 1).map(|(name, n)| format!("{name}={n}")));
        words.push(format!("zero={}", self.zero as usize));
        f.write_str(&words.join(","))
    }
}

impl Zero {
    /// The stage of a number from 0 to 3.
    pub fn stage(number: usize) -> Option<Zero> {
        [Zero::Nothing, Zero::OptimizerState, Zero::Gradients, Zero::Parameters].get(number).copied()
    }
}

impl Plan {
    /// The words of a plan as text.
    pub const WORDS: [&'static str; 5] = ["data", "tensor", "zero", "sequence", "accumulate"];

    /// The devices that the axes need; as few as possible, if the size of `data` is left to them.
    pub fn devices(&self) -> usize {
        self.data.unwrap_or(1).saturating_mul(self.sequence).saturating_mul(self.tensor)
    }

    /// The mesh of this plan on these devices.
    ///
    /// # Errors
    /// When the axes do not fit the devices.
    pub fn mesh(&self, devices: &[Device]) -> Result<Mesh, PlanError> {
        let others = self.sequence.saturating_mul(self.tensor);
        let data = self.data.unwrap_or((devices.len() / others).max(1));
        let needed = data.saturating_mul(others);
        if needed != devices.len() {
            let axes = format!("data={data}, sequence={}, tensor={}", self.sequence, self.tensor);
            let hint = match needed {
                _ if self.data.is_none() => format!("{} is no multiple of {others}", devices.len()),
                _ => format!("choose axes whose product is {}, or {needed} devices", devices.len()),
            };
            return Err(PlanError::Devices { axes, needed, devices: devices.len(), hint });
        }
        let axes =
            [("data", data), ("sequence", self.sequence), ("tensor", self.tensor), ("accumulate", self.accumulate)];
        let used = axes.into_iter().filter(|(name, size)| *name == "data" || *size > 1);
        let ranks: Vec<Device> =
            devices.iter().flat_map(|device| std::iter::repeat_n(device.clone(), self.accumulate)).collect();
        Ok(Mesh::new(used, &ranks)?)
    }

    /// Spreads a model over a mesh as the plan says. Parameters and what an optimizer keeps for them stay as they lie,
    /// whatever is computed. Make the optimizer afterwards.
    ///
    /// # Errors
    /// When a pattern names no parameter, or an axis or dimension that does not exist. The model is unchanged then.
    pub fn apply<M: Module + ?Sized>(&self, model: &M, mesh: &Mesh) -> Result<(), PlanError> {
        let parameters = model.named_parameters();
        for rule in &self.places {
            if !parameters.iter().any(|(name, _)| rule.matches(name)) {
                let near = nearest(&rule.pattern, parameters.iter().map(|(name, _)| name.as_str()));
                let hint = near.map_or(String::new(), |near| format!(" (did you mean {near}?)"));
                return Err(PlanError::NoParameter { pattern: rule.pattern.clone(), hint });
            }
        }
        let lying: Vec<(Parameter, Lying)> = parameters
            .into_iter()
            .map(|(name, parameter)| Ok((parameter.clone(), self.lying(&name, &parameter, mesh)?)))
            .collect::<Result<_, PlanError>>()?;
        lying.into_iter().for_each(|(parameter, lying)| parameter.lie(Some(lying)));
        let whole: Placements = mesh.axes().iter().map(|_| Placement::Replicated).collect();
        let mut seen = FxHashSet::default();
        model.visit(&mut Visitor::new(&mut |_, leaf| {
            if let Leaf::Buffer(buffer) = leaf
                && seen.insert(buffer.address())
            {
                buffer.lie(Some(Lying { mesh: mesh.clone(), value: whole.clone(), state: whole.clone() }));
            }
        }));
        evaluate(None);
        Ok(())
    }

    /// How a parameter lies, and what is kept for it.
    fn lying(&self, name: &str, parameter: &Parameter, mesh: &Mesh) -> Result<Lying, PlanError> {
        let shape = parameter.shape();
        let mut value: Placements = mesh.axes().iter().map(|_| Placement::Replicated).collect();
        let rule = self.places.iter().find(|rule| rule.matches(name));
        for (axis, placement) in rule.into_iter().flat_map(|rule| &rule.placements) {
            let wrong = |problem: String| PlanError::Placement {
                parameter: name.to_string(),
                shape: shape.to_vec(),
                placement: placement.to_string(),
                axis: axis.clone(),
                problem,
            };
            let Some(at) = mesh.axis(axis) else {
                // An axis of size 1 is not in the mesh.
                if Rule::AXES.contains(&axis.as_str()) {
                    continue;
                }
                let names: Vec<&str> = mesh.axes().iter().map(|(name, _)| name.as_str()).collect();
                return Err(wrong(format!("the axes are {}", names.join(", "))));
            };
            value[at] = match *placement {
                Placement::Partial(_) => return Err(wrong("parts of sums come from computing alone".to_string())),
                Placement::Split { dim, .. } | Placement::Sharded { dim, .. } if dim >= shape.len() => {
                    return Err(wrong(format!("it has {} dimensions", shape.len())));
                }
                Placement::Split { dim, unit: 0 } => {
                    Placement::Split { dim, unit: unit_of(shape, dim, mesh.axes()[at].1) }
                }
                Placement::Sharded { dim, unit: 0 } => Placement::Sharded { dim, unit: 1 },
                given => given,
            };
        }
        let mut state = value.clone();
        if let Some(data) = mesh.axis("data")
            && value[data] == Placement::Replicated
            && let Some(dim) = widest(shape, &value, mesh.axes()[data].1)
        {
            if self.zero >= Zero::OptimizerState {
                state[data] = Placement::Split { dim, unit: 1 };
            }
            if self.zero >= Zero::Parameters {
                value[data] = Placement::Sharded { dim, unit: 1 };
            }
        }
        Ok(Lying { mesh: mesh.clone(), value, state })
    }
}

/// Where a dimension of a weight may be cut so that contractions over it are cut between their blocks, if that leaves a
/// block for every rank.
fn unit_of(shape: &[usize], dim: usize, parts: usize) -> usize {
    let inner = if dim == 1 { shape[2..].iter().product() } else { 1 };
    let unit = Blocks::contraction(Blocking::Features, shape[dim], inner).unit;
    if shape[dim].div_ceil(unit) >= parts { unit } else { 1 }
}

/// The dimension whose largest part is smallest when it is cut into `parts`, of those that nothing else cuts if there are
/// any.
fn widest(shape: &[usize], cut: &[Placement], parts: usize) -> Option<usize> {
    let is_cut = |dim: usize| cut.iter().any(|placement| placement.cut().is_some_and(|(other, _)| other == dim));
    let largest = |dim: usize| shape[dim].div_ceil(parts) as f64 / shape[dim] as f64;
    let dims = (0..shape.len()).filter(|&dim| shape[dim] > 1);
    dims.min_by(|&a, &b| (is_cut(a), largest(a)).partial_cmp(&(is_cut(b), largest(b))).expect("sizes are finite"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_a_few_words() {
        let plan: Plan = "data=2, tensor=3,zero=1,accumulate=4".parse().unwrap();
        let expected = Plan { data: Some(2), tensor: 3, zero: Zero::OptimizerState, accumulate: 4, ..Plan::default() };
        assert_eq!(plan, expected);
        assert_eq!(plan.to_string(), "data=2,tensor=3,accumulate=4,zero=1");
        assert_eq!("".parse(), Ok(Plan::default()));
    }

    #[test]
    fn words_that_mean_nothing_are_refused() {
        let said = |text: &str| text.parse::<Plan>().unwrap_err().to_string();
        assert_eq!(
            said("data=2,tenser=2"),
            "\"tenser=2\" in the plan \"data=2,tenser=2\": known are data, tensor, zero, sequence, accumulate (did you mean tensor?)"
        );
        assert_eq!(said("zero=4"), "\"zero=4\" in the plan \"zero=4\": zero is 0, 1, 2 or 3");
        assert_eq!(said("data=0"), "\"data=0\" in the plan \"data=0\": data is at least 1");
        assert_eq!(
            said("data=two"),
            "\"data=two\" in the plan \"data=two\": data needs a whole number, such as data=2"
        );
        assert_eq!(said("data"), "\"data\" in the plan \"data\": data needs a whole number, such as data=2");
        assert_eq!(said("data=2,data=2"), "\"data=2\" in the plan \"data=2,data=2\": it is there twice");
    }

    #[test]
    fn state_is_cut_where_it_is_most_even() {
        assert_eq!(widest(&[10, 128], &[], 8), Some(1));
        assert_eq!(widest(&[50, 20, 5, 5], &[], 8), Some(0));
        assert_eq!(widest(&[128, 128], &[Placement::Split { dim: 0, unit: 1 }], 2), Some(1));
        assert_eq!(widest(&[128], &[Placement::Split { dim: 0, unit: 1 }], 2), Some(0));
        assert_eq!(widest(&[], &[], 2), None);
        assert_eq!(widest(&[1, 1], &[], 2), None);
    }
}
