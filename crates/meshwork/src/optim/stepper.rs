//! The step that all optimizers share: a rule applied to groups of parameters.

use super::group::Member;
use super::{
    Ema, Gradients, Group, Named, Numbers, Optimizer, OptimizerState, OptimizerStateError, Rule, StepCounts, state,
};
use crate::nn::Parameter;
use crate::tensor::{Tensor, evaluate, no_grad, random_step, set_random_step, where_};
use rustc_hash::FxHashMap;

/// The name of averages in saved states.
const AVERAGE: &str = "ema";

/// An optimizer: a rule, and the parameters that it is applied to.
pub struct Stepper<R: Rule> {
    groups: Vec<Group<R>>,
    steps: u64,
    ema: Option<Ema>,
}

impl<R: Rule> Stepper<R> {
    /// All parameters of a module (`&model`), or a list of named ones, with the same options.
    ///
    /// # Panics
    /// When the options make no sense.
    #[track_caller]
    pub fn new(parameters: impl Into<Named>, options: R) -> Self {
        Self::with_groups(vec![Group::new(parameters, options)])
    }

    /// Groups of parameters with their own options.
    ///
    /// # Panics
    /// When there is no group, or a parameter or a name is in two places.
    #[track_caller]
    pub fn with_groups(groups: Vec<Group<R>>) -> Self {
        assert!(!groups.is_empty(), "an optimizer needs at least one group of parameters");
        let mut names: FxHashMap<&str, ()> = FxHashMap::default();
        let mut parameters: FxHashMap<usize, &str> = FxHashMap::default();
        for member in groups.iter().flat_map(|g| &g.members) {
            let name = member.name.as_str();
            assert!(names.insert(name, ()).is_none(), "two parameters are called {name}");
            if let Some(other) = parameters.insert(member.parameter.address(), name) {
                panic!("{other} and {name} are the same parameter: it can be in one group only, once");
            }
        }
        // Initial values are computed now, so that the first step is the same program as all others.
        let held: Vec<_> = groups.iter().flat_map(|g| &g.members).map(|m| (m.parameter.value(), &m.slots)).collect();
        evaluate(None);
        drop(held);
        Stepper { groups, steps: 0, ema: None }
    }

    /// The groups.
    pub fn groups(&self) -> &[Group<R>] {
        &self.groups
    }

    /// The groups, to change their options. Options that decide what is kept for a parameter must stay.
    pub fn groups_mut(&mut self) -> &mut [Group<R>] {
        &mut self.groups
    }

    fn advance(&mut self, condition: Option<&Tensor>, gradients: Gradients) {
        let decay = self.ema.map(|ema| ema.decay_after(self.steps));
        no_grad(|| {
            for group in &mut self.groups {
                group.update(condition, &gradients);
                decay.into_iter().for_each(|decay| group.average(condition, decay));
            }
        });
        drop(gradients);
        self.steps += 1;
        // Any optimizer's step is a step of the thread: no dropout mask comes twice.
        set_random_step(random_step() + 1);
        evaluate(None);
    }
}

impl<R: Rule> Group<R> {
    /// Records the updates of one step, which keep the old values where the condition does not hold.
    fn update(&mut self, condition: Option<&Tensor>, gradients: &Gradients) {
        let mut numbers = Numbers::new();
        for Member { parameter, steps, slots, .. } in &mut self.members {
            let Some(gradient) = gradients.get(parameter) else { continue };
            let gradient = gradient.to_dtype(parameter.dtype());
            *steps += 1;
            let numbers = numbers.of(*steps, parameter.dtype());
            let value = parameter.value();
            let before = condition.map(|condition| (condition.brought_beside(&value), slots.clone()));
            let mut updated = self.options.update(numbers, &value, &gradient, slots);
            if let Some((condition, before)) = before {
                let chosen = |new: &Tensor, old: &Tensor| where_(&condition, new, old);
                updated = chosen(&updated, &value);
                slots.iter_mut().zip(&before).for_each(|(new, old)| *new = chosen(new, old));
            }
            parameter.set(updated);
            slots.iter_mut().for_each(|slot| *slot = parameter.state_beside(slot.clone()));
        }
    }
}

impl<R: Rule> Group<R> {
    /// Records the averages with the updated weights.
    fn average(&mut self, condition: Option<&Tensor>, decay: f64) {
        let mut numbers = Numbers::new();
        for Member { parameter, average, .. } in &mut self.members {
            let (Some(before), value) = (average.take(), parameter.value()) else { continue };
            let numbers = numbers.of(0, parameter.dtype());
            let mut new = &before * numbers.get("decay", decay) + &value * numbers.get("1-decay", 1.0 - decay);
            if let Some(condition) = condition {
                new = where_(&condition.brought_beside(&value), &new, &before);
            }
            *average = Some(parameter.state_beside(new));
        }
    }
}

impl<R: Rule> Optimizer for Stepper<R> {
    fn step(&mut self, gradients: Gradients) {
        self.advance(None, gradients);
    }

    fn step_where(&mut self, condition: &Tensor, gradients: Gradients) {
        self.advance(Some(condition), gradients);
    }

    fn average(&mut self, ema: Ema) {
        ema.check();
        self.ema = Some(ema);
        for member in self.groups.iter_mut().flat_map(|g| &mut g.members) {
            let value = member.parameter.value();
            // Memory of its own: weights and averages are each updated in place.
            let copy = no_grad(|| member.parameter.state_beside(value.detach()));
            member.average.get_or_insert(copy.into_leaf(false));
        }
        evaluate(None);
    }

    fn averaged(&self) -> Option<Vec<(Parameter, Tensor)>> {
        let members = self.groups.iter().flat_map(|g| &g.members);
        self.ema.and_then(|_| members.map(|m| Some((m.parameter.clone(), m.average.clone()?))).collect())
    }

    fn lr(&self) -> f64 {
        self.groups[0].options.lr()
    }

    fn set_lr(&mut self, lr: f64) {
        let first = self.groups[0].base_lr;
        for group in &mut self.groups {
            let ratio = if group.base_lr == first { 1.0 } else { group.base_lr / first };
            group.options.set_lr(if ratio.is_finite() { lr * ratio } else { lr });
        }
    }

    fn steps(&self) -> u64 {
        self.steps
    }

    fn counts(&self) -> StepCounts {
        StepCounts {
            steps: self.steps,
            lrs: self.groups.iter().map(|g| g.options.lr()).collect(),
            of_parameters: self.groups.iter().flat_map(|g| &g.members).map(|m| m.steps).collect(),
        }
    }

    fn set_counts(&mut self, counts: StepCounts) {
        let StepCounts { steps, lrs, of_parameters } = counts;
        let members = self.groups.iter().map(|g| g.members.len()).sum::<usize>();
        let fits = lrs.len() == self.groups.len() && of_parameters.len() == members;
        assert!(fits, "the counts of {} parameters are not those of {members}", of_parameters.len());
        self.steps = steps;
        self.groups.iter_mut().zip(lrs).for_each(|(group, lr)| group.options.set_lr(lr));
        let members = self.groups.iter_mut().flat_map(|g| &mut g.members);
        members.zip(of_parameters).for_each(|(member, steps)| member.steps = steps);
    }

    fn state(&self) -> OptimizerState {
        let members = || self.groups.iter().flat_map(|g| g.members.iter().map(move |m| (g, m)));
        let tensors = members().flat_map(|(group, member)| {
            let slots = group.options.slots();
            let named = slots.into_iter().zip(&member.slots);
            let slots = named.map(|(slot, value)| (format!("{}.{}", slot.name, member.name), value));
            let average = member.average.iter().map(|average| (format!("{AVERAGE}.{}", member.name), average));
            slots.chain(average).map(|(name, value)| (name, value.clone().into_leaf(false))).collect::<Vec<_>>()
        });
        OptimizerState {
            kind: R::NAME.to_string(),
            steps: self.steps,
            lrs: self.groups.iter().map(|g| g.options.lr()).collect(),
            counts: members().map(|(_, m)| (m.name.clone(), m.steps)).collect(),
            tensors: tensors.collect(),
        }
    }

    fn load_state(&mut self, state: OptimizerState) -> Result<(), OptimizerStateError> {
        state::check(&self.state(), &state)?;
        let counts: FxHashMap<String, u64> = state.counts.into_iter().collect();
        let mut tensors: FxHashMap<_, _> = state.tensors.into_iter().collect();
        for (group, lr) in self.groups.iter_mut().zip(state.lrs) {
            group.options.set_lr(lr);
            let slots = group.options.slots();
            for member in &mut group.members {
                member.steps = counts[&member.name];
                for (slot, value) in slots.iter().zip(&mut member.slots) {
                    let saved = tensors.remove(&format!("{}.{}", slot.name, member.name));
                    let saved = saved.expect("the state was checked");
                    *value = member.parameter.bring_state(saved).into_leaf(false);
                }
                if let Some(average) = &mut member.average {
                    let saved = tensors.remove(&format!("{AVERAGE}.{}", member.name)).expect("the state was checked");
                    *average = member.parameter.bring_state(saved).into_leaf(false);
                }
            }
        }
        self.steps = state.steps;
        set_random_step(random_step().max(self.steps));
        Ok(())
    }
}
