//! Every optimizer: what it keeps is split with the parameters, and norms are those of whole tensors.

use crate::models::{lenet, small};
use crate::run::{Recipe, some};
use meshwork::optim::*;
use meshwork::prelude::Layer;

fn check(optimizer: fn(&dyn Layer) -> Box<dyn Optimizer>) {
    for subject in [small, lenet] {
        Recipe { optimizer, ..Recipe::new(subject, 4) }.check(&some());
    }
}

#[test]
fn sgd_with_momentum() {
    check(|model| {
        let options = SgdOptions { momentum: 0.9, nesterov: true, weight_decay: 0.01, ..SgdOptions::new(0.05) };
        Box::new(Sgd::new(model, options))
    });
}

#[test]
fn adam_with_decay_as_a_gradient() {
    check(|model| Box::new(Adam::new(model, AdamOptions { lr: 0.01, weight_decay: 0.1, ..Default::default() })));
}

#[test]
fn rmsprop() {
    check(|model| {
        let options = RmsPropOptions { lr: 0.005, momentum: 0.5, centered: true, ..Default::default() };
        Box::new(RmsProp::new(model, options))
    });
}

#[test]
fn adagrad() {
    check(|model| Box::new(Adagrad::new(model, AdagradOptions { lr: 0.05, lr_decay: 0.1, ..Default::default() })));
}

#[test]
fn lars_takes_norms_of_whole_parameters() {
    check(|model| Box::new(Lars::new(model, LarsOptions { exclude_vectors: false, ..Default::default() })));
}

#[test]
fn lamb_takes_norms_of_whole_parameters() {
    check(|model| Box::new(Lamb::new(model, LambOptions { lr: 0.01, exclude_vectors: false, ..Default::default() })));
}

#[test]
fn gradients_clipped_by_their_global_norm() {
    for subject in [small, lenet] {
        let gradients = |gradients: &mut Gradients| drop(gradients.clip_by_global_norm(0.5));
        Recipe { gradients, ..Recipe::new(subject, 4) }.check(&some());
    }
}

#[test]
fn a_learning_rate_that_changes() {
    let before = |step: u64, optimizer: &mut dyn Optimizer| {
        optimizer.set_lr(
            WarmUp { steps: 3, start_factor: 0.1, then: Cosine { lr: 0.02, period: 9, eta_min: 0.0 } }.lr(step),
        );
    };
    Recipe { before, ..Recipe::new(small, 9) }.check(&some());
}
