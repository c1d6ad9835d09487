//! Attention as one operation against the same written with matrix products and a softmax.

use meshwork::prelude::*;
use meshwork::tensor::{AttentionOptions, grad_with, manual_seed, randn};

/// Attention with scores in memory, as everyone writes it.
fn composed(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Tensor {
    let [b, h, t, d] = q.shape().try_into().expect("four dims");
    let [_, g, s, _] = k.shape().try_into().expect("four dims");
    let e = v.shape()[3];
    let spread = |x: &Tensor, width: usize| {
        let (b, g, r, s, width) = (b as isize, g as isize, (h / g) as isize, s as isize, width as isize);
        x.reshape(&[b, g, 1, s, width]).expand(&[b, g, r, s, width]).reshape(&[b, g * r, s, width])
    };
    let scores = q.matmul(&spread(k, d).transpose(2, 3)) * options.scale.unwrap_or((d as f64).powf(-0.5));
    let mut hidden = vec![0.0; b * t * s];
    for (i, hidden) in hidden.iter_mut().enumerate() {
        let (sample, query, key) = (i / s / t, i / s % t, i % s);
        let length = options.lengths.map_or(s, |lengths| lengths.to_f64()[sample] as usize);
        if options.causal && key + t > query + s || key >= length {
            *hidden = f64::NEG_INFINITY;
        }
    }
    let hidden = Tensor::from_slice(&hidden, &[b, 1, t, s]).to_dtype(q.dtype());
    (scores + hidden).softmax(3).matmul(&spread(v, e))
}

/// The output and the gradients by query, key and value.
fn with_gradients(inputs: &[Tensor; 3], f: impl Fn(&Tensor, &Tensor, &Tensor) -> Tensor) -> Vec<Tensor> {
    let [q, k, v] = inputs.each_ref().map(Tensor::variable);
    let output = f(&q, &k, &v);
    manual_seed(5);
    let cotangent = randn(output.shape()).to_dtype(output.dtype());
    let gradients = grad_with(&[&output], Some(&[&cotangent]), &[&q, &k, &v], false);
    std::iter::once(output).chain(gradients).collect()
}

fn compare(sizes: [usize; 7], dtype: DType, options: AttentionOptions, tolerance: f64) {
    let [b, h, g, t, s, d, e] = sizes;
    manual_seed(3);
    let inputs = [randn(&[b, h, t, d]), randn(&[b, g, s, d]), randn(&[b, g, s, e])].map(|x| x.to_dtype(dtype));
    let found = with_gradients(&inputs, |q, k, v| q.scaled_dot_product_attention(k, v, options.clone()));
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let widened = inputs.map(|x| x.to_dtype(wide));
    let expected = with_gradients(&widened, |q, k, v| composed(q, k, v, &options));
    for (what, (found, expected)) in ["output", "query", "key", "value"].iter().zip(found.iter().zip(&expected)) {
        assert_eq!((found.shape(), found.dtype()), (expected.shape(), dtype), "{what}");
        let expected = expected.to_f64();
        let scale = expected.iter().fold(1.0, |a: f64, x| a.max(x.abs()));
        for (i, (x, y)) in found.to_f64().iter().zip(&expected).enumerate() {
            assert!(
                (x - y).abs() <= tolerance * scale,
                "{what} of {sizes:?} {dtype}, {options:?}: element {i} is {x}, not {y}"
            );
        }
    }
}

#[test]
fn values_and_gradients_are_those_of_products_and_a_softmax() {
    for sizes in [[2, 4, 2, 40, 70, 16, 24], [1, 3, 1, 33, 33, 20, 20], [2, 2, 2, 1, 65, 8, 8]] {
        for causal in [false, true] {
            let options = || AttentionOptions { causal, ..AttentionOptions::default() };
            compare(sizes, DType::F32, options(), 3e-6);
            compare(sizes, DType::F64, options(), 1e-13);
            compare(sizes, DType::BF16, options(), 2e-2);
            compare(sizes, DType::F16, options(), 3e-3);
        }
    }
}

#[test]
fn padded_batches_do_not_see_their_padding() {
    let lengths = Tensor::from_slice(&[70i64, 41], &[2]);
    for causal in [false, true] {
        let options = || AttentionOptions { causal, scale: Some(0.3), lengths: Some(&lengths) };
        compare([2, 4, 2, 40, 70, 16, 24], DType::F32, options(), 3e-6);
    }
}

#[test]
fn queries_that_see_nothing_give_zero() {
    let (q, k) = (randn(&[1, 1, 5, 4]), randn(&[1, 1, 3, 4]));
    let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
    let [output, query, ..] =
        &with_gradients(&[q, k.clone(), k], |q, k, v| q.scaled_dot_product_attention(k, v, options.clone()))[..]
    else {
        panic!("an output and gradients")
    };
    for x in [output, query] {
        assert_eq!(x.narrow(2, 0, 2).to_f64(), [0.0; 8]);
        assert!(x.narrow(2, 2, 3).to_f64().iter().all(|x| x.is_finite()));
    }
}

#[test]
fn a_cache_of_keys_gives_the_bits_of_the_whole_sequence() {
    // The last query alone, with all keys, as generating text computes it.
    let [q, k, v] = [randn(&[2, 4, 77, 16]), randn(&[2, 2, 77, 16]), randn(&[2, 2, 77, 16])];
    let options = || AttentionOptions { causal: true, ..AttentionOptions::default() };
    let whole = q.scaled_dot_product_attention(&k, &v, options());
    let last = q.narrow(2, 76, 1).scaled_dot_product_attention(&k, &v, options());
    assert_eq!(last.to_bytes(), whole.narrow(2, 76, 1).to_bytes());
}
