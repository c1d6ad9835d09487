use crate::{kernels, turn};
use meshwork::Tensor;
use meshwork::tensor::{compile_count, last_program};

fn vector() -> Tensor {
    Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3])
}

#[test]
fn recording_computes_nothing() {
    let _turn = turn();
    let before = compile_count();
    let mut x = vector();
    for i in 0..10_000 {
        x = if i % 2 == 0 { &x + 1.0 } else { x.sin() };
    }
    assert_eq!(x.shape(), [3]);
    assert_eq!(format!("{x:?}"), "Tensor(f32[3])");
    drop(x);
    meshwork::synchronize();
    assert_eq!(compile_count(), before);
}

#[test]
fn long_histories_drop_without_recursion() {
    let _turn = turn();
    let x = vector().variable();
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = -&y;
    }
    drop(y);
}

#[test]
fn a_read_runs_everything_alive() {
    let _turn = turn();
    let x = vector();
    let (a, b) = (x.exp(), x.sum(..));
    let c = &b * 2.0;
    assert_eq!(b.item(), 6.0);
    let (program, count) = (last_program().expect("a program"), compile_count());
    assert_eq!(program.outputs.len(), 3);
    assert_eq!(c.item(), 12.0);
    assert_eq!(a.to_vec::<f32>().len(), 3);
    assert_eq!(compile_count(), count);
    assert!(std::sync::Arc::ptr_eq(&program, &last_program().expect("a program")), "reading ran something again");
}

#[test]
fn eval_and_synchronize_run_everything_alive() {
    let _turn = turn();
    let x = vector();
    let (a, b) = (x.cos(), x.amax(..));
    a.eval();
    assert_eq!(last_program().expect("a program").outputs.len(), 2);
    let c = &b + 1.0;
    meshwork::synchronize();
    let count = compile_count();
    assert_eq!(c.item(), 4.0);
    assert_eq!(compile_count(), count);
}

#[test]
fn what_nobody_holds_is_not_computed() {
    let _turn = turn();
    let x = vector();
    let matrix = Tensor::from_slice(&[0.0f32; 9], &[3, 3]);
    let dropped = x.matmul(&matrix);
    let kept = x.sum(..);
    drop(dropped);
    assert_eq!(kept.item(), 6.0);
    assert_eq!(kernels(), ["sum"]);
}

#[test]
fn what_only_gradients_need_is_not_an_output() {
    let _turn = turn();
    let w = vector().variable();
    let loss = { w.square().exp().sum(..) };
    let gradient = meshwork::grad(&loss, &[&w]).remove(0);
    drop(loss);
    gradient.eval();
    let program = last_program().expect("a program");
    // The gradient, and the variable itself, which is alive too.
    assert_eq!(program.outputs.len(), 2);
    assert!(!kernels().contains(&"sum"), "nobody holds the loss: {:?}", kernels());
}

#[test]
fn a_clone_keeps_the_value_wanted() {
    let _turn = turn();
    let x = vector();
    let y = x.exp();
    let z = y.clone();
    drop(y);
    let total = z.sum(..);
    assert!(total.item() > 0.0);
    assert_eq!(z.to_vec::<f32>()[0], 1f32.exp());
}

/// Both gradients of a sum are the same recorded value: dropping one must not lose the other.
#[test]
fn equal_gradients_are_held_one_by_one() {
    let _turn = turn();
    let (a, b) = (vector().variable(), vector().variable());
    let loss = (&a + &b).sum(..);
    let [by_a, by_b] = <[Tensor; 2]>::try_from(meshwork::grad(&loss, &[&a, &b])).expect("two gradients");
    drop(by_a);
    let product = &by_b * 3.0;
    assert_eq!(product.to_vec::<f32>(), [3.0; 3]);
    assert_eq!(by_b.to_vec::<f32>(), [1.0; 3]);
}

#[test]
fn the_last_program_is_that_of_this_thread() {
    let _turn = turn();
    Tensor::from_slice(&[1.0f32, 2.0], &[2]).exp().to_vec::<f32>();
    let program = last_program().expect("a program");
    let other = std::thread::spawn(|| {
        assert!(last_program().is_none());
        Tensor::from_slice(&[3.0f32], &[1]).sqrt().to_vec::<f32>();
        last_program().expect("a program")
    });
    assert!(!std::sync::Arc::ptr_eq(&program, &other.join().unwrap()));
    assert!(std::sync::Arc::ptr_eq(&program, &last_program().expect("a program")));
}
