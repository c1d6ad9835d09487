//! What becomes of attention in a program.

use meshwork::Tensor;
use meshwork::tensor::{AttentionOptions, grad_with, last_plan, randn};

/// The gradients by the projections of queries, keys and values of a causal self-attention.
fn gradients(x: &Tensor) -> Vec<Tensor> {
    let heads = |x: &Tensor| x.reshape(&[2, 8, 4, 16]).permute(&[0, 2, 1, 3]);
    let weights = [0, 1, 2].map(|_| randn(&[64, 64]).variable());
    let [q, k, v] = weights.each_ref().map(|w| heads(&x.matmul(w)));
    let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
    let output = q.scaled_dot_product_attention(&k, &v, options);
    let loss = output.permute(&[0, 2, 1, 3]).reshape(&[2, 8, 64]).square().sum(..);
    grad_with(&[&loss], None, &weights.each_ref(), false)
}

#[test]
fn a_training_step_has_one_kernel_forward_and_one_backward_and_copies_nothing() {
    let gradients = gradients(&randn(&[2, 8, 64]));
    gradients.iter().for_each(|gradient| drop(gradient.to_bytes()));
    let plan = last_plan().expect("a plan");
    let steps = plan.programs().flat_map(|program| &program.steps);
    let names: Vec<&str> = steps.map(|step| step.op.operation().name()).collect();
    let attention: Vec<&str> = names.iter().copied().filter(|name| name.starts_with("attention")).collect();
    assert_eq!(attention, ["attention", "attention_gradients"], "{names:?}");
    assert!(!names.contains(&"reshape"), "{names:?}");
}
