//! A training step is one program, compiled once, that updates its parameters in place.

use meshwork::prelude::*;
use meshwork::tensor::{compile_count, last_program};
use std::sync::Mutex;

/// The counter of programs and the last program belong to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Mlp {
    fn new() -> Mlp {
        Mlp { fc1: Linear::new(6, 5), fc2: Linear::new(5, 3) }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&self.fc1.forward(x).tanh())
    }
}

fn batch(step: usize) -> (Tensor, Tensor) {
    let x: Vec<f32> = (0..24).map(|i| ((i * 7 + step) % 11) as f32 / 11.0 - 0.5).collect();
    (Tensor::from_slice(&x, &[4, 6]), Tensor::from_slice(&[0i64, 2, 1, 0], &[4]))
}

fn steps_of(optimizer: &mut dyn Optimizer, model: &Mlp) {
    let mut compiled = Vec::new();
    for step in 0..4 {
        let before = compile_count();
        optimizer.set_lr(0.1 / (step + 1) as f64);
        {
            let (x, target) = batch(step);
            let loss = model.forward(&x).cross_entropy(&target);
            optimizer.step(model.gradients(&loss));
        }
        synchronize();
        compiled.push(compile_count() - before);
        let program = last_program().expect("a step has run");
        let large = program.outputs.iter().filter(|o| o.ty.shape.rank() > 0);
        for output in large {
            assert!(output.donated.is_some(), "{} is not updated in place\n{program}", output.ty);
        }
    }
    assert_eq!(compiled[1..], [0, 0, 0]);
    assert!(compiled[0] <= 1);
}

#[test]
fn sgd() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = Mlp::new();
    model.init(1);
    steps_of(&mut optim::Sgd::new(&model, optim::SgdOptions::new(0.1)), &model);
    let options = optim::SgdOptions { momentum: 0.9, weight_decay: 0.1, dampening: 0.5, ..optim::SgdOptions::new(0.1) };
    steps_of(&mut optim::Sgd::new(&model, options), &model);
}
