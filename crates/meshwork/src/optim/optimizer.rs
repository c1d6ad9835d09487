//! What all optimizers can do.

use super::{Ema, Gradients, OptimizerState, OptimizerStateError, StepCounts};
use crate::Tensor;
use crate::nn::Parameter;

/// Updates parameters from gradients.
pub trait Optimizer {
    /// Updates the parameters that have a gradient, and hands the whole step (forward, gradients, update) over to
    /// the device as one program, without waiting for it.
    ///
    /// The gradients are consumed: nobody holds them when the step runs, so they need no memory of their own.
    fn step(&mut self, gradients: Gradients);

    /// As [`Optimizer::step`] where `condition`, a bool `[]`, holds. Where it does not, parameters and state keep their bits;
    /// that the step counts none the less can be taken back by [`Optimizer::set_counts`].
    fn step_where(&mut self, condition: &Tensor, gradients: Gradients);

    /// Averages the weights of further steps, from what they are now.
    ///
    /// # Panics
    /// When the decay makes no sense.
    #[track_caller]
    fn average(&mut self, ema: Ema);

    /// The averages of all parameters; none where weights are not averaged.
    fn averaged(&self) -> Option<Vec<(Parameter, Tensor)>>;

    /// The learning rate of the first group.
    fn lr(&self) -> f64;

    /// Sets the learning rate. Groups that were made with different rates keep their ratio to the first one.
    fn set_lr(&mut self, lr: f64);

    /// Steps done.
    fn steps(&self) -> u64;

    /// How far the optimizer has come.
    fn counts(&self) -> StepCounts;

    /// Goes back to counts of this optimizer.
    ///
    /// # Panics
    /// When they are of an optimizer with other parameters.
    fn set_counts(&mut self, counts: StepCounts);

    /// Everything that the next steps depend on besides the parameters.
    fn state(&self) -> OptimizerState;

    /// Continues from a state: further steps give the bits that the saved run would have given. Random sites
    /// continue at the state's step.
    ///
    /// # Errors
    /// When the state is of another kind of optimizer, or does not fit the parameters. Nothing is changed then.
    fn load_state(&mut self, state: OptimizerState) -> Result<(), OptimizerStateError>;
}

impl<O: Optimizer + ?Sized> Optimizer for Box<O> {
    fn step(&mut self, gradients: Gradients) {
        (**self).step(gradients);
    }

    fn step_where(&mut self, condition: &Tensor, gradients: Gradients) {
        (**self).step_where(condition, gradients);
    }

    #[track_caller]
    fn average(&mut self, ema: Ema) {
        (**self).average(ema);
    }

    fn averaged(&self) -> Option<Vec<(Parameter, Tensor)>> {
        (**self).averaged()
    }

    fn lr(&self) -> f64 {
        (**self).lr()
    }

    fn set_lr(&mut self, lr: f64) {
        (**self).set_lr(lr);
    }

    fn steps(&self) -> u64 {
        (**self).steps()
    }

    fn counts(&self) -> StepCounts {
        (**self).counts()
    }

    fn set_counts(&mut self, counts: StepCounts) {
        (**self).set_counts(counts);
    }

    fn state(&self) -> OptimizerState {
        (**self).state()
    }

    fn load_state(&mut self, state: OptimizerState) -> Result<(), OptimizerStateError> {
        (**self).load_state(state)
    }
}
