//! Keys and values of the tokens that a model has read already.

use super::TransformerConfig;
use crate::DType;
use crate::tensor::{Precision, Tensor, counted, where_, zeros};

/// Keys and values of all layers, so that a token is computed once, whatever comes after it.
///
/// There is room for a whole context from the beginning, so that every step of a generation is the same program.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    context: usize,
    length: usize,
}

/// Keys and values of one layer.
#[derive(Debug)]
pub(super) struct LayerCache {
    /// `[B, G, context, D]`, zeros where no token has been yet.
    key: Tensor,
    /// As the keys.
    value: Tensor,
}

/// What a layer needs of a cache: its keys and values, and how many tokens there are with those that it is about to read.
#[derive(Debug)]
pub struct CacheOfLayer<'a> {
    pub(super) layer: &'a mut LayerCache,
    pub(super) length: usize,
}

impl KvCache {
    /// An empty cache for `batch` sequences, in the precision in force ([`autocast`](crate::tensor::autocast)).
    pub fn new(config: &TransformerConfig, batch: usize) -> KvCache {
        let empty = || zeros(&[batch, config.kv_heads, config.context, config.head_size], Precision::current().dtype());
        let layers = (0..config.layers).map(|_| LayerCache { key: empty(), value: empty() }).collect();
        KvCache { layers, context: config.context, length: 0 }
    }

    /// Tokens that have been read.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether no token has been read.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Tokens that there is room for.
    pub fn room(&self) -> usize {
        self.context - self.length
    }

    pub(super) fn of_layer(&mut self, layer: usize) -> CacheOfLayer<'_> {
        CacheOfLayer { layer: &mut self.layers[layer], length: self.length }
    }

    /// The positions of the next `count` tokens, for which there is room then no longer: i64 `[count]`.
    ///
    /// # Panics
    /// When there is no room for them.
    #[track_caller]
    pub(super) fn advance(&mut self, count: usize) -> Tensor {
        let (length, context) = (self.length, self.context);
        assert!(count <= self.room(), "{count} tokens after {length} are more than the context of {context}");
        self.length += count;
        counted(count, DType::I64) + length as i64
    }
}

impl LayerCache {
    /// Writes the keys and values of new tokens `[B, G, T, D]` to their positions; gives those of all tokens.
    #[track_caller]
    pub(super) fn extend(&mut self, key: &Tensor, value: &Tensor, positions: &Tensor) -> (Tensor, Tensor) {
        self.key = written(&self.key, key, positions);
        self.value = written(&self.value, value, positions);
        (self.key.clone(), self.value.clone())
    }
}

/// `all` `[B, G, S, D]` with `new` `[B, G, T, D]` where the positions (following each other) say.
#[track_caller]
fn written(all: &Tensor, new: &Tensor, positions: &Tensor) -> Tensor {
    let (room, count) = (all.size(2), new.size(2));
    let index = counted(room, DType::I64);
    let first = positions.narrow(0, 0, 1);
    if count == 1 {
        let here = index.eq(&first).unsqueeze(-1);
        return where_(&here.broadcast_to(all.shape()), &new.broadcast_to(all.shape()), all);
    }
    let offset = &index - &first;
    let is_new = offset.ge(0).logical_and(&offset.lt(count as i64));
    let source = offset.clamp(Some(0.0), Some(count as f64 - 1.0));
    let moved = new.index_select(2, &source);
    where_(&is_new.unsqueeze(-1).broadcast_to(all.shape()), &moved, all)
}
