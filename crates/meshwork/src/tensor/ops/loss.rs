//! Losses. All follow PyTorch's definitions; means are over the counts of the whole batch.

use super::where_;
use crate::tensor::{Tensor, policy};
use meshwork_graph::DType;
use meshwork_graph::ops::{BinaryOp, IndexSelect, Reshape};

/// How the losses of the elements become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reduction {
    /// Their mean (weighted, where there are class weights).
    #[default]
    Mean,
    /// Their sum.
    Sum,
    /// Not at all: one loss for each element.
    None,
}

impl Reduction {
    #[track_caller]
    fn apply(self, loss: Tensor) -> Tensor {
        match self {
            Reduction::Mean => loss.mean(..),
            Reduction::Sum => loss.sum(..),
            Reduction::None => loss,
        }
    }
}

/// Cross entropy between logits `[N, C]` or `[N, C, …]` and classes `[N]` or `[N, …]` (integers), or class
/// probabilities of the logits' shape.
#[derive(Clone, Debug)]
pub struct CrossEntropy<'a> {
    /// A weight for each class, `[C]`.
    pub weight: Option<&'a Tensor>,
    /// Targets of this class do not count.
    pub ignore_index: i64,
    /// Part of the probability that is spread over all classes (Szegedy et al., 2016).
    pub label_smoothing: f64,
    /// How the losses of the samples become one.
    pub reduction: Reduction,
}

impl Default for CrossEntropy<'_> {
    fn default() -> Self {
        CrossEntropy { weight: None, ignore_index: -100, label_smoothing: 0.0, reduction: Reduction::Mean }
    }
}

impl Tensor {
    /// The mean cross entropy of logits and classes; see [`CrossEntropy`] for more.
    #[track_caller]
    pub fn cross_entropy(&self, target: &Tensor) -> Tensor {
        CrossEntropy::default().loss(self, target)
    }
}

impl CrossEntropy<'_> {
    /// The loss of logits against a target.
    ///
    /// # Panics
    /// When the shapes do not fit, or label smoothing is not in 0..=1. A class that does not exist fails when the
    /// loss is read.
    #[track_caller]
    pub fn loss(&self, logits: &Tensor, target: &Tensor) -> Tensor {
        let smoothing = self.label_smoothing;
        assert!((0.0..=1.0).contains(&smoothing), "label smoothing is in 0..=1, not {smoothing}");
        assert!(logits.rank() >= 1, "cross_entropy: logits {} need a class dim", logits.ty());
        let [logits, target] = &policy!("cross_entropy").cast([logits, target]);
        let log_p = logits.log_softmax(class_dim(logits) as isize);
        if target.dtype().is_float() {
            return self.of_probabilities(&log_p, target);
        }
        let picked = Picked::new("cross_entropy", &log_p, target, self.weight, self.ignore_index);
        let nll = picked.reduce(&picked.nll, self.reduction);
        if smoothing == 0.0 {
            return nll;
        }
        let classes = log_p.shape()[class_dim(&log_p)] as f64;
        let weighted = match self.weight {
            Some(w) => log_p.binary(BinaryOp::Mul, &over_classes(w, &log_p)),
            None => log_p.clone(),
        };
        let all = -&weighted.sum(class_dim(&log_p) as isize);
        let all = where_(&picked.counts, &all, &all.zeros_like());
        let all = picked.reduce(&all, self.reduction);
        let (hard, soft) = (nll.constant_like(1.0 - smoothing), all.constant_like(smoothing / classes));
        nll.binary(BinaryOp::Mul, &hard).binary(BinaryOp::Add, &all.binary(BinaryOp::Mul, &soft))
    }

    #[track_caller]
    fn of_probabilities(&self, log_p: &Tensor, target: &Tensor) -> Tensor {
        assert!(
            log_p.shape() == target.shape(),
            "cross_entropy: target probabilities {} need the shape of the logits {}",
            target.ty(),
            log_p.ty()
        );
        let dim = class_dim(log_p);
        let classes = log_p.shape()[dim] as f64;
        let smooth = target.constant_like(self.label_smoothing / classes);
        let kept = target.constant_like(1.0 - self.label_smoothing);
        let target = match self.label_smoothing {
            0.0 => target.clone(),
            _ => target.binary(BinaryOp::Mul, &kept).binary(BinaryOp::Add, &smooth),
        };
        let mut terms = log_p.binary(BinaryOp::Mul, &target);
        if let Some(w) = self.weight {
            terms = terms.binary(BinaryOp::Mul, &over_classes(w, log_p));
        }
        let loss = -&terms.sum(dim as isize);
        self.reduction.apply(loss)
    }
}

fn class_dim(logits: &Tensor) -> usize {
    usize::from(logits.rank() > 1)
}

/// Weights `[C]` as they broadcast against `[N, C, …]`.
#[track_caller]
fn over_classes(weight: &Tensor, log_p: &Tensor) -> Tensor {
    let dim = class_dim(log_p);
    let classes = log_p.shape()[dim];
    assert!(weight.shape() == [classes], "class weights {} for {classes} classes", weight.ty());
    let shape = (0..log_p.rank()).map(|d| if d == dim { classes } else { 1 }).collect();
    Tensor::record(Reshape { shape }, &[weight])
}

/// What the targets pick of log-probabilities; everything has the shape of the target.
struct Picked {
    /// −weight · log p of the target class, 0 where ignored.
    nll: Tensor,
    /// The weight of the target class, 0 where ignored.
    weight: Tensor,
    /// Whether the target counts.
    counts: Tensor,
}

impl Picked {
    #[track_caller]
    fn new(name: &str, log_p: &Tensor, target: &Tensor, weight: Option<&Tensor>, ignore_index: i64) -> Picked {
        let dim = class_dim(log_p);
        let mut expected = log_p.shape().to_vec();
        expected.remove(dim);
        assert!(
            target.shape() == expected,
            "{name}: targets {} do not fit scores {} with the class in dim {dim}",
            target.ty(),
            log_p.ty()
        );
        let target = target.to_dtype(DType::I64);
        let counts = target.binary(BinaryOp::Ne, &target.constant_like(ignore_index as f64));
        // Ignored targets read class 0 and are masked; the kernels refuse any other class that does not exist.
        let class = where_(&counts, &target, &target.zeros_like());
        let counted = |values: Tensor| where_(&counts, &values, &values.zeros_like());
        let log_p_target = log_p.gather(dim as isize, &class.unsqueeze(dim as isize)).squeeze(dim as isize);
        let nll = -&counted(log_p_target);
        match weight {
            None => {
                let weight = counts.to_dtype(log_p.dtype());
                Picked { nll, weight, counts }
            }
            Some(w) => {
                let classes = log_p.shape()[dim];
                assert!(w.shape() == [classes], "class weights {} for {classes} classes", w.ty());
                let weight = counted(Tensor::record(IndexSelect::new(0), &[w, &class]));
                Picked { nll: nll.binary(BinaryOp::Mul, &weight), weight, counts }
            }
        }
    }

    #[track_caller]
    fn reduce(&self, loss: &Tensor, reduction: Reduction) -> Tensor {
        match reduction {
            Reduction::Mean => loss.sum(..).binary(BinaryOp::Div, &self.weight.sum(..)),
            Reduction::Sum => loss.sum(..),
            Reduction::None => loss.clone(),
        }
    }
}

/// Negative log-likelihood of log-probabilities `[N, C, …]` and classes `[N, …]`.
#[track_caller]
pub fn nll_loss(
    log_p: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    ignore_index: i64,
    reduction: Reduction,
) -> Tensor {
    let [log_p] = &policy!("nll_loss").cast([log_p]);
    let picked = Picked::new("nll_loss", log_p, target, weight, ignore_index);
    picked.reduce(&picked.nll, reduction)
}

/// Squared difference.
#[track_caller]
pub fn mse_loss(input: &Tensor, target: &Tensor, reduction: Reduction) -> Tensor {
    let [input, target] = policy!("mse_loss").cast([input, target]);
    reduction.apply(input.binary(BinaryOp::Sub, &target).square())
}

/// Binary cross entropy of logits, without overflow. `weight` scales elements, `pos_weight` the positive class;
/// both broadcast.
#[track_caller]
pub fn bce_with_logits(
    logits: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    pos_weight: Option<&Tensor>,
    reduction: Reduction,
) -> Tensor {
    // (1 − y)·x + (1 + (pos − 1)·y) · softplus(−x)
    let [logits, target] = &policy!("bce_with_logits").cast([logits, target]);
    let one = target.ones_like();
    let first = one.binary(BinaryOp::Sub, target).binary(BinaryOp::Mul, logits);
    let soft = (-logits).softplus();
    let soft = match pos_weight {
        Some(pos) => {
            let factor = pos.binary(BinaryOp::Sub, &pos.ones_like()).binary(BinaryOp::Mul, target);
            let factor = factor.binary(BinaryOp::Add, &factor.ones_like());
            soft.binary(BinaryOp::Mul, &factor)
        }
        None => soft,
    };
    let loss = first.binary(BinaryOp::Add, &soft);
    let loss = match weight {
        Some(w) => loss.binary(BinaryOp::Mul, w),
        None => loss,
    };
    reduction.apply(loss)
}
