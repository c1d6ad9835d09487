//! Attention.

use crate::tensor::{Tensor, policy};
use meshwork_graph::DType;
use meshwork_graph::ops::{Attention, AttentionMask};

/// What [`Tensor::scaled_dot_product_attention`] does beside the softmax; by default every query sees every key.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions<'a> {
    /// The last query sees all keys, the one before it all but the last one, and so on. With as many queries as keys that
    /// is the lower triangle; with fewer, the queries are the end of a sequence, as with a cache of keys and values.
    /// (PyTorch's `is_causal` counts from the first query and the first key instead.)
    pub causal: bool,
    /// Factor of the scores; 1 / √D if missing.
    pub scale: Option<f64>,
    /// For each sample the number of its keys, i64 `[B]`; keys behind them are padding, which no query sees.
    pub lengths: Option<&'a Tensor>,
}

impl Tensor {
    /// softmax(scale · self · keyᵀ) · value: queries `[B, H, T, D]`, key `[B, G, S, D]`, value `[B, G, S, E]` to `[B, H, T, E]`
    /// (Vaswani et al., 2017). H is a multiple of G; query head h reads key head h / (H / G) (grouped-query attention: Ainslie
    /// et al., 2023). A query that sees no key gives 0.
    ///
    /// The matrix of scores is never in memory, forward or backward; its gradients' gradients write it. Operands whose
    /// last dim lies densely are not copied, and the result has its heads inside of its positions: bringing it to
    /// `[B, T, H · E]` is free.
    #[track_caller]
    pub fn scaled_dot_product_attention(&self, key: &Tensor, value: &Tensor, options: AttentionOptions) -> Tensor {
        let [query, key, value] = &policy!("scaled_dot_product_attention").cast([self, key, value]);
        let (q, k, v) = (query.ty(), key.ty(), value.ty());
        let name = "scaled_dot_product_attention";
        assert!(
            query.rank() == 4 && key.rank() == 4 && value.rank() == 4,
            "{name}: query {q}, key {k} and value {v} need 4 dims [batch, heads, positions, features]"
        );
        let ([b, h, t, d], [kb, g, s, kd], [vb, vg, vs, _]) = (sizes(query), sizes(key), sizes(value));
        assert!(kb == b && kd == d, "{name}: query {q} and key {k}: batch and features must be equal");
        assert!([vb, vg, vs] == [kb, g, s], "{name}: key {k} and value {v}: batch, heads and positions must be equal");
        assert!(h.is_multiple_of(g), "{name}: {h} heads of query {q} are no multiple of the {g} heads of key {k}");
        let dtype = query.dtype();
        assert!(
            dtype.is_float() && key.dtype() == dtype && value.dtype() == dtype,
            "{name}: query {q}, key {k} and value {v} must have one floating-point dtype"
        );
        if let Some(lengths) = options.lengths {
            let fits = lengths.dtype() == DType::I64 && lengths.shape() == [b];
            assert!(fits, "{name}: lengths {} for query {q}: one i64 for each sample", lengths.ty());
        }
        let mask = if options.causal { AttentionMask::causal(t, s) } else { AttentionMask::NONE };
        let mask = AttentionMask { padded: options.lengths.is_some(), ..mask };
        let scale = options.scale.unwrap_or((d.max(1) as f64).powf(-0.5));
        let [q, k, v] = [query, key, value].map(|x| x.permute(&[0, 2, 1, 3]));
        let mut inputs = vec![&q, &k, &v];
        inputs.extend(options.lengths);
        Tensor::record(Attention::new(scale, mask), &inputs).permute(&[0, 2, 1, 3])
    }
}

fn sizes(x: &Tensor) -> [usize; 4] {
    x.shape().try_into().expect("four dims")
}
