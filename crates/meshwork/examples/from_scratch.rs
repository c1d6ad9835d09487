//! A two-layer network trained with nothing but tensors: forward, loss, gradients, step.
//!
//! cargo run --release -p meshwork --example from_scratch

use meshwork::tensor::{compile_count, randn};
use meshwork::{DType, Tensor, grad, manual_seed, no_grad, synchronize};
use std::time::Instant;

/// Points of the unit square, labelled by whether they lie inside a circle.
fn circle(samples: usize) -> (Tensor, Tensor) {
    let points = meshwork::tensor::rand(&[samples, 2]);
    let centred = &points - 0.5;
    let inside = centred.square().sum(1).lt(0.15);
    (points, inside.to_dtype(DType::I64))
}

fn main() {
    manual_seed(7);
    let (points, labels) = circle(512);
    let mut parameters = [
        randn(&[32, 2]).variable(),
        randn(&[32]).variable(),
        (randn(&[2, 32]) * 0.2).variable(),
        randn(&[2]).variable(),
    ];
    synchronize();

    let started = Instant::now();
    for step in 1..=2000 {
        let [w1, b1, w2, b2] = &parameters;
        let logits = points.linear(w1, Some(b1)).tanh().linear(w2, Some(b2));
        let loss = logits.cross_entropy(&labels);
        let gradients = grad(&loss, &[w1, b1, w2, b2]);
        parameters = no_grad(|| std::array::from_fn(|i| (&parameters[i] - &gradients[i] * 0.5).variable()));
        drop(gradients);
        if step % 400 == 0 {
            let right = logits.argmax(1).eq(&labels).to_dtype(DType::F32).mean(..);
            println!("step {step}: loss {:.4}, accuracy {:.3}", loss.item(), right.item());
        } else {
            loss.eval();
        }
    }
    println!("{:.1} µs a step; {} programs compiled", started.elapsed().as_secs_f64() * 1e6 / 2000.0, compile_count());
}
