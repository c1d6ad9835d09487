//! Gradients accumulated by hand: several backward passes, then one step.

use crate::models::{Subject, batches, lenet, mlp, small};
use crate::run::{State, check, placed, some, spread, state};
use meshwork::mesh::Plan;
use meshwork::prelude::*;

/// Trains by steps of three microbatches.
fn train(subject: fn() -> Subject, plan: Option<(&Plan, usize)>) -> State {
    let subject = subject();
    let model = &*subject.model;
    let batches = batches(&subject, &[12, 12, 7]);
    let mesh = plan.map(|(plan, devices)| spread(model, plan, devices));
    model.init(5);
    let mut optimizer = optim::AdamW::new(model, optim::AdamWOptions { lr: 0.01, ..Default::default() });
    for _ in 0..4 {
        let mut gradients = Gradients::default();
        for batch in &batches {
            let (x, y) = placed(batch, &mesh);
            gradients.accumulate(model.gradients(&(model.forward(&x).cross_entropy(&y) / 3.0)));
        }
        optimizer.step(gradients);
    }
    state(model)
}

#[test]
fn gradients_of_microbatches_add_up_as_on_one_device() {
    for subject in [mlp, lenet, small] {
        check(subject, &some(), |plan| train(subject, plan));
    }
}
