//! A step that is not finite, on a mesh: all ranks keep everything as it was before, and healthy steps keep their bits.

use crate::models::{Subject, batches, convolutions, gpt, small};
use crate::run::{Layout, State, alone, placed, some, spread, state};
use meshwork::mesh::Plan;
use meshwork::optim::{Guard, NonFinite};
use meshwork::prelude::*;

/// What a training comes to: weights and buffers, and what the optimizer keeps.
type Everything = (State, State, Vec<(String, u64)>);

/// Three steps, one with a loss that is not finite and one behind it.
fn train(
    subject: fn() -> Subject,
    plan: Option<(&Plan, usize)>,
    bad: f64,
    guarded: bool,
) -> (Everything, Option<NonFinite>) {
    let subject = subject();
    let model = &*subject.model;
    let batches = batches(&subject, &[22, 7]);
    let mesh = plan.map(|(plan, devices)| spread(model, plan, devices));
    model.init(3);
    let mut optimizer = optim::AdamW::new(model, optim::AdamWOptions { lr: 0.01, ..Default::default() });
    let mut guard = Guard::new(model);
    let steps: &[f64] = if guarded { &[1.0, 1.0, 1.0, bad, 1.0] } else { &[1.0; 3] };
    for (step, &factor) in steps.iter().enumerate() {
        let (x, y) = placed(&batches[step % batches.len()], &mesh);
        guard.begin(&optimizer);
        let loss = meshwork::train::loss(&model.forward(&x), &y) * factor;
        let mut gradients = model.gradients(&loss);
        if guarded {
            guard.examine(&loss, &gradients);
        }
        gradients.clip_by_global_norm(0.7);
        match guarded {
            true => guard.step(&mut optimizer, gradients),
            false => optimizer.step(gradients),
        }
    }
    let found = (0..steps.len()).find_map(|_| guard.settle(&mut optimizer).err());
    let kept = optimizer.state();
    let kept_bytes = kept.tensors.iter().map(|(name, value)| (name.clone(), value.to_bytes())).collect();
    ((state(model), kept_bytes, kept.counts), found)
}

#[test]
fn a_bad_step_changes_nothing_on_any_mesh() {
    let _only = alone();
    for subject in [small, convolutions, gpt] {
        meshwork::set_cpu_devices(1).unwrap();
        meshwork::set_num_threads(1).unwrap();
        let (expected, nothing) = train(subject, None, 1.0, false);
        assert_eq!(nothing, None);
        let (got, on_one) = train(subject, None, f64::NAN, true);
        assert!(got == expected, "{} on one device", subject().name);
        let on_one = on_one.expect("the fourth step is bad");
        meshwork::set_cpu_devices(8).unwrap();
        for layout in some().into_iter().chain([Layout::of("data=2,zero=2,accumulate=2")]) {
            let plan = Plan { places: subject().places, ..layout.plan.clone() };
            let (got, found) = train(subject, Some((&plan, layout.devices())), f64::NAN, true);
            assert!(got == expected, "{} with {plan}", subject().name);
            let found = found.expect("the fourth step is bad on the mesh, too");
            assert_eq!((found.step, found.lr, found.of), (4, 0.01, on_one.of));
            assert!(found.loss.is_nan() && found.parameters == on_one.parameters, "{plan}: {found}");
        }
    }
}
