//! The part of a block in which tokens look at those before them.

use super::cache::CacheOfLayer;
use super::rotary::rotary;
use super::{Positions, TransformerConfig};
use crate::DType;
use crate::nn::{Dropout, Linear, Module, init};
use crate::tensor::{AttentionOptions, Tensor, counted, where_};

/// Causal self-attention (Vaswani et al., 2017), with heads of keys and values that several heads of queries share
/// (Ainslie et al., 2023).
#[derive(Debug, Module)]
pub struct SelfAttention {
    /// `[heads · head_size, width]`
    pub query: Linear,
    /// `[kv_heads · head_size, width]`
    pub key: Linear,
    /// `[kv_heads · head_size, width]`
    pub value: Linear,
    /// `[width, heads · head_size]`
    pub output: Linear,
    /// Of the probabilities.
    pub dropout: Dropout,
    heads: usize,
    kv_heads: usize,
    #[module(skip)]
    positions: Positions,
}

impl SelfAttention {
    /// As a block of the model has it.
    pub fn new(config: &TransformerConfig) -> SelfAttention {
        let &TransformerConfig { width, heads, kv_heads, head_size, .. } = config;
        let of_heads = |heads: usize| config.linear(width, heads * head_size, init::normal(config.init_std));
        SelfAttention {
            query: of_heads(heads),
            key: of_heads(kv_heads),
            value: of_heads(kv_heads),
            output: config.linear(heads * head_size, width, config.residual_init()),
            dropout: Dropout::new(config.attention_dropout),
            heads,
            kv_heads,
            positions: config.positions,
        }
    }

    /// `[B, T, width]` to the same. `positions` (i64 `[T]`) say where the tokens are, for rotary positions; the keys and
    /// values of a cache come before those of `x`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor, positions: &Tensor, cache: Option<CacheOfLayer<'_>>) -> Tensor {
        let query = self.turned(&split_heads(&self.query.forward(x), self.heads), positions);
        let key = self.turned(&split_heads(&self.key.forward(x), self.kv_heads), positions);
        let value = split_heads(&self.value.forward(x), self.kv_heads);
        let causal = AttentionOptions { causal: true, ..Default::default() };
        let mixed = match cache {
            None if self.dropout.drops() => self.attend_and_drop(&query, &key, &value),
            None => query.scaled_dot_product_attention(&key, &value, causal),
            Some(cache) => {
                let (key, value) = cache.layer.extend(&key, &value, positions);
                if query.size(2) == 1 {
                    // That a number says how many keys there are makes every token of a text the same program.
                    let lengths = (positions + 1i64).expand(&[x.size(0) as isize]);
                    let seen = AttentionOptions { lengths: Some(&lengths), ..Default::default() };
                    query.scaled_dot_product_attention(&key, &value, seen)
                } else {
                    let [key, value] = [key, value].map(|all| all.narrow(2, 0, cache.length));
                    query.scaled_dot_product_attention(&key, &value, causal)
                }
            }
        };
        self.output.forward(&join_heads(&mixed))
    }

    /// Causal attention `[B, H, T, D]` some of whose probabilities are dropped: these are in memory.
    #[track_caller]
    fn attend_and_drop(&self, query: &Tensor, key: &Tensor, value: &Tensor) -> Tensor {
        let scale = 1.0 / (query.size(-1) as f64).sqrt();
        let (group, length) = (self.heads / self.kv_heads, query.size(2));
        let scores = (query * scale).matmul(&repeat_heads(key, group).transpose(-2, -1));
        // A token sees itself and those before it.
        let index = counted(length, DType::I64);
        let seen = index.unsqueeze(1).ge(&index).broadcast_to(scores.shape());
        let scores = where_(&seen, &scores, &(scores.zeros_like() + f64::NEG_INFINITY));
        self.dropout.forward(&scores.softmax(-1)).matmul(&repeat_heads(value, group))
    }

    #[track_caller]
    fn turned(&self, x: &Tensor, positions: &Tensor) -> Tensor {
        match self.positions {
            Positions::Rotary { theta } => rotary(x, positions, theta),
            Positions::Learned => x.clone(),
        }
    }
}

/// `[B, T, heads · D]` to `[B, heads, T, D]`.
#[track_caller]
fn split_heads(x: &Tensor, heads: usize) -> Tensor {
    let [batch, length] = [0, 1].map(|dim| x.size(dim) as isize);
    x.reshape(&[batch, length, heads as isize, -1]).transpose(1, 2)
}

/// `[B, heads, T, D]` to `[B, T, heads · D]`.
#[track_caller]
fn join_heads(x: &Tensor) -> Tensor {
    x.transpose(1, 2).flatten(2)
}

/// Each head `group` times: `[B, G, S, D]` to `[B, G · group, S, D]`.
#[track_caller]
fn repeat_heads(x: &Tensor, group: usize) -> Tensor {
    if group == 1 {
        return x.clone();
    }
    let [batch, heads, length, size] = [0, 1, 2, 3].map(|dim| x.size(dim) as isize);
    let repeated = x.unsqueeze(2).expand(&[batch, heads, group as isize, length, size]);
    repeated.reshape(&[batch, heads * group as isize, length, size])
}
