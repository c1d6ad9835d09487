//! Optimizers against PyTorch's, and what they do beyond formulas: groups, states, missing gradients.

use crate::golden::cases::{Case, assert_close, cases};
use meshwork::optim::*;
use meshwork::prelude::{Module, Parameter, Tensor};
use meshwork::{DType, nn};

fn optimizer(case: &Case, parameters: Vec<(String, Parameter)>) -> Box<dyn Optimizer> {
    let (lr, weight_decay) = (case.number("lr"), case.number("weight_decay"));
    let flag = |name: &str| case.args[name].as_bool().expect("a flag");
    let betas = || (case.args["betas"][0].as_f64().expect("beta 1"), case.args["betas"][1].as_f64().expect("beta 2"));
    match case.op.as_str() {
        "sgd" => {
            let (momentum, dampening) = (case.number("momentum"), case.number("dampening"));
            let options = SgdOptions { lr, momentum, dampening, nesterov: flag("nesterov"), weight_decay };
            Box::new(Sgd::new(parameters, options))
        }
        "adam" => {
            Box::new(Adam::new(parameters, AdamOptions { lr, betas: betas(), eps: case.number("eps"), weight_decay }))
        }
        "adamw" => {
            Box::new(AdamW::new(parameters, AdamWOptions { lr, betas: betas(), eps: case.number("eps"), weight_decay }))
        }
        "rmsprop" => {
            let options = RmsPropOptions {
                lr,
                alpha: case.number("alpha"),
                eps: case.number("eps"),
                weight_decay,
                momentum: case.number("momentum"),
                centered: flag("centered"),
            };
            Box::new(RmsProp::new(parameters, options))
        }
        "adagrad" => {
            let options = AdagradOptions {
                lr,
                lr_decay: case.number("lr_decay"),
                weight_decay,
                initial_accumulator_value: case.number("initial_accumulator_value"),
                eps: case.number("eps"),
            };
            Box::new(Adagrad::new(parameters, options))
        }
        other => panic!("no optimizer for {other}"),
    }
}

/// The parameters and optimizer of a case, and its steps.
struct Run<'a> {
    case: &'a Case,
    dtype: DType,
    parameters: Vec<(String, Parameter)>,
    optimizer: Box<dyn Optimizer>,
}

impl Run<'_> {
    fn new(case: &Case, dtype: DType) -> Run<'_> {
        let named = |name: &str| (name.to_string(), Parameter::from_tensor(&case.tensor(name).to_dtype(dtype)));
        let parameters: Vec<_> = ["a", "b"].map(named).into();
        Run { case, dtype, optimizer: optimizer(case, parameters.clone()), parameters }
    }

    fn step(&mut self, step: usize) {
        let gradient =
            |name: &str| self.case.tensor(&format!("gradients.{name}")).select(0, step as isize).to_dtype(self.dtype);
        self.optimizer.set_lr(self.case.tensor("lr").to_vec::<f64>()[step]);
        self.optimizer.step(self.parameters.iter().map(|(name, p)| (p.clone(), gradient(name))).collect());
    }

    fn values(&self) -> Vec<f64> {
        self.parameters.iter().flat_map(|(_, p)| p.value().to_f64()).collect()
    }
}

#[test]
fn steps_are_pytorchs() {
    for case in cases("optim") {
        for (dtype, absolute, relative) in [(DType::F64, 1e-12, 1e-7), (DType::F32, 2e-6, 1e-5)] {
            let mut run = Run::new(&case, dtype);
            for step in 0..10 {
                run.step(step);
                for (name, parameter) in &run.parameters {
                    let expected = case.tensor(&format!("output.{name}")).select(0, step as isize).to_f64();
                    let what = format!("{} {name} {dtype} after step {step}", case.name);
                    assert_close(&what, &parameter.value().to_f64(), &expected, absolute, relative);
                }
            }
        }
    }
}

#[test]
fn a_resumed_run_goes_on_with_equal_bits() {
    for case in cases("optim") {
        let mut whole = Run::new(&case, DType::F32);
        (0..5).for_each(|step| whole.step(step));
        let saved = whole.optimizer.state();
        let values: Vec<_> = whole.parameters.iter().map(|(n, p)| (n.clone(), p.value())).collect();
        let tensors: Vec<_> = saved.tensors.iter().map(|(_, t)| t.to_bytes()).collect();

        let mut resumed = Run::new(&case, DType::F32);
        resumed.optimizer.load_state(saved.clone()).expect("the same optimizer");
        for ((_, parameter), (_, value)) in resumed.parameters.iter().zip(values) {
            parameter.set(value);
        }
        for step in 5..10 {
            whole.step(step);
            resumed.step(step);
        }
        assert_eq!(whole.values(), resumed.values(), "{}", case.name);
        assert_eq!(resumed.optimizer.steps(), 10);
        let after: Vec<_> = saved.tensors.iter().map(|(_, t)| t.to_bytes()).collect();
        assert_eq!(tensors, after, "{}: a saved state does not change", case.name);
    }
}

fn parameter(values: &[f32]) -> Parameter {
    Parameter::from_tensor(&Tensor::from_slice(values, &[values.len()]))
}

fn gradients(of: &[(&Parameter, &[f32])]) -> Gradients {
    of.iter().map(|(p, g)| ((*p).clone(), Tensor::from_slice(g, &[g.len()]))).collect()
}

#[test]
fn a_parameter_without_gradient_is_left_alone() {
    let (a, b) = (parameter(&[1.0, 2.0]), parameter(&[3.0]));
    let named = vec![("a".to_string(), a.clone()), ("b".to_string(), b.clone())];
    let mut adam = Adam::new(named, AdamOptions { lr: 0.5, weight_decay: 0.1, ..AdamOptions::default() });
    adam.step(gradients(&[(&a, &[1.0, 1.0])]));
    assert_eq!(b.value().to_vec::<f32>(), [3.0]);
    assert_ne!(a.value().to_vec::<f32>(), [1.0, 2.0]);
    let state = adam.state();
    assert_eq!(state.counts, [("a".to_string(), 1), ("b".to_string(), 0)]);
    let names: Vec<&str> = state.tensors.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["exp_avg.a", "exp_avg_sq.a", "exp_avg.b", "exp_avg_sq.b"]);
}

#[test]
fn groups_have_their_own_options() {
    let model = nn::Linear::new(2, 2);
    model.init(0);
    let before = model.state();
    let (biases, weights) = Named::from(&model).partition(|name| name.ends_with("bias"));
    let groups = vec![
        Group::new(weights, SgdOptions { lr: 0.5, weight_decay: 0.1, ..SgdOptions::default() }),
        Group::new(biases, SgdOptions { lr: 0.25, ..SgdOptions::default() }),
    ];
    let mut sgd = Sgd::with_groups(groups);
    sgd.set_lr(1.0);
    assert_eq!((sgd.groups()[0].options.lr, sgd.groups()[1].options.lr), (1.0, 0.5));

    let ones = model.parameters().into_iter().map(|p| (p.clone(), p.value().ones_like()));
    sgd.step(ones.collect());
    let expected: Vec<f32> = before[0].1.to_vec::<f32>().iter().map(|w| w - (1.0 + w * 0.1)).collect();
    assert_eq!(model.weight.value().to_vec::<f32>(), expected);
    let expected: Vec<f32> = before[1].1.to_vec::<f32>().iter().map(|b| b - 0.5).collect();
    assert_eq!(model.state()[1].1.to_vec::<f32>(), expected);
}

#[test]
#[should_panic(expected = "are the same parameter")]
fn a_parameter_is_in_one_group_only() {
    let a = parameter(&[1.0]);
    let _ = Sgd::new(vec![("a".to_string(), a.clone()), ("b".to_string(), a)], SgdOptions::new(0.1));
}

#[test]
#[should_panic(expected = "learning rate is at least 0")]
fn options_are_checked() {
    let _ = Sgd::new(vec![("a".to_string(), parameter(&[1.0]))], SgdOptions::new(-0.1));
}

#[test]
fn states_that_do_not_fit_are_refused() {
    let named = |name: &str| vec![(name.to_string(), parameter(&[1.0, 2.0]))];
    let momentum = SgdOptions { momentum: 0.9, ..SgdOptions::new(0.1) };
    let mut sgd = Sgd::new(named("fc.weight"), momentum.clone());

    let adam = Adam::new(named("fc.weight"), AdamOptions::default());
    let error = sgd.load_state(adam.state()).expect_err("another optimizer");
    assert_eq!(error.to_string(), "the state is of the optimizer adam, not of sgd");

    let other = Sgd::new(named("fc1.weight"), momentum);
    let error = sgd.load_state(other.state()).expect_err("other names").to_string();
    assert!(error.contains("missing: momentum.fc.weight") && error.contains("unknown: momentum.fc1.weight"), "{error}");
}

#[test]
fn gradients_are_clipped_scaled_and_added() {
    let (a, b) = (parameter(&[0.0, 0.0]), parameter(&[0.0]));
    let mut g = gradients(&[(&a, &[3.0, 0.0]), (&b, &[4.0])]);
    assert_eq!(g.global_norm().item(), 5.0);

    let norm = g.clip_by_global_norm(10.0);
    assert_eq!(norm.item(), 5.0);
    assert_eq!(g.get(&a).expect("a").to_vec::<f32>(), [3.0, 0.0], "small gradients stay as they are");

    g.clip_by_global_norm(1.0);
    assert_close("clipped", &g.get(&b).expect("b").to_f64(), &[0.8], 1e-6, 0.0);
    g.scale(2.0);
    assert_close("scaled", &g.get(&a).expect("a").to_f64(), &[1.2, 0.0], 1e-6, 0.0);

    let c = parameter(&[0.0]);
    g.accumulate(gradients(&[(&b, &[1.0]), (&c, &[7.0])]));
    assert_close("added", &g.get(&b).expect("b").to_f64(), &[2.6], 1e-6, 0.0);
    assert_eq!(g.get(&c).expect("c").to_vec::<f32>(), [7.0]);
    assert_eq!(g.len(), 3);
    assert_eq!(Gradients::default().global_norm().item(), 0.0);
}
