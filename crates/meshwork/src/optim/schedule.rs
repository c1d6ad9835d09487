//! Learning rates as functions of the step. They decide bits, so cosines and powers come from `libm`, the same on
//! every platform.

use std::f64::consts::PI;

/// A learning rate for every step. Closed formulas: a run that is resumed needs nothing but its step.
pub trait Schedule {
    /// The rate of step 0, 1, 2, …
    fn lr(&self, step: u64) -> f64;
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr(&self, step: u64) -> f64 {
        (**self).lr(step)
    }
}

/// Always the same.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Constant {
    /// The rate.
    pub lr: f64,
}

impl Schedule for Constant {
    fn lr(&self, _: u64) -> f64 {
        self.lr
    }
}

/// Multiplied by `gamma` every `step_size` steps: PyTorch's `StepLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The rate at the start.
    pub lr: f64,
    /// Steps between two changes, at least 1.
    pub step_size: u64,
    /// Factor of a change.
    pub gamma: f64,
}

impl Schedule for Step {
    fn lr(&self, step: u64) -> f64 {
        self.lr * libm::pow(self.gamma, (step / self.step_size.max(1)) as f64)
    }
}

/// Half a cosine from `lr` to `eta_min` in `period` steps, and back again (Loshchilov and Hutter, 2017): PyTorch's
/// `CosineAnnealingLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cosine {
    /// The rate at the start.
    pub lr: f64,
    /// Steps to the lowest rate (`T_max`).
    pub period: u64,
    /// The lowest rate.
    pub eta_min: f64,
}

impl Schedule for Cosine {
    fn lr(&self, step: u64) -> f64 {
        let progress = step as f64 / self.period.max(1) as f64;
        self.eta_min + (self.lr - self.eta_min) * (1.0 + libm::cos(PI * progress)) / 2.0
    }
}

/// A straight line from `lr · start_factor` to `lr · end_factor` in `total_steps`, then constant: PyTorch's
/// `LinearLR`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    /// The rate that the factors multiply.
    pub lr: f64,
    /// Factor of step 0.
    pub start_factor: f64,
    /// Factor from step `total_steps` on.
    pub end_factor: f64,
    /// Steps of change.
    pub total_steps: u64,
}

impl Schedule for Linear {
    fn lr(&self, step: u64) -> f64 {
        let progress = if step >= self.total_steps { 1.0 } else { step as f64 / self.total_steps as f64 };
        self.lr * (self.start_factor + (self.end_factor - self.start_factor) * progress)
    }
}

/// A straight line from `start_factor` times the first rate of another schedule up to that rate, then the other
/// schedule from its step 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WarmUp<S> {
    /// Steps of the line.
    pub steps: u64,
    /// Factor of step 0.
    pub start_factor: f64,
    /// What follows.
    pub then: S,
}

impl<S: Schedule> Schedule for WarmUp<S> {
    fn lr(&self, step: u64) -> f64 {
        if step >= self.steps {
            return self.then.lr(step - self.steps);
        }
        let (start_factor, total_steps) = (self.start_factor, self.steps);
        Linear { lr: self.then.lr(0), start_factor, end_factor: 1.0, total_steps }.lr(step)
    }
}

/// From `max_lr / div_factor` up to `max_lr`, then far below the start (Smith and Topin, 2019): PyTorch's
/// `OneCycleLR` with two phases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OneCycle {
    /// The highest rate.
    pub max_lr: f64,
    /// Steps of the whole cycle.
    pub total_steps: u64,
    /// Part of the cycle in which the rate rises.
    pub pct_start: f64,
    /// `max_lr` over the rate at the start.
    pub div_factor: f64,
    /// The rate at the start over the rate at the end.
    pub final_div_factor: f64,
    /// Straight lines instead of halves of a cosine.
    pub linear: bool,
}

impl OneCycle {
    /// A cycle with PyTorch's defaults.
    pub fn new(max_lr: f64, total_steps: u64) -> OneCycle {
        let (pct_start, div_factor, final_div_factor) = (0.3, 25.0, 1e4);
        OneCycle { max_lr, total_steps, pct_start, div_factor, final_div_factor, linear: false }
    }
}

impl Schedule for OneCycle {
    fn lr(&self, step: u64) -> f64 {
        let start = self.max_lr / self.div_factor;
        let end = start / self.final_div_factor;
        let last = self.total_steps.max(1) as f64 - 1.0;
        let peak = self.pct_start * self.total_steps as f64 - 1.0;
        let step = (step as f64).min(last);
        let between = |from: f64, to: f64, progress: f64| match self.linear {
            true => from + (to - from) * progress,
            false => to + (from - to) / 2.0 * (1.0 + libm::cos(PI * progress)),
        };
        if step <= peak {
            between(start, self.max_lr, step / peak)
        } else {
            between(self.max_lr, end, (step - peak) / (last - peak))
        }
    }
}
