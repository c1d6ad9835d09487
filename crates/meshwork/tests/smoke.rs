//! A gradient step by hand.

use meshwork::tensor::{compile_count, last_program};
use meshwork::{Tensor, grad};

#[test]
fn a_linear_step() {
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    let mut w = Tensor::from_slice(&[0.5f32, -1.0, 2.0, 1.0, 1.0, 1.0], &[2, 3]).variable();
    for step in 0..3 {
        let y = x.linear(&w, None).tanh();

        let before = compile_count();
        let g = meshwork::tensor::grad_with(&[&y], Some(&[&y.ones_like()]), &[&w], false);
        w = meshwork::no_grad(|| &w - &(&g[0] * 0.1)).variable();
        println!("{step} {w}");
        println!("compiled {}", compile_count() - before);
    }
    println!("{}", last_program().unwrap());
    let _ = grad;
}
