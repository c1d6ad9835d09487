use super::check::twice;
use crate::common::numbers::Numbers;
use meshwork::Tensor;
use meshwork::tensor::{CrossEntropy, Reduction, bce_with_logits, mse_loss, nll_loss};

const REDUCTIONS: [Reduction; 3] = [Reduction::Mean, Reduction::Sum, Reduction::None];

fn input(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(-2.0, 2.0, shape)
}

#[test]
fn softmax() {
    for dim in [0, 1, -1] {
        twice("softmax", &[input(1, &[2, 3, 4])], |x| x[0].softmax(dim));
        twice("log_softmax", &[input(2, &[2, 3, 4])], |x| x[0].log_softmax(dim));
    }
}

#[test]
fn cross_entropy() {
    let weight = Numbers::new(3).f64s(0.3, 2.0, &[4]);
    let target = Tensor::from_slice(&[2i64, 0, -100, 3, 1], &[5]);
    for reduction in REDUCTIONS {
        for (weight, label_smoothing) in [(None, 0.0), (Some(&weight), 0.0), (None, 0.2), (Some(&weight), 0.2)] {
            let loss = CrossEntropy { weight, label_smoothing, reduction, ..CrossEntropy::default() };
            twice("cross_entropy", &[input(4, &[5, 4])], |x| loss.loss(&x[0], &target));
        }
    }
    let target = Tensor::from_slice(&[2i64, 0, 1, 3, 1, 1], &[3, 2]);
    twice("cross_entropy of positions", &[input(5, &[3, 4, 2])], |x| x[0].cross_entropy(&target));
    let loss = CrossEntropy { label_smoothing: 0.1, ..CrossEntropy::default() };
    let inputs = [input(6, &[3, 4]), Numbers::new(7).f64s(0.0, 1.0, &[3, 4])];
    twice("cross_entropy with probabilities", &inputs, |x| loss.loss(&x[0], &x[1]));
}

#[test]
fn negative_log_likelihood() {
    let target = Tensor::from_slice(&[2i64, 0, -100], &[3]);
    let weight = Numbers::new(8).f64s(0.3, 2.0, &[4]);
    for reduction in REDUCTIONS {
        twice("nll_loss", &[input(9, &[3, 4])], |x| nll_loss(&x[0].sin(), &target, Some(&weight), -100, reduction));
    }
}

#[test]
fn squared_error() {
    for reduction in REDUCTIONS {
        let inputs = [input(10, &[3, 4]), input(11, &[3, 4])];
        twice("mse_loss", &inputs, |x| mse_loss(&x[0], &x[1], reduction));
    }
}

#[test]
fn binary_cross_entropy() {
    let (weight, positive) = (Numbers::new(12).f64s(0.3, 2.0, &[4]), Numbers::new(13).f64s(0.3, 2.0, &[4]));
    let target = Numbers::new(14).f64s(0.0, 1.0, &[3, 4]);
    for reduction in REDUCTIONS {
        for (w, p) in [(None, None), (Some(&weight), None), (None, Some(&positive)), (Some(&weight), Some(&positive))] {
            twice("bce_with_logits", &[input(15, &[3, 4])], |x| bce_with_logits(&x[0], &target, w, p, reduction));
        }
    }
    // The logits of a classifier whose last layer starts at zero.
    let zeros = Tensor::from_slice(&[0.0f64; 12], &[3, 4]);
    twice("bce_with_logits at 0", &[zeros], |x| bce_with_logits(&x[0], &target, None, None, Reduction::Mean));
}
