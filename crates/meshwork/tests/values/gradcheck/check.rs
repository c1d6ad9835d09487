//! The check itself.

use crate::common::numbers::Numbers;
use meshwork::Tensor;
use meshwork::tensor::grad_with;

/// Distance of the two points. The error of the difference is about STEP² · f‴ + 1e-16 · f / STEP.
const STEP: f64 = 1e-5;
/// Differences up to this part of the gradient's largest element (or of 1) are none.
const TOLERANCE: f64 = 2e-7;

type Function<'a> = &'a dyn Fn(&[Tensor]) -> Tensor;

/// Checks the gradients of `f` by all inputs, and those of the gradients.
pub fn twice(name: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Tensor) {
    once(name, inputs, &f);
    let gradients = |inputs: &[Tensor]| directional(inputs, &f);
    compare(&format!("second derivative of {name}"), inputs, &gradients);
}

/// Checks the gradients of `f` by all inputs.
pub fn once(name: &str, inputs: &[Tensor], f: impl Fn(&[Tensor]) -> Tensor) {
    let weighted = |inputs: &[Tensor]| {
        let output = f(inputs);
        (&output * weights(1, output.shape())).sum(..)
    };
    compare(name, inputs, &weighted);
}

fn weights(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(0.5, 1.5, shape)
}

/// The derivative of the weighted output along fixed directions, itself a function of the inputs.
fn directional(inputs: &[Tensor], f: Function) -> Tensor {
    let output = f(inputs);
    let cotangent = weights(1, output.shape());
    let wrt: Vec<&Tensor> = inputs.iter().collect();
    let gradients = grad_with(&[&output], Some(&[&cotangent]), &wrt, true);
    let parts = gradients.iter().enumerate().map(|(i, g)| (g * weights(2 + i as u64, g.shape())).sum(..));
    parts.reduce(|a, b| a + b).expect("at least one input")
}

/// Compares the gradients of a scalar function with differences.
fn compare(name: &str, inputs: &[Tensor], f: Function) {
    let variables: Vec<Tensor> = inputs.iter().map(Tensor::variable).collect();
    let wrt: Vec<&Tensor> = variables.iter().collect();
    let value = f(&variables);
    let gradients = grad_with(&[&value], None, &wrt, false);
    assert!(value.item().is_finite(), "{name}: the value is {value}");
    for (i, gradient) in gradients.iter().enumerate() {
        assert_eq!(gradient.shape(), inputs[i].shape(), "{name}: gradient by input {i}");
        let gradient = gradient.to_f64();
        let differences = differences(inputs, i, f);
        let scale = differences.iter().fold(1.0, |m: f64, d| m.max(d.abs()));
        for (k, (g, d)) in gradient.iter().zip(&differences).enumerate() {
            assert!(
                (g - d).abs() <= TOLERANCE * scale,
                "{name}: by input {i} at {k} the gradient is {g}, the slope {d}"
            );
        }
    }
}

/// (f(x + h) − f(x − h)) / 2h for every element of input `i`.
fn differences(inputs: &[Tensor], i: usize, f: Function) -> Vec<f64> {
    let values = inputs[i].to_f64();
    let at = |k: usize, step: f64| {
        let mut moved = values.clone();
        moved[k] += step;
        let mut inputs: Vec<Tensor> = inputs.iter().map(Tensor::variable).collect();
        inputs[i] = Tensor::from_slice(&moved, inputs[i].shape()).variable();
        f(&inputs).item()
    };
    (0..values.len()).map(|k| (at(k, STEP) - at(k, -STEP)) / (2.0 * STEP)).collect()
}
