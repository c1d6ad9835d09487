//! Modules: names, derive, initialisation, state.

use meshwork::prelude::*;
use std::marker::PhantomData;
use std::sync::Arc;

#[derive(Module)]
struct LeNet {
    conv1: Conv2d,
    conv2: Conv2d,
    fc1: Linear,
    fc2: Linear,
}

fn lenet() -> LeNet {
    LeNet {
        conv1: Conv2d::new(1, 20, 3),
        conv2: Conv2d::new(20, 50, 3),
        fc1: Linear::new(800, 128),
        fc2: Linear::new(128, 10),
    }
}

fn names(module: &impl Module) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn the_state_has_pytorchs_names_and_shapes() {
    let model = lenet();
    model.init(1);
    let state = model.state();
    let found: Vec<(&str, &[usize])> = state.iter().map(|(name, t)| (name.as_str(), t.shape())).collect();
    let expected: [(&str, &[usize]); 8] = [
        ("conv1.weight", &[20, 1, 3, 3]),
        ("conv1.bias", &[20]),
        ("conv2.weight", &[50, 20, 3, 3]),
        ("conv2.bias", &[50]),
        ("fc1.weight", &[128, 800]),
        ("fc1.bias", &[128]),
        ("fc2.weight", &[10, 128]),
        ("fc2.bias", &[10]),
    ];
    assert_eq!(found, expected);
    assert_eq!(model.num_parameters(), 200 + 9050 + 102_528 + 1290);
}

#[derive(Module)]
struct Block<L, const N: usize> {
    layers: Vec<L>,
    pair: (Linear, Option<Linear>),
    array: [Arc<Linear>; N],
    #[module(rename = "out")]
    head: Box<dyn Layer>,
    #[module(skip)]
    _function: fn(f64) -> f64,
    depth: usize,
    name: String,
    tag: &'static str,
    _marker: PhantomData<fn() -> L>,
    r#type: Parameter,
}

#[derive(Module)]
struct Pair(Linear, f32, Relu);

#[derive(Module)]
struct Nothing;

#[derive(Module)]
struct Borrowed<'a, M: ?Sized>
where
    M: Module,
{
    inner: &'a M,
}

#[test]
fn derive_visits_every_field_under_its_name() {
    let linear = || Linear::new(2, 2).no_bias();
    let block: Block<Pair, 2> = Block {
        layers: vec![Pair(linear(), 1.0, Relu), Pair(Linear::new(2, 2), 1.0, Relu)],
        pair: (linear(), None),
        array: [Arc::new(linear()), Arc::new(linear())],
        head: Box::new(sequential![linear(), Relu, linear()]),
        _function: f64::abs,
        depth: 3,
        name: "block".into(),
        tag: "tag",
        _marker: PhantomData,
        r#type: Parameter::new(&[3], nn_init()),
    };
    assert_eq!((block.depth, block.name.as_str(), block.tag), (3, "block", "tag"));
    let expected = [
        "layers.0.0.weight",
        "layers.1.0.weight",
        "layers.1.0.bias",
        "pair.0.weight",
        "array.0.weight",
        "array.1.weight",
        "out.0.weight",
        "out.2.weight",
        "type",
    ];
    assert_eq!(names(&block), expected);
    assert_eq!(names(&Borrowed { inner: &block })[0], "inner.layers.0.0.weight");
    assert_eq!(names(&Nothing), [""; 0]);
}

fn nn_init() -> Init {
    meshwork::nn::init::constant(0.5)
}

#[test]
fn values_depend_on_seed_and_name_not_on_the_order_of_construction() {
    let first = lenet();
    first.init(7);
    let _others = (Linear::new(3, 3), Dropout::new(0.5));
    let fc2 = Linear::new(128, 10);
    let second = LeNet { fc2, ..lenet() };
    second.init(7);
    for ((name, a), (_, b)) in first.state().iter().zip(second.state()) {
        assert_eq!(a.to_vec::<f32>(), b.to_vec::<f32>(), "{name}");
    }

    let third = lenet();
    third.init(8);
    assert_ne!(first.fc1.weight.value().to_vec::<f32>(), third.fc1.weight.value().to_vec::<f32>());
    third.init(7);
    assert_eq!(first.fc1.weight.value().to_vec::<f32>(), third.fc1.weight.value().to_vec::<f32>());
}

#[test]
fn linear_begins_within_pytorchs_bounds() {
    let layer = Linear::new(100, 200);
    layer.init(3);
    for values in layer.state().iter().map(|(_, t)| t.to_vec::<f32>()) {
        assert!(values.iter().all(|v| v.abs() <= 0.1));
        assert!(values.iter().any(|v| *v > 0.09) && values.iter().any(|v| *v < -0.09));
    }
    let transposed = ConvTranspose2d::new(3, 8, 5);
    assert_eq!(transposed.weight.shape(), [3, 8, 5, 5]);
    let bound = 1.0 / 200f32.sqrt();
    transposed.init(3);
    let values = transposed.weight.value().to_vec::<f32>();
    assert!(values.iter().all(|v| v.abs() <= bound) && values.iter().any(|v| v.abs() > 0.95 * bound));
}

#[test]
fn without_init_the_threads_seed_and_the_number_of_the_parameter_count() {
    let make = |seed| {
        manual_seed(seed);
        let layers = (Linear::new(4, 4), Linear::new(4, 4));
        let values = |l: &Linear| l.weight.value().to_vec::<f32>();
        // The second one first: the order of use does not matter.
        let second = values(&layers.1);
        (values(&layers.0), second)
    };
    assert_eq!(make(1), make(1));
    assert_ne!(make(1), make(2));
    let (a, b) = make(1);
    assert_ne!(a, b);
}

#[derive(Module)]
struct Tied {
    embed: Embedding,
    hidden: Linear,
    head: Linear,
}

#[test]
fn a_shared_parameter_is_one_parameter_with_two_names() {
    let embed = Embedding::new(5, 3);
    let head = Linear { weight: embed.weight.clone(), bias: None };
    let model = Tied { embed, hidden: Linear::new(3, 3).no_bias(), head };
    model.init(1);
    assert_eq!(names(&model), ["embed.weight", "hidden.weight"]);
    assert_eq!(model.num_parameters(), 15 + 9);
    let state = model.state();
    let listed: Vec<&str> = state.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(listed, ["embed.weight", "hidden.weight", "head.weight"]);
    assert_eq!(state[0].1.to_vec::<f32>(), state[2].1.to_vec::<f32>());

    let indices = Tensor::from_slice(&[0i64, 1], &[2]);
    let loss = model.head.forward(&model.hidden.forward(&model.embed.forward(&indices))).sum(..);
    assert_eq!(model.gradients(&loss).len(), 2);

    let one_name = state.into_iter().take(2).collect();
    model.load_state(one_name).expect("one name of a shared parameter is enough");
}

#[test]
fn states_go_from_one_model_to_another() {
    let (a, b) = (lenet(), lenet());
    a.init(1);
    b.init(2);
    b.load_state(a.state()).expect("the same model");
    for ((name, x), (_, y)) in a.state().iter().zip(b.state()) {
        assert_eq!(x.to_vec::<f32>(), y.to_vec::<f32>(), "{name}");
    }
}

#[test]
fn a_wrong_state_is_refused_whole() {
    let model = lenet();
    model.init(1);
    let before: Vec<_> = model.state().iter().map(|(_, t)| t.to_vec::<f32>()).collect();
    let mut state = model.state();
    state.iter_mut().for_each(|(_, t)| *t = t.zeros_like());
    state[0].0 = "conv1.weigth".into();
    state[1].1 = Tensor::from_slice(&[0f32; 19], &[19]);
    state[2].1 = state[2].1.to_dtype(DType::F64);
    state.push(("optimizer".into(), Tensor::from_slice(&[0f32], &[1])));
    let error = model.load_state(state).expect_err("four mistakes");
    assert_eq!(
        error.to_string(),
        "the state does not fit the module; nothing was loaded\n  missing: conv1.weight\n  \
         unknown: conv1.weigth (did you mean conv1.weight?)\n  unknown: optimizer\n  \
         wrong: conv1.bias is f32[19] and must be f32[20]\n  \
         wrong: conv2.weight is f64[50, 20, 3, 3] and must be f32[50, 20, 3, 3]"
    );
    let after: Vec<_> = model.state().iter().map(|(_, t)| t.to_vec::<f32>()).collect();
    assert_eq!(before, after);
}

#[test]
fn frozen_parameters_have_no_gradient() {
    let layer = Linear::new(2, 1);
    layer.init(0);
    layer.weight.set_requires_grad(false);
    let loss = layer.forward(&Tensor::from_slice(&[1f32, 2.0], &[1, 2])).sum(..);
    let gradients = layer.gradients(&loss);
    assert!(gradients.get(&layer.weight).is_none());
    assert_eq!(gradients.len(), 1);
}

#[test]
#[should_panic(expected = "a parameter f32[1, 2] cannot become f32[2, 1]")]
fn parameters_keep_their_shape() {
    Linear::new(2, 1).weight.set(Tensor::from_slice(&[0f32; 2], &[2, 1]));
}
