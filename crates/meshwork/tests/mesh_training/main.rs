//! Training on a mesh gives the weights of training on one device, bit for bit.

mod models;

use meshwork::mesh::{Plan, Zero};
use meshwork::prelude::*;
use meshwork::tensor::manual_seed;
use models::{Subject, batches, lenet, mlp, small};
use std::sync::{Mutex, PoisonError};

/// Devices are those of the process: one training at a time.
static DEVICES: Mutex<()> = Mutex::new(());

/// The weights and buffers after some steps.
type State = Vec<(String, Vec<u8>)>;

fn train(make: fn() -> Subject, plan: Option<(&Plan, usize)>, steps: usize) -> State {
    let subject = make();
    let Subject { model, .. } = &subject;
    manual_seed(0);
    let batches = batches(&subject);
    let mesh = plan.map(|(plan, devices)| {
        let devices = &Device::cpus().unwrap()[..devices];
        let mesh = plan.mesh(devices).unwrap();
        plan.apply(&**model, &mesh).unwrap();
        mesh
    });
    model.init(3);
    let mut optimizer = optim::AdamW::new(&**model, optim::AdamWOptions { lr: 0.01, ..Default::default() });
    for step in 0..steps {
        let (x, y) = &batches[step % batches.len()];
        let (x, y) = match &mesh {
            Some(mesh) => (x.batch_on(mesh), y.batch_on(mesh)),
            None => (x.clone(), y.clone()),
        };
        let loss = model.forward(&x).cross_entropy(&y);
        let gradients = model.gradients(&loss);
        optimizer.step(gradients);
    }
    model.state().into_iter().map(|(name, value)| (name, value.to_bytes())).collect()
}

fn check(make: fn() -> Subject, meshes: &[(usize, usize)], accumulate: &[usize], steps: usize) {
    let _only = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    meshwork::set_cpu_devices(1).unwrap();
    meshwork::set_num_threads(1).unwrap();
    let expected = train(make, None, steps);
    meshwork::set_cpu_devices(8).unwrap();
    for &(data, tensor) in meshes {
        for zero in [Zero::Nothing, Zero::OptimizerState, Zero::Gradients, Zero::Parameters] {
            for &accumulate in accumulate {
                let places = make().places;
                let plan = Plan { data: Some(data), tensor, zero, accumulate, places, ..Plan::default() };
                let got = train(make, Some((&plan, data * tensor)), steps);
                for ((name, got), (_, expected)) in got.iter().zip(&expected) {
                    assert!(got == expected, "{}: other bits of {name} with {plan}", make().name);
                }
            }
        }
    }
}

const MESHES: [(usize, usize); 9] = [(1, 1), (2, 1), (3, 1), (8, 1), (1, 2), (1, 3), (2, 2), (2, 4), (4, 2)];

#[test]
fn lenet_is_the_same_on_every_mesh() {
    check(lenet, &MESHES, &[1, 2], 5);
}

#[test]
fn mlp_is_the_same_on_every_mesh() {
    check(mlp, &MESHES, &[1, 2, 4], 5);
}

#[test]
fn norms_dropout_embeddings_and_tied_weights_are_the_same_on_every_mesh() {
    check(small, &MESHES, &[1, 2], 5);
}
