//! A training step is one program, compiled once, that updates its parameters in place.

use meshwork::prelude::*;
use meshwork::tensor::{compile_count, last_program};
use std::sync::Mutex;

/// The counter of programs belongs to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    norm: Option<BatchNorm1d>,
    dropout: Dropout,
    fc2: Linear,
}

impl Mlp {
    fn new(norm: bool) -> Mlp {
        let norm = norm.then(|| BatchNorm1d::new(5));
        Mlp { fc1: Linear::new(6, 5), norm, dropout: Dropout::new(0.1), fc2: Linear::new(5, 3) }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = self.fc1.forward(x);
        if let Some(norm) = &self.norm {
            x = norm.forward(&x);
        }
        self.fc2.forward(&self.dropout.forward(&x.tanh()))
    }
}

fn batch(step: usize) -> (Tensor, Tensor) {
    let x: Vec<f32> = (0..24).map(|i| ((i * 7 + step) % 11) as f32 / 11.0 - 0.5).collect();
    (Tensor::from_slice(&x, &[4, 6]), Tensor::from_slice(&[0i64, 2, 1, 0], &[4]))
}

fn check(optimizer: &mut dyn Optimizer, model: &Mlp) {
    let mut compiled = Vec::new();
    for step in 0..4 {
        let before = compile_count();
        optimizer.set_lr(0.1 / (step + 1) as f64);
        {
            let (x, target) = batch(step);
            let loss = model.forward(&x).cross_entropy(&target);
            optimizer.step(model.gradients(&loss));
        }
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

fn model() -> Mlp {
    let model = Mlp::new(false);
    model.init(1);
    model
}

#[test]
fn sgd() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = model();
    check(&mut optim::Sgd::new(&model, optim::SgdOptions::new(0.1)), &model);
    let options = optim::SgdOptions { momentum: 0.9, weight_decay: 0.1, dampening: 0.5, ..optim::SgdOptions::new(0.1) };
    check(&mut optim::Sgd::new(&model, options), &model);
}

#[test]
fn adam() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = model();
    check(&mut optim::Adam::new(&model, optim::AdamOptions::default()), &model);
    check(&mut optim::AdamW::new(&model, optim::AdamWOptions::default()), &model);
}

#[test]
fn others() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = model();
    let options = optim::RmsPropOptions { momentum: 0.5, centered: true, ..optim::RmsPropOptions::default() };
    check(&mut optim::RmsProp::new(&model, options), &model);
    check(&mut optim::Adagrad::new(&model, optim::AdagradOptions::default()), &model);
}

#[test]
fn layer_wise() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = model();
    check(&mut optim::Lars::new(&model, optim::LarsOptions::default()), &model);
    check(&mut optim::Lamb::new(&model, optim::LambOptions::default()), &model);
}

#[test]
fn batch_norm() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = Mlp::new(true);
    model.init(1);
    check(&mut optim::Sgd::new(&model, optim::SgdOptions::new(0.1)), &model);
}

#[test]
fn without_init() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = Mlp::new(true);
    check(&mut optim::Sgd::new(&model, optim::SgdOptions::new(0.1)), &model);
}

#[test]
fn clipped() {
    let _alone = ALONE.lock().unwrap_or_else(|e| e.into_inner());
    let model = model();
    let mut optimizer = optim::Sgd::new(&model, optim::SgdOptions::new(0.1));
    for step in 0..3 {
        let (x, target) = batch(step);
        let mut gradients = model.gradients(&model.forward(&x).cross_entropy(&target));
        let before = compile_count();
        gradients.clip_by_global_norm(0.01);
        optimizer.step(gradients);
        assert!(step == 0 || compile_count() == before);
    }
}
