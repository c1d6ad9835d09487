use crate::common::convnet::Convnet;
use crate::turn;
use meshwork::Tensor;
use meshwork::tensor::{compile_count, last_program};
use std::sync::Arc;

#[test]
fn equal_steps_compile_once() {
    let _turn = turn();
    let mut net = Convnet::new();
    for step in 0..5 {
        let (images, labels) = Convnet::batch(step);
        let before = compile_count();
        net.step(&images, &labels, step, 0.1).loss.item();
        // The first step starts from fresh parameters, the second from those of a step.
        assert!(step < 2 || compile_count() == before, "step {step} compiled");
    }
}

/// Steps that are only handed over run behind each other; whether the last is still running must not matter.
#[test]
fn steps_that_nobody_waits_for_compile_once() {
    let _turn = turn();
    let mut net = Convnet::new();
    let batches: Vec<_> = (0..12).map(Convnet::batch).collect();
    let mut before = 0;
    for (step, (images, labels)) in batches.iter().enumerate() {
        if step == 3 {
            before = compile_count();
        }
        net.step(images, labels, step as u64, 0.1).loss.eval();
    }
    meshwork::synchronize();
    assert_eq!(compile_count(), before);
}

#[test]
fn a_changed_number_compiles_nothing() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2]);
    let step = |rate: f64| (&x * rate + Tensor::scalar(rate, x.dtype())).to_vec::<f32>();
    assert_eq!(step(2.0), [4.0, 6.0]);
    let before = compile_count();
    assert_eq!(step(0.5), [1.0, 1.5]);
    assert_eq!(step(-3.0), [-6.0, -9.0]);
    assert_eq!(compile_count(), before);
}

#[test]
fn dropout_of_another_step_compiles_nothing() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32; 64], &[64]);
    let first = x.dropout(0.5, 1).to_vec::<f32>();
    let before = compile_count();
    assert_ne!(x.dropout(0.5, 2).to_vec::<f32>(), first);
    assert_eq!(x.dropout(0.5, 1).to_vec::<f32>(), first);
    assert_eq!(compile_count(), before);
}

#[test]
fn another_shape_compiles_another_program() {
    let _turn = turn();
    let sum = |n: usize| Tensor::from_slice(&vec![1.0f32; n], &[n]).sum(..).item();
    assert_eq!(sum(1001), 1001.0);
    let (before, program) = (compile_count(), last_program());
    assert_eq!(sum(1002), 1002.0);
    assert_eq!(compile_count(), before + 1);
    assert_eq!(sum(1001), 1001.0);
    assert_eq!(compile_count(), before + 1);
    assert!(Arc::ptr_eq(&program.expect("a program"), &last_program().expect("a program")));
}

/// What has been differentiated once is only recorded again; everything that the gradients depend on must count.
#[test]
fn gradients_of_similar_structures_are_told_apart() {
    let _turn = turn();
    let variable = |v: f64| Tensor::from_slice(&[v], &[1]).variable();
    for round in 0..2 {
        let (a, b) = (variable(2.0 + f64::from(round)), variable(5.0));
        let (x, y) = (a.item(), b.item());
        let by = |loss: Tensor, wrt: &[&Tensor]| -> Vec<f64> {
            meshwork::grad(&loss.sum(..), wrt).iter().map(Tensor::item).collect()
        };
        assert_eq!(by(&a * &b, &[&a, &b]), [y, x]);
        assert_eq!(by(&a * &b, &[&b, &a]), [x, y]);
        assert_eq!(by(&a * &b, &[&b]), [x]);
        assert_eq!(by(&a * &a, &[&a, &b]), [2.0 * x, 0.0]);
        assert_eq!(by(&a - &b, &[&a, &b]), [1.0, -1.0]);
        assert_eq!(by(&b - &a, &[&a, &b]), [-1.0, 1.0]);
        assert_eq!(by(&a * b.detach(), &[&a]), [y]);
    }
}

/// Which values are wanted is part of a program, and which inputs it may overwrite.
#[test]
fn equal_graphs_with_other_wishes_are_told_apart() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2]);
    for _ in 0..2 {
        let y = &x * 3.0;
        let kept = &y + 1.0;
        assert_eq!(kept.to_vec::<f32>(), [4.0, 7.0]);
        assert_eq!(y.to_vec::<f32>(), [3.0, 6.0]);
        let inner = (&x * 3.0) + 1.0;
        assert_eq!(inner.to_vec::<f32>(), [4.0, 7.0]);
        let temporary = Tensor::from_slice(&[1.0f32, 2.0], &[2]);
        let last = (temporary * 3.0) + 1.0;
        assert_eq!(last.to_vec::<f32>(), [4.0, 7.0]);
        assert_eq!(x.to_vec::<f32>(), [1.0, 2.0]);
    }
}
