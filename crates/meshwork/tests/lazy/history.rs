use crate::common::numbers::Numbers;
use crate::turn;
use meshwork::tensor::grad_with;
use meshwork::{Tensor, grad, no_grad};

fn inputs() -> (Tensor, Tensor) {
    let mut numbers = Numbers::new(1);
    (numbers.f32s(-1.0, 1.0, &[5, 7]), numbers.f32s(-1.0, 1.0, &[7, 3]).variable())
}

fn message(body: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).expect_err("a panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn reading_early_changes_no_bit() {
    let _turn = turn();
    let run = |read: &[bool; 3]| {
        let (x, w) = inputs();
        let hidden = x.matmul(&w).tanh();
        if read[0] {
            hidden.to_bytes();
        }
        let loss = (hidden.square().sum(..) + w.exp().mean(..)).log();
        if read[1] {
            loss.item();
        }
        let gradient = grad(&loss, &[&w]).remove(0);
        if read[2] {
            loss.item();
        }
        (gradient.to_bytes(), loss.to_bytes())
    };
    let lazy = run(&[false; 3]);
    for bits in 1..8 {
        assert_eq!(run(&[bits & 1 != 0, bits & 2 != 0, bits & 4 != 0]), lazy, "{bits:03b}");
    }
}

#[test]
fn gradients_of_gradients() {
    let _turn = turn();
    let x = Tensor::from_slice(&[2.0f64, -3.0], &[2]).variable();
    let y = x.powf(4.0).sum(..);
    let first = grad_with(&[&y], None, &[&x], true).remove(0);
    assert_eq!(first.to_vec::<f64>(), [32.0, -108.0]);
    let second = grad_with(&[&first.sum(..)], None, &[&x], true).remove(0);
    assert_eq!(second.to_vec::<f64>(), [48.0, 108.0]);
    let third = grad(&second.sum(..), &[&x]).remove(0);
    assert_eq!(third.to_vec::<f64>(), [48.0, -72.0]);
}

/// Without a read in between no flag is needed.
#[test]
fn gradients_of_pending_gradients() {
    let _turn = turn();
    let x = Tensor::from_slice(&[2.0f64, -3.0], &[2]).variable();
    let first = grad(&x.powf(3.0).sum(..), &[&x]).remove(0);
    let second = grad(&first.sum(..), &[&x]).remove(0);
    assert_eq!(second.to_vec::<f64>(), [12.0, -18.0]);
}

#[test]
fn gradients_by_a_value_and_by_what_it_depends_on() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f64, 2.0], &[2]).variable();
    let y = x.square();
    let loss = y.powf(3.0).sum(..);
    let gradients = grad(&loss, &[&x, &y]);
    assert_eq!(gradients[1].to_vec::<f64>(), [3.0, 48.0]);
    assert_eq!(gradients[0].to_vec::<f64>(), [6.0, 192.0]);
    let y = x.square();
    let reversed = grad_with(&[&x.square().sum(..), &y.sum(..)], None, &[&y, &x], false);
    assert_eq!(reversed[0].to_vec::<f64>(), [1.0, 1.0]);
    assert_eq!(reversed[1].to_vec::<f64>(), [4.0, 8.0]);
    // The way from y to x is gone now. By y alone it is not needed.
    let text = message(|| drop(grad(&y.sum(..), &[&x, &y])));
    assert!(text.contains("the history of f64[2] was freed"), "{text}");
    assert_eq!(grad(&y.sum(..), &[&y]).remove(0).to_vec::<f64>(), [1.0, 1.0]);
}

#[test]
fn where_nothing_depends_the_gradient_is_zero() {
    let _turn = turn();
    let (a, b) = (Tensor::from_slice(&[1.0f32, 2.0], &[2]).variable(), Tensor::from_slice(&[3.0f32], &[1]).variable());
    let gradients = grad(&a.sum(..), &[&b, &a]);
    assert_eq!(gradients[0].to_vec::<f32>(), [0.0]);
    assert_eq!(gradients[1].to_vec::<f32>(), [1.0, 1.0]);
}

#[test]
fn gradients_stop_at_detach_no_grad_and_variables() {
    let _turn = turn();
    let x = Tensor::from_slice(&[3.0f64], &[]).variable();
    let slope = |y: Tensor| grad(&y, &[&x]).remove(0).item();
    assert_eq!(slope(&x * x.detach()), 3.0);
    assert_eq!(slope(&x + no_grad(|| x.square())), 1.0);
    assert_eq!(slope(&x * x.variable()), 3.0);
    assert!(!no_grad(|| x.square()).requires_grad());
    assert!(!x.detach().requires_grad());
    assert!(x.square().requires_grad());
    assert!(!x.gt(1.0).requires_grad());
}

#[test]
fn no_grad_ends_with_a_panic_inside() {
    let _turn = turn();
    let x = Tensor::from_slice(&[3.0f64], &[]).variable();
    message(|| no_grad(|| panic!("{}", "out")));
    assert!(x.square().requires_grad());
}

#[test]
fn two_gradients_before_a_read() {
    let _turn = turn();
    let x = Tensor::from_slice(&[3.0f64], &[]).variable();
    let y = x.square();
    let (first, second) = (grad(&y, &[&x]).remove(0), grad(&(&y * 2.0), &[&x]).remove(0));
    assert_eq!((first.item(), second.item()), (6.0, 12.0));
}

#[test]
fn a_freed_history_is_an_error_and_not_a_zero() {
    let _turn = turn();
    let x = Tensor::from_slice(&[3.0f64], &[]).variable();
    let y = x.square();
    assert_eq!(grad(&y, &[&x]).remove(0).item(), 6.0);
    let text = message(|| drop(grad(&y, &[&x])));
    assert!(text.contains("the history of f64[] was freed by taking a gradient"), "{text}");

    let first = grad(&x.powf(3.0), &[&x]).remove(0);
    assert_eq!(first.item(), 27.0);
    let text = message(|| drop(grad(&first, &[&x])));
    assert!(text.contains("create_graph"), "{text}");
    // What is meant as a constant is said to be one.
    assert_eq!(grad(&(&x * first.detach()), &[&x]).remove(0).item(), 27.0);
}

#[test]
fn gradients_need_a_scalar_and_variables() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2]).variable();
    let text = message(|| drop(grad(&x.exp(), &[&x])));
    assert_eq!(text, "the gradient of f32[2] needs a scalar loss (or cotangents)");
    let plain = x.detach();
    let text = message(|| drop(grad(&plain.sum(..), &[&plain])));
    assert_eq!(text, "the gradient by f32[2] needs a variable (make it one with variable())");
    let text = message(|| drop(grad_with(&[&x], Some(&[&x.sum(..)]), &[&x], false)));
    assert_eq!(text, "cotangent f32[] of an output f32[2]");
    let text = message(|| drop(Tensor::from_slice(&[1i64], &[1]).variable()));
    assert_eq!(text, "a variable must have a floating-point dtype, not i64");
}

#[test]
fn a_value_that_another_thread_recorded_on_keeps_its_history() {
    let _turn = turn();
    let w = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3]).variable();
    let h = &w * &w;
    let loss = std::thread::scope(|s| s.spawn(|| (&h * &h).sum(..)).join().unwrap());
    let metric = h.argmax(0);
    drop(h);
    assert_eq!(metric.item(), 2.0);
    assert_eq!(grad(&loss, &[&w])[0].to_vec::<f32>(), [4.0, 32.0, 108.0]);
}

#[test]
fn a_gradient_lets_the_history_of_values_read_early_go() {
    let _turn = turn();
    let device = meshwork::Device::cpu(0).expect("the first device");
    let w = Tensor::from_slice(&vec![0.5f32; 10_000], &[10_000]).variable();
    w.eval();
    let mut losses = Vec::new();
    let mut allocated = Vec::new();
    for _ in 0..3 {
        let loss = w.tanh().exp().square().sum(..);
        loss.item();
        let gradient = grad(&loss, &[&w]).remove(0);
        gradient.eval();
        drop(gradient);
        losses.push(loss);
        meshwork::synchronize();
        allocated.push(device.memory().allocated);
    }
    assert!(allocated[2] - allocated[0] < 1000, "{allocated:?}");
}
