//! LARS and LAMB against the formulas of their papers in plain Rust, and their behaviour at the edges.

use crate::common::numbers::{Numbers, bits};
use meshwork::nn::Parameter;
use meshwork::optim::*;
use meshwork::{DType, Device, Tensor};
use std::ops::Range;

/// A matrix, a bias and a kernel of four dimensions.
const SHAPES: [&[usize]; 3] = [&[7, 5], &[5], &[3, 2, 3, 3]];

fn named(values: &[Vec<f64>], dtype: DType) -> Vec<(String, Parameter)> {
    let parameter = |(i, shape): (usize, &&[usize])| {
        let value = Tensor::from_slice(&values[i], shape).to_dtype(dtype);
        (format!("p{i}"), Parameter::from_tensor(&value))
    };
    SHAPES.iter().enumerate().map(parameter).collect()
}

fn random(seed: u64, scale: f64) -> Vec<Vec<f64>> {
    let mut numbers = Numbers::new(seed);
    SHAPES.iter().map(|s| (0..s.iter().product()).map(|_| numbers.uniform(-scale, scale)).collect()).collect()
}

/// The gradients of a step, which are large in the one and small in the next.
fn gradients_of(step: u64) -> Vec<Vec<f64>> {
    random(100 + step, if step.is_multiple_of(2) { 3.0 } else { 0.01 })
}

fn gradients(parameters: &[(String, Parameter)], values: &[Vec<f64>]) -> Gradients {
    let gradient = |p: &Parameter, v: &[f64]| Tensor::from_slice(v, p.shape()).to_dtype(p.dtype());
    parameters.iter().zip(values).map(|((_, p), v)| (p.clone(), gradient(p, v))).collect()
}

fn run(optimizer: &mut dyn Optimizer, parameters: &[(String, Parameter)], steps: Range<u64>) {
    for step in steps {
        optimizer.set_lr(0.5 / (step + 1) as f64);
        optimizer.step(gradients(parameters, &gradients_of(step)));
    }
}

fn norm(values: &[f64]) -> f64 {
    values.iter().map(|x| x * x).sum::<f64>().sqrt()
}

fn lars(o: &LarsOptions, is_excluded: bool, w: &mut [f64], v: &mut [f64], g: &[f64]) {
    let (weight, gradient) = (norm(w), norm(g));
    let (local, decay) = match is_excluded {
        true => (1.0, 0.0),
        false if weight == 0.0 || gradient == 0.0 => (1.0, o.weight_decay),
        false => (o.trust_coefficient * weight / (gradient + o.weight_decay * weight + o.eps), o.weight_decay),
    };
    for i in 0..w.len() {
        v[i] = o.momentum * v[i] + o.lr * local * (g[i] + decay * w[i]);
        w[i] -= v[i];
    }
}

fn lamb(o: &LambOptions, is_excluded: bool, t: i32, w: &mut [f64], (m, v): (&mut [f64], &mut [f64]), g: &[f64]) {
    let (beta1, beta2) = o.betas;
    let mut r = vec![0.0; w.len()];
    for i in 0..w.len() {
        m[i] = beta1 * m[i] + (1.0 - beta1) * g[i];
        v[i] = beta2 * v[i] + (1.0 - beta2) * g[i] * g[i];
        let (mean, square) = (m[i] / (1.0 - beta1.powi(t)), v[i] / (1.0 - beta2.powi(t)));
        r[i] = mean / (square.sqrt() + o.eps) + if is_excluded { 0.0 } else { o.weight_decay * w[i] };
    }
    let (weight, update) = (norm(w), norm(&r));
    let is_one = is_excluded || weight == 0.0 || update == 0.0;
    let trust = if is_one { 1.0 } else { (weight / update).clamp(o.trust_bounds.0, o.trust_bounds.1) };
    for i in 0..w.len() {
        w[i] -= o.lr * trust * r[i];
    }
}

#[track_caller]
fn assert_values(what: &str, parameters: &[(String, Parameter)], expected: &[Vec<f64>], tolerance: f64) {
    for ((name, parameter), expected) in parameters.iter().zip(expected) {
        for (i, (found, expected)) in parameter.value().to_f64().iter().zip(expected).enumerate() {
            let is_close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
            assert!(is_close, "{what}: element {i} of {name} is {found:e}, not {expected:e}");
        }
    }
}

const DTYPES: [(DType, f64); 2] = [(DType::F64, 1e-13), (DType::F32, 1e-5)];

#[test]
fn lars_takes_the_steps_of_the_paper() {
    let plain = LarsOptions { trust_coefficient: 0.02, ..LarsOptions::default() };
    let cases = [
        plain.clone(),
        LarsOptions { weight_decay: 0.3, eps: 0.1, ..plain.clone() },
        LarsOptions { momentum: 0.0, weight_decay: 0.0, ..plain.clone() },
        LarsOptions { exclude_vectors: false, weight_decay: 0.1, ..plain },
    ];
    for options in cases {
        for (dtype, tolerance) in DTYPES {
            let mut expected = random(1, 1.0);
            let parameters = named(&expected, dtype);
            let mut velocities: Vec<Vec<f64>> = expected.iter().map(|w| vec![0.0; w.len()]).collect();
            let mut optimizer = Lars::new(parameters.clone(), options.clone());
            for step in 0..8 {
                run(&mut optimizer, &parameters, step..step + 1);
                let options = LarsOptions { lr: 0.5 / (step + 1) as f64, ..options.clone() };
                for (i, gradient) in gradients_of(step).iter().enumerate() {
                    let is_excluded = options.exclude_vectors && SHAPES[i].len() < 2;
                    lars(&options, is_excluded, &mut expected[i], &mut velocities[i], gradient);
                }
                assert_values(&format!("{options:?} {dtype} step {step}"), &parameters, &expected, tolerance);
            }
        }
    }
}

#[test]
fn lamb_takes_the_steps_of_the_paper() {
    let cases = [
        LambOptions::default(),
        LambOptions { weight_decay: 0.3, eps: 0.01, betas: (0.8, 0.9), ..LambOptions::default() },
        LambOptions { weight_decay: 0.0, trust_bounds: (0.0, 0.2), ..LambOptions::default() },
        LambOptions { trust_bounds: (2.0, 10.0), exclude_vectors: false, ..LambOptions::default() },
    ];
    for options in cases {
        for (dtype, tolerance) in DTYPES {
            let mut expected = random(2, 1.0);
            let parameters = named(&expected, dtype);
            let zeros = || -> Vec<Vec<f64>> { expected.iter().map(|w| vec![0.0; w.len()]).collect() };
            let (mut means, mut squares) = (zeros(), zeros());
            let mut optimizer = Lamb::new(parameters.clone(), options.clone());
            for step in 0..8 {
                run(&mut optimizer, &parameters, step..step + 1);
                let options = LambOptions { lr: 0.5 / (step + 1) as f64, ..options.clone() };
                for (i, gradient) in gradients_of(step).iter().enumerate() {
                    let is_excluded = options.exclude_vectors && SHAPES[i].len() < 2;
                    let slots = (&mut means[i][..], &mut squares[i][..]);
                    lamb(&options, is_excluded, step as i32 + 1, &mut expected[i], slots, gradient);
                }
                assert_values(&format!("{options:?} {dtype} step {step}"), &parameters, &expected, tolerance);
            }
        }
    }
}

/// One parameter of two dimensions, after a step.
fn stepped<R: Rule>(options: R, weights: &[f32], gradient: &[f32]) -> Vec<f32> {
    let shape = [1, weights.len()];
    let parameter = Parameter::from_tensor(&Tensor::from_slice(weights, &shape));
    let mut optimizer = Stepper::new(vec![("p".to_string(), parameter.clone())], options);
    optimizer.step([(parameter.clone(), Tensor::from_slice(gradient, &shape))].into_iter().collect());
    parameter.value().to_vec()
}

#[test]
fn a_step_of_lars_has_the_norm_that_the_coefficient_says() {
    let options = LarsOptions { weight_decay: 0.0, eps: 0.0, trust_coefficient: 0.25, ..LarsOptions::default() };
    assert_eq!(stepped(options.clone(), &[3.0, 4.0], &[1000.0, 0.0]), [3.0 - 0.25 * 5.0, 4.0]);
    assert_eq!(stepped(options, &[3.0, 4.0], &[0.0, -0.001]), [3.0, 4.0 + 0.25 * 5.0]);
}

#[test]
fn weights_of_zero_take_plain_steps() {
    let lars = LarsOptions { lr: 0.5, eps: 0.0, ..LarsOptions::default() };
    assert_eq!(stepped(lars, &[0.0, 0.0], &[1.0, -2.0]), [-0.5, 1.0]);
    let lamb = LambOptions { lr: 0.5, eps: 0.0, trust_bounds: (0.0, 0.1), ..LambOptions::default() };
    let found = stepped(lamb, &[0.0, 0.0], &[1.0, -2.0]);
    assert!(found.iter().zip([-0.5, 0.5]).all(|(f, e): (&f32, f32)| (f - e).abs() < 1e-6), "{found:?}");
}

#[test]
fn gradients_of_zero_only_decay() {
    let lars = LarsOptions { lr: 0.5, eps: 0.0, weight_decay: 0.0, ..LarsOptions::default() };
    assert_eq!(stepped(lars.clone(), &[1.0, 2.0], &[0.0, 0.0]), [1.0, 2.0]);
    assert_eq!(stepped(LarsOptions { weight_decay: 0.25, ..lars.clone() }, &[1.0, 2.0], &[0.0, 0.0]), [0.875, 1.75]);
    assert_eq!(stepped(lars, &[0.0, 0.0], &[0.0, 0.0]), [0.0, 0.0]);

    let lamb = LambOptions { lr: 0.5, weight_decay: 0.0, ..LambOptions::default() };
    assert_eq!(stepped(lamb.clone(), &[1.0, 2.0], &[0.0, 0.0]), [1.0, 2.0]);
    assert_eq!(stepped(lamb.clone(), &[0.0, 0.0], &[0.0, 0.0]), [0.0, 0.0]);
    // The direction is the decay alone, and the ratio makes its size that of the weights.
    let found = stepped(LambOptions { weight_decay: 0.25, ..lamb }, &[3.0, 4.0], &[0.0, 0.0]);
    assert!(found.iter().zip([1.5, 2.0]).all(|(f, e): (&f32, f32)| (f - e).abs() < 1e-5), "{found:?}");
}

#[test]
fn norms_of_half_precision_do_not_overflow() {
    let weights = Tensor::from_slice(&[200f32; 64], &[8, 8]).to_dtype(DType::F16);
    let step = |options: LarsOptions| {
        let parameter = Parameter::from_tensor(&weights);
        let mut optimizer = Lars::new(vec![("p".to_string(), parameter.clone())], options);
        optimizer.step([(parameter.clone(), weights.clone())].into_iter().collect());
        parameter.value().to_f64()
    };
    // The sum of squares, 2.56 million, is far beyond f16.
    let options = LarsOptions { trust_coefficient: 0.25, weight_decay: 0.0, ..LarsOptions::default() };
    assert_eq!(step(options), [150.0; 64]);
}

/// Parameters that are large enough for several threads, after a few steps.
fn after_training<R: Rule>(options: R) -> Vec<Vec<u8>> {
    let mut numbers = Numbers::new(7);
    let parameters: Vec<(String, Parameter)> = [&[300, 517][..], &[64, 32, 5, 5], &[1000]]
        .iter()
        .enumerate()
        .map(|(i, shape)| (format!("p{i}"), Parameter::from_tensor(&numbers.f32s(-0.1, 0.1, shape))))
        .collect();
    let mut optimizer = Stepper::new(parameters.clone(), options);
    for _ in 0..3 {
        let gradients = parameters.iter().map(|(_, p)| (p.clone(), numbers.f32s(-1.0, 1.0, p.shape())));
        optimizer.step(gradients.collect());
    }
    let state = optimizer.state();
    let values = parameters.iter().map(|(_, p)| bits(&p.value()));
    values.chain(state.tensors.iter().map(|(_, t)| bits(t))).collect()
}

#[test]
fn bits_do_not_depend_on_threads() {
    let device = Device::cpu(0).expect("the first device");
    let before = device.num_threads();
    let mut first = None;
    for threads in [1, 2, 3, 7] {
        device.set_num_threads(threads).expect("a few threads");
        let found = (after_training(LarsOptions::default()), after_training(LambOptions::default()));
        let first = first.get_or_insert_with(|| found.clone());
        assert!(*first == found, "{threads} threads");
    }
    device.set_num_threads(before).expect("the number before");
}

fn resumes<R: Rule>(options: R, slots: &[&str]) {
    let start = random(3, 1.0);
    let whole = named(&start, DType::F32);
    let mut optimizer = Stepper::new(whole.clone(), options.clone());
    run(&mut optimizer, &whole, 0..5);
    let saved = optimizer.state();
    assert_eq!(saved.kind, R::NAME);
    let names: Vec<String> = (0..3).flat_map(|i| slots.iter().map(move |slot| format!("{slot}.p{i}"))).collect();
    assert_eq!(saved.tensors.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);

    let part = named(&start, DType::F32);
    let mut resumed = Stepper::new(part.clone(), options);
    resumed.load_state(saved).expect("the same optimizer");
    for ((_, to), (_, from)) in part.iter().zip(&whole) {
        to.set(from.value());
    }
    run(&mut optimizer, &whole, 5..10);
    run(&mut resumed, &part, 5..10);
    let values = |of: &[(String, Parameter)]| of.iter().map(|(_, p)| bits(&p.value())).collect::<Vec<_>>();
    assert_eq!(values(&whole), values(&part), "{}", R::NAME);
    assert_eq!(resumed.steps(), 10);
}

#[test]
fn resumed_runs_go_on_with_equal_bits() {
    resumes(LarsOptions::default(), &["momentum"]);
    resumes(LarsOptions { momentum: 0.0, ..LarsOptions::default() }, &[]);
    resumes(LambOptions::default(), &["exp_avg", "exp_avg_sq"]);
}

fn refused<R: Rule>(options: R) -> String {
    let parameters = named(&random(4, 1.0), DType::F32);
    let attempt = std::panic::AssertUnwindSafe(|| Stepper::new(parameters, options));
    let Err(panic) = std::panic::catch_unwind(attempt) else { panic!("the options were accepted") };
    panic.downcast_ref::<String>().expect("a text").clone()
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let lars = LarsOptions::default;
    assert_eq!(refused(LarsOptions { lr: -1.0, ..lars() }), "a learning rate is at least 0, not -1");
    assert_eq!(refused(LarsOptions { momentum: -0.5, ..lars() }), "a momentum is at least 0, not -0.5");
    assert_eq!(refused(LarsOptions { weight_decay: -1.0, ..lars() }), "a weight decay is at least 0, not -1");
    assert_eq!(refused(LarsOptions { trust_coefficient: 0.0, ..lars() }), "a trust coefficient is above 0, not 0");
    assert_eq!(refused(LarsOptions { eps: -1.0, ..lars() }), "eps is at least 0, not -1");

    let lamb = LambOptions::default;
    assert_eq!(refused(LambOptions { lr: -1.0, ..lamb() }), "a learning rate is at least 0, not -1");
    assert_eq!(refused(LambOptions { betas: (0.9, 1.0), ..lamb() }), "betas are in 0..1, not (0.9, 1.0)");
    assert_eq!(refused(LambOptions { eps: -1.0, ..lamb() }), "eps is at least 0, not -1");
    assert_eq!(refused(LambOptions { weight_decay: -1.0, ..lamb() }), "a weight decay is at least 0, not -1");
    for bounds in [(-1.0, 1.0), (2.0, 1.0), (0.0, 0.0), (f64::NAN, 1.0)] {
        let expected = format!("bounds of trust ratios are at least 0 and in order, not {bounds:?}");
        assert_eq!(refused(LambOptions { trust_bounds: bounds, ..lamb() }), expected);
    }
}
