//! Gradients accumulated by hand: several backward passes, then one step.

use crate::models::{Subject, batches, lenet, mlp, small};
use crate::run::{State, alone, same, some, spread, state};
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
        for (x, y) in &batches {
            let (x, y) = match &mesh {
                Some(mesh) => (x.batch_on(mesh), y.batch_on(mesh)),
                None => (x.clone(), y.clone()),
            };
            gradients.accumulate(model.gradients(&(model.forward(&x).cross_entropy(&y) / 3.0)));
        }
        optimizer.step(gradients);
    }
    state(model)
}

#[test]
fn gradients_of_microbatches_add_up_as_on_one_device() {
    let _only = alone();
    for subject in [mlp, lenet, small] {
        meshwork::set_cpu_devices(1).unwrap();
        meshwork::set_num_threads(1).unwrap();
        let expected = train(subject, None);
        meshwork::set_cpu_devices(8).unwrap();
        for layout in some() {
            let plan = Plan { places: subject().places, ..layout.plan.clone() };
            let got = train(subject, Some((&plan, layout.devices())));
            same(&got, &expected, &format!("{} with {plan}", subject().name));
        }
    }
}
