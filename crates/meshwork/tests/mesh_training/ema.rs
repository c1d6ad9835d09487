//! Averaged weights on meshes: equal bits, and split as the optimizer's state.

use crate::models::{Subject, batches, gpt, small};
use crate::run::{State, check, placed, some, spread, state};
use meshwork::mesh::{Plan, Zero};
use meshwork::optim::{Ema, with_averaged};
use meshwork::prelude::*;

fn train(subject: fn() -> Subject, plan: Option<(&Plan, usize)>) -> State {
    let subject = subject();
    let model = &*subject.model;
    let batches = batches(&subject, &[22, 7]);
    let mesh = plan.map(|(plan, devices)| spread(model, plan, devices));
    model.init(3);
    let mut optimizer = optim::AdamW::new(model, optim::AdamWOptions { lr: 0.01, ..Default::default() });
    let bytes = |optimizer: &optim::AdamW| mesh.as_ref().map_or(0, |mesh| mesh.footprints(model, optimizer)[0].state);
    let before = bytes(&optimizer);
    optimizer.average(Ema { decay: 0.7, warmup: true });
    for step in 0..4 {
        let (x, y) = placed(&batches[step % batches.len()], &mesh);
        let loss = meshwork::train::loss(&model.forward(&x), &y);
        optimizer.step(model.gradients(&loss));
    }
    // AdamW keeps two values of each weight; the average lies as they do.
    if plan.is_some_and(|(plan, _)| plan.zero >= Zero::OptimizerState) {
        assert_eq!(bytes(&optimizer), before / 2 * 3);
    }
    let averaged = with_averaged(&optimizer, || state(model)).unwrap();
    assert!(averaged != state(model));
    state(model).into_iter().chain(averaged).collect()
}

#[test]
fn averages_are_the_same_on_every_mesh() {
    for subject in [small, gpt] {
        check(subject, &some(), |plan| train(subject, plan));
    }
}
