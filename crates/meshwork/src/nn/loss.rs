//! Losses as modules, for code that is handed one. Their functions are in [`crate::tensor`].

use super::Module;
use crate::tensor::{self, CrossEntropy, Reduction, Tensor};

/// Mean cross entropy of logits `[N, C, …]` and classes `[N, …]` or probabilities `[N, C, …]`.
#[derive(Clone, Debug, Default, Module)]
pub struct CrossEntropyLoss {
    /// A weight for each class, `[C]`.
    pub weight: Option<Tensor>,
    /// Targets of this class do not count; −100 if missing.
    pub ignore_index: Option<i64>,
    /// Part of the probability that is spread over all classes (Szegedy et al., 2016).
    pub label_smoothing: f64,
    /// How the losses of the samples become one.
    pub reduction: Reduction,
}

impl CrossEntropyLoss {
    /// The loss of logits against targets.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, target: &Tensor) -> Tensor {
        let options = CrossEntropy {
            weight: self.weight.as_ref(),
            ignore_index: self.ignore_index.unwrap_or(CrossEntropy::default().ignore_index),
            label_smoothing: self.label_smoothing,
            reduction: self.reduction,
        };
        options.loss(logits, target)
    }
}

/// Squared difference.
#[derive(Clone, Copy, Debug, Default, Module)]
pub struct MseLoss {
    /// How the losses of the elements become one.
    pub reduction: Reduction,
}

impl MseLoss {
    /// The loss of an input against a target of the same shape.
    #[track_caller]
    pub fn forward(&self, input: &Tensor, target: &Tensor) -> Tensor {
        tensor::mse_loss(input, target, self.reduction)
    }
}

/// Binary cross entropy of logits.
#[derive(Clone, Debug, Default, Module)]
pub struct BceWithLogitsLoss {
    /// Scales elements; broadcast.
    pub weight: Option<Tensor>,
    /// Scales the positive class; broadcast.
    pub pos_weight: Option<Tensor>,
    /// How the losses of the elements become one.
    pub reduction: Reduction,
}

impl BceWithLogitsLoss {
    /// The loss of logits against targets in 0..=1 of the same shape.
    #[track_caller]
    pub fn forward(&self, logits: &Tensor, target: &Tensor) -> Tensor {
        let (weight, pos_weight) = (self.weight.as_ref(), self.pos_weight.as_ref());
        tensor::bce_with_logits(logits, target, weight, pos_weight, self.reduction)
    }
}
