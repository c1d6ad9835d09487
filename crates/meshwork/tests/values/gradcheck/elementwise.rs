use super::check::{once, twice};
use crate::common::numbers::Numbers;
use meshwork::tensor::where_;
use meshwork::{DType, Tensor};

fn away_from_zero(seed: u64, shape: &[usize]) -> Tensor {
    let mut numbers = Numbers::new(seed);
    let values: Vec<f64> = (0..shape.iter().product())
        .map(|_| numbers.uniform(0.2, 2.0) * if numbers.next() & 1 == 0 { 1.0 } else { -1.0 })
        .collect();
    Tensor::from_slice(&values, shape)
}

#[test]
fn functions_of_one_value() {
    type Unary = fn(&Tensor) -> Tensor;
    let anywhere: [(&str, Unary); 22] = [
        ("neg", |x| -x),
        ("abs", Tensor::abs),
        ("reciprocal", Tensor::reciprocal),
        ("exp", Tensor::exp),
        ("expm1", Tensor::expm1),
        ("sin", Tensor::sin),
        ("cos", Tensor::cos),
        ("tanh", Tensor::tanh),
        ("sigmoid", Tensor::sigmoid),
        ("erf", Tensor::erf),
        ("relu", Tensor::relu),
        ("gelu", Tensor::gelu),
        ("gelu_tanh", Tensor::gelu_tanh),
        ("silu", Tensor::silu),
        ("softplus", Tensor::softplus),
        ("log_sigmoid", Tensor::log_sigmoid),
        ("square", Tensor::square),
        ("powf 3", |x| x.powf(3.0)),
        ("powf -2", |x| x.powf(-2.0)),
        ("powf 4", |x| x.powf(4.0)),
        ("clamp", |x| x.clamp(Some(-1.1), Some(0.9))),
        ("broadcast_to", |x| x.broadcast_to(&[2, 3, 4])),
    ];
    for (name, f) in anywhere {
        twice(name, &[away_from_zero(1, &[3, 4])], |x| f(&x[0]));
    }
    let positive: [(&str, Unary); 6] = [
        ("log", Tensor::log),
        ("log1p", Tensor::log1p),
        ("sqrt", Tensor::sqrt),
        ("rsqrt", Tensor::rsqrt),
        ("powf 1.7", |x| x.powf(1.7)),
        ("powf 0.5", |x| x.powf(0.5)),
    ];
    for (name, f) in positive {
        twice(name, &[Numbers::new(2).f64s(0.3, 2.0, &[5])], |x| f(&x[0]));
    }
}

/// Where a function is smooth although its formula has branches, the gradient is the slope there too.
#[test]
fn smooth_at_zero() {
    let zero = [Tensor::from_slice(&[0.0f64, -0.0, 1e-9], &[3])];
    twice("softplus at 0", &zero, |x| x[0].softplus());
    twice("log_sigmoid at 0", &zero, |x| x[0].log_sigmoid());
    twice("gelu at 0", &zero, |x| x[0].gelu());
    twice("silu at 0", &zero, |x| x[0].silu());
}

#[test]
fn steps_have_no_gradient() {
    for f in [Tensor::sign, Tensor::floor, Tensor::ceil, Tensor::round] {
        once("a step", &[away_from_zero(3, &[7])], |x| f(&x[0]));
    }
}

#[test]
fn functions_of_two_values() {
    type Binary = fn(&Tensor, &Tensor) -> Tensor;
    let operations: [(&str, Binary); 6] = [
        ("add", |a, b| a + b),
        ("sub", |a, b| a - b),
        ("mul", |a, b| a * b),
        ("div", |a, b| a / b),
        ("maximum", |a, b| a.maximum(b)),
        ("minimum", |a, b| a.minimum(b)),
    ];
    let shapes: [(&[usize], &[usize]); 4] = [(&[3, 4], &[3, 4]), (&[2, 1, 3], &[4, 1]), (&[], &[2, 2]), (&[1], &[])];
    for (name, f) in operations {
        for (left, right) in shapes {
            let inputs = [away_from_zero(4, left), away_from_zero(5, right)];
            twice(&format!("{name} of {left:?} and {right:?}"), &inputs, |x| f(&x[0], &x[1]));
        }
    }
    let inputs = [Numbers::new(6).f64s(0.4, 2.0, &[3, 1]), Numbers::new(7).f64s(-2.0, 2.0, &[4])];
    twice("pow", &inputs, |x| x[0].pow(&x[1]));
}

#[test]
fn numbers_on_either_side() {
    let x = [away_from_zero(8, &[4])];
    twice("x + 2", &x, |x| &x[0] + 2.0);
    twice("2 - x", &x, |x| 2.0 - &x[0]);
    twice("x * 3", &x, |x| &x[0] * 3i64);
    twice("2 / x", &x, |x| 2.0 / &x[0]);
    twice("true_divide", &x, |x| x[0].true_divide(4.0));
}

#[test]
fn choice() {
    let condition = Numbers::new(9).bools(&[3, 1]);
    let inputs = [away_from_zero(10, &[4]), away_from_zero(11, &[2, 3, 4])];
    twice("where", &inputs, |x| where_(&condition, &x[0].square(), &x[1].exp()));
}

#[test]
fn casts_pass_gradients_on() {
    let x = Tensor::from_slice(&[0.5f64, -1.25, 3.0], &[3]).variable();
    let y = (x.to_dtype(DType::F32) * Tensor::from_slice(&[2.0f32, 3.0, 4.0], &[3])).sum(..);
    let gradient = meshwork::grad(&y, &[&x]).remove(0);
    assert_eq!(gradient.to_vec::<f64>(), [2.0, 3.0, 4.0]);
}

#[test]
fn dropout_is_a_product_with_its_mask() {
    twice("dropout", &[away_from_zero(12, &[5, 7])], |x| x[0].dropout(0.4, 77).square());
    once("dropout of everything", &[away_from_zero(13, &[5])], |x| x[0].dropout(1.0, 77));
}
