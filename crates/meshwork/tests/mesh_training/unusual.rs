//! What programs may do with a model on a mesh besides training it step by step.

use crate::models::{Subject, batches, convolutions, deep, lenet, small};
use crate::run::{State, alone, placed, same, spread, state};
use meshwork::mesh::Plan;
use meshwork::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Bytes in use on each device.
fn allocated() -> Vec<usize> {
    meshwork::synchronize();
    Device::cpus().unwrap().iter().map(|device| device.memory().allocated).collect()
}

fn plan_of(subject: &Subject, plan: &str) -> Plan {
    Plan { places: subject.places.clone(), ..plan.parse().unwrap() }
}

fn adam(model: &dyn Layer) -> optim::AdamW {
    optim::AdamW::new(model, optim::AdamWOptions { lr: 0.01, ..Default::default() })
}

/// Parameters that are gathered go again when nothing but the loss is computed.
#[test]
fn a_loss_without_gradients_leaves_no_gathered_parameters() {
    let _only = alone();
    meshwork::set_cpu_devices(4).unwrap();
    let before = allocated();
    for subject in [deep, lenet, small, convolutions] {
        let losses = |plan: Option<&str>| -> Vec<Vec<u8>> {
            let subject = subject();
            let model = &*subject.model;
            let data = batches(&subject, &[22, 5]);
            let mesh = plan.map(|plan| {
                let plan = plan_of(&subject, plan);
                spread(model, &plan, plan.devices())
            });
            model.init(3);
            let kept = allocated();
            let loss = |batch: &(Tensor, Tensor)| {
                let (x, y) = placed(batch, &mesh);
                let loss = model.forward(&x).cross_entropy(&y);
                loss.to_bytes()
            };
            let mut losses: Vec<Vec<u8>> = Vec::new();
            model.eval();
            losses.extend(data.iter().map(loss));
            assert_eq!(allocated(), kept, "{plan:?}");
            losses.extend(data.iter().map(|batch| no_grad(|| loss(batch))));
            assert_eq!(allocated(), kept, "{plan:?}");
            model.train();
            losses.extend(data.iter().map(|batch| no_grad(|| loss(batch))));
            losses
        };
        let expected = losses(None);
        for plan in ["data=2,zero=3", "data=3,zero=3,accumulate=2", "data=2,tensor=2,zero=3", "data=4,zero=3"] {
            assert!(losses(Some(plan)) == expected, "{} with {plan}", subject().name);
        }
    }
    assert_eq!(allocated(), before);
}

/// Trains two models, whose gradients are computed in one evaluation or one after the other.
fn two(plans: Option<[&str; 2]>, together: bool) -> State {
    let subjects = [lenet(), deep()];
    let meshes: Vec<_> = subjects
        .iter()
        .enumerate()
        .map(|(i, subject)| {
            let plan = plan_of(subject, plans?[i]);
            Some(spread(&*subject.model, &plan, plan.devices()))
        })
        .collect();
    subjects.iter().for_each(|subject| subject.model.init(4));
    let mut optimizers: Vec<_> = subjects.iter().map(|subject| adam(&*subject.model)).collect();
    let data: Vec<_> = subjects.iter().map(|subject| batches(subject, &[22, 9])).collect();
    let mut seen = Vec::new();
    for step in 0..4 {
        let mut all = Vec::new();
        for ((subject, mesh), data) in subjects.iter().zip(&meshes).zip(&data) {
            let (x, y) = placed(&data[step % 2], mesh);
            let loss = subject.model.forward(&x).cross_entropy(&y);
            all.push(subject.model.gradients(&loss));
            if !together {
                seen.push(("loss".to_string(), loss.to_bytes()));
            }
        }
        for (optimizer, gradients) in optimizers.iter_mut().zip(all) {
            optimizer.step(gradients);
        }
    }
    seen.extend(subjects.iter().flat_map(|subject| state(&*subject.model)));
    seen
}

#[test]
fn two_models_on_two_meshes_in_one_program() {
    let _only = alone();
    meshwork::set_cpu_devices(6).unwrap();
    let before = allocated();
    for together in [true, false] {
        let expected = two(None, together);
        for plans in [
            ["data=2", "data=2,zero=3"],
            ["data=3,zero=3", "data=2,tensor=2,zero=3"],
            ["data=2,tensor=2,zero=1", "data=6,zero=3"],
            ["data=2,accumulate=2,zero=3", "data=3,accumulate=3,zero=3"],
        ] {
            same(&two(Some(plans), together), &expected, &format!("{plans:?}, {together}"));
        }
    }
    assert_eq!(allocated(), before);
}

/// A model whose first half is on one mesh and second half on another: the values go through one device.
#[test]
fn a_loss_over_two_meshes() {
    let _only = alone();
    meshwork::set_cpu_devices(6).unwrap();
    let before = allocated();
    let train = |plans: Option<[&str; 2]>| {
        let (first, second) = (Linear::new(70, 301), sequential![Linear::new(301, 301), Relu, Linear::new(301, 9)]);
        let meshes = plans.map(|plans| {
            let [a, b] = plans.map(|plan| plan.parse::<Plan>().unwrap());
            (spread(&first, &a, a.devices()), spread(&second, &b, b.devices()))
        });
        first.init(1);
        second.init(2);
        let (mut one, mut other) = (adam(&first), adam(&second));
        let mut seen = Vec::new();
        for step in 0..3 {
            manual_seed(step);
            let x = meshwork::tensor::randn(&[21, 70]);
            let y = Tensor::from_slice(&(0..21).map(|i| i % 9).collect::<Vec<i64>>(), &[21]);
            let loss = match &meshes {
                None => second.forward(&first.forward(&x).tanh()).cross_entropy(&y),
                Some((a, b)) => {
                    let hidden = first.forward(&x.batch_on(a)).tanh().to(&Device::cpu(5).unwrap());
                    second.forward(&hidden.batch_on(b)).cross_entropy(&y.batch_on(b))
                }
            };
            let (a, b) = (first.gradients(&loss), second.gradients(&loss));
            one.step(a);
            other.step(b);
            seen.push(("loss".into(), loss.to_bytes()));
        }
        seen.extend(state(&first));
        seen.extend(state(&second));
        seen
    };
    let expected = train(None);
    for plans in
        [["data=2", "data=3"], ["data=2,zero=3", "data=3,zero=3"], ["data=4,zero=3,accumulate=2", "data=2,zero=1"]]
    {
        same(&train(Some(plans)), &expected, &format!("{plans:?}"));
    }
    assert_eq!(allocated(), before);
}

#[test]
fn devices_that_go_away_under_a_model_are_named_and_leave_nothing() {
    let _only = alone();
    for (plan, at) in [("data=4,zero=3", 0), ("data=2,tensor=2,zero=1", 1), ("data=4", 2)] {
        meshwork::set_cpu_devices(4).unwrap();
        let subject = deep();
        let model = &*subject.model;
        let plan = plan_of(&subject, plan);
        let mesh = spread(model, &plan, 4);
        model.init(3);
        let mut optimizer = adam(model);
        let data = batches(&subject, &[22]);
        let (x, y) = (data[0].0.batch_on(&mesh), data[0].1.batch_on(&mesh));
        let step = |optimizer: &mut optim::AdamW| {
            let loss = model.forward(&x).cross_entropy(&y);
            optimizer.step(model.gradients(&loss));
            loss
        };
        step(&mut optimizer);
        let expected = state(model);
        let pending = (at == 1).then(|| model.forward(&x).cross_entropy(&y));
        meshwork::set_cpu_devices(2).unwrap();
        let said = catch_unwind(AssertUnwindSafe(|| step(&mut optimizer))).expect_err("a panic");
        let said = said.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(said.contains("has gone away"), "{said}");
        if let Some(loss) = pending {
            assert!(loss.item().is_finite());
        }
        same(&state(model), &expected, "what was computed can be read");
    }
    meshwork::set_cpu_devices(2).unwrap();
    assert_eq!(allocated(), [0, 0]);
}
