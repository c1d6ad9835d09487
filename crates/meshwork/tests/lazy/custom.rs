//! A user's own operation, from outside of the crates.

use crate::{kernels, turn};
use meshwork::graph::Type;
use meshwork::graph::graph::{Graph, NodeId};
use meshwork::graph::op::{Backward, OpError};
use meshwork::graph::ops::{CustomInput, CustomOp, Parallel};
use meshwork::tensor::{compile_count, grad_with};
use meshwork::{DType, Tensor};
use std::sync::Arc;

/// `scale · x³` of f32.
#[derive(Debug)]
struct Cube {
    scale: f32,
}

impl CustomOp for Cube {
    fn name(&self) -> &'static str {
        "cube"
    }

    fn key(&self) -> u64 {
        self.scale.to_bits().into()
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        match inputs {
            [x] if x.dtype == DType::F32 => Ok((*x).clone()),
            _ => Err(OpError(format!("cube: one f32 tensor, not {inputs:?}"))),
        }
    }

    fn run(&self, inputs: &[CustomInput], output: &mut [u8], parallel: &dyn Parallel) {
        let x = inputs[0].bytes;
        let count = x.len() / 4;
        let tasks = parallel.threads().min(count.max(1));
        let out = std::sync::Mutex::new(output);
        parallel.run(tasks, &|task| {
            let range = count * task / tasks..count * (task + 1) / tasks;
            for i in range {
                let bytes: [u8; 4] = x[4 * i..4 * i + 4].try_into().expect("four bytes");
                let v = f32::from_ne_bytes(bytes);
                let cube = self.scale * v * v * v;
                out.lock().expect("no panic")[4 * i..4 * i + 4].copy_from_slice(&cube.to_ne_bytes());
            }
        });
    }

    fn gradient(&self, graph: &mut Graph, backward: &Backward) -> Vec<Option<NodeId>> {
        let x = backward.inputs[0];
        let three = graph.scalar_like(x, f64::from(3.0 * self.scale));
        let square = graph.mul(x, x);
        let slope = graph.mul(three, square);
        vec![Some(graph.mul(backward.grad, slope))]
    }
}

fn cube(x: &Tensor, scale: f32) -> Tensor {
    Tensor::custom(Arc::new(Cube { scale }), &[x])
}

#[test]
fn forward_gradient_and_second_gradient() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, -2.0, 0.5], &[3]).variable();
    let y = cube(&x, 2.0);
    let first = grad_with(&[&y.sum(..)], None, &[&x], true).remove(0);
    let second = meshwork::grad(&first.sum(..), &[&x]).remove(0);
    assert_eq!(y.to_vec::<f32>(), [2.0, -16.0, 0.25]);
    assert!(kernels().contains(&"cube"), "{:?}", kernels());
    assert_eq!(first.to_vec::<f32>(), [6.0, 24.0, 1.5]);
    assert_eq!(second.to_vec::<f32>(), [12.0, -24.0, 6.0]);
}

#[test]
fn a_view_reaches_the_kernel_densely() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3]);
    assert_eq!(cube(&x.t().flip(&[0]), 1.0).to_vec::<f32>(), [27.0, 216.0, 8.0, 125.0, 1.0, 64.0]);
}

#[test]
fn the_second_use_comes_from_the_cache() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[4]);
    assert_eq!(cube(&x, 1.0).to_vec::<f32>(), [1.0, 8.0, 27.0, 64.0]);
    let before = compile_count();
    assert_eq!(cube(&(&x + 0.0), 1.0).to_vec::<f32>()[3], 64.0);
    let again = compile_count();
    assert_eq!(cube(&x, 1.0).to_vec::<f32>(), [1.0, 8.0, 27.0, 64.0]);
    assert_eq!(compile_count(), again);
    assert!(again > before);
    // Another parameter is another operation.
    assert_eq!(cube(&x, 3.0).to_vec::<f32>(), [3.0, 24.0, 81.0, 192.0]);
    assert_eq!(compile_count(), again + 1);
}

#[test]
fn a_refusal_panics_with_the_operations_own_words() {
    let _turn = turn();
    let x = Tensor::from_slice(&[1i64], &[1]);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| cube(&x, 1.0))).expect_err("a refusal");
    assert_eq!(panic.downcast_ref::<String>().expect("text"), "cube: one f32 tensor, not [i64[1]]");
}
