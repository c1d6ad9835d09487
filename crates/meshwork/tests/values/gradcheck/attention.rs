use super::check::{once, twice};
use crate::common::numbers::Numbers;
use meshwork::Tensor;
use meshwork::tensor::AttentionOptions;

fn input(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(-1.0, 1.0, shape)
}

/// Queries, keys and values: samples, query heads, key heads, queries, keys, features of keys, of values.
fn inputs([b, h, g, t, s, d, e]: [usize; 7]) -> [Tensor; 3] {
    [input(1, &[b, h, t, d]), input(2, &[b, g, s, d]), input(3, &[b, g, s, e])]
}

#[test]
fn attention() {
    for causal in [false, true] {
        let options = || AttentionOptions { causal, ..AttentionOptions::default() };
        let f = |x: &[Tensor]| x[0].scaled_dot_product_attention(&x[1], &x[2], options());
        for sizes in [[1, 1, 1, 3, 3, 2, 2], [2, 2, 1, 2, 4, 3, 2], [1, 4, 2, 1, 3, 2, 1], [1, 1, 1, 4, 2, 2, 3]] {
            twice(&format!("attention of {sizes:?}, causal {causal}"), &inputs(sizes), f);
        }
        // Several units of queries and blocks of keys.
        once("long attention", &inputs([1, 2, 1, 37, 70, 2, 1]), f);
    }
}

#[test]
fn attention_of_padded_batches() {
    let lengths = Tensor::from_slice(&[3i64, 0, 1], &[3]);
    for causal in [false, true] {
        let f = |x: &[Tensor]| {
            let options = AttentionOptions { causal, scale: Some(0.7), lengths: Some(&lengths) };
            x[0].scaled_dot_product_attention(&x[1], &x[2], options)
        };
        twice("attention of padded batches", &inputs([3, 1, 1, 2, 4, 2, 2]), f);
    }
}

#[test]
fn attention_with_itself() {
    let f = |x: &[Tensor]| x[0].scaled_dot_product_attention(&x[0], &x[0], AttentionOptions::default());
    twice("attention with itself", &[input(4, &[1, 1, 3, 2])], f);
}
