//! Decoder-only transformers, in the styles of GPT-2 and Llama.
//!
//! ```
//! use meshwork::nn::{KvCache, Module, Transformer, TransformerConfig};
//! use meshwork::{DType, Tensor, tensor::arange};
//!
//! let config = TransformerConfig::llama(65, 32, 2, 64, 4);
//! let model = Transformer::new(config);
//! model.init(0);
//! let tokens = arange(10, DType::I64).reshape(&[1, 10]);
//! assert_eq!(model.forward(&tokens).shape(), [1, 10, 65]);
//! ```

mod block;
mod cache;
mod config;
mod feed_forward;
mod rotary;
mod self_attention;

pub use block::{Block, Norm};
pub use cache::{CacheOfLayer, KvCache};
pub use config::{ActivationKind, ConfigError, NormKind, Positions, TransformerConfig};
pub use feed_forward::FeedForward;
pub use rotary::rotary;
pub use self_attention::SelfAttention;

use super::{Dropout, Embedding, Init, Layer, Linear, Module, init};
use crate::DType;
use crate::mesh::{Placement, Rule};
use crate::tensor::{Tensor, checkpoint, counted};
use meshwork_graph::canonical::{Blocking, Blocks};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A language model: from tokens to the logits of the token after each of them.
#[derive(Debug, Module)]
pub struct Transformer {
    /// `[vocabulary, width]`
    pub embedding: Embedding,
    /// `[context, width]`, where positions are learned
    pub positions: Option<Embedding>,
    /// Of the embeddings.
    pub dropout: Dropout,
    /// One after the other.
    pub blocks: Vec<Block>,
    /// After the last block.
    pub norm: Norm,
    /// `[vocabulary, width]`; without one, the embedding is used again
    pub head: Option<Linear>,
    #[module(skip)]
    config: TransformerConfig,
    #[module(skip)]
    recomputed: AtomicUsize,
}

impl Transformer {
    /// The layers, to be initialised by [`Module::init`].
    ///
    /// # Panics
    /// When the sizes do not go together; [`TransformerConfig::check`] says so beforehand.
    #[track_caller]
    pub fn new(config: TransformerConfig) -> Transformer {
        config.check().unwrap_or_else(|e| panic!("{e}"));
        let &TransformerConfig { vocabulary, context, layers, width, init_std, .. } = &config;
        let table = |entries: usize| Embedding::new(entries, width).weights(init::normal(init_std));
        Transformer {
            embedding: table(vocabulary),
            positions: (config.positions == Positions::Learned).then(|| table(context)),
            dropout: Dropout::new(config.dropout),
            blocks: (0..layers).map(|_| Block::new(&config)).collect(),
            norm: Norm::new(&config),
            head: (!config.tied).then(|| Linear::new(width, vocabulary).no_bias().weights(init::normal(init_std))),
            config,
            recomputed: AtomicUsize::new(0),
        }
    }

    /// Has the first blocks, so many of them, computed again for their gradients instead of kept
    /// ([`checkpoint`]). Bits do not depend on it. The first blocks come first, because they would be kept longest.
    pub fn set_recompute(&self, blocks: usize) {
        self.recomputed.store(blocks.min(self.blocks.len()), Ordering::Relaxed);
    }

    /// How many blocks are computed again for their gradients.
    pub fn recompute(&self) -> usize {
        self.recomputed.load(Ordering::Relaxed)
    }

    /// What the model is made of.
    pub fn config(&self) -> &TransformerConfig {
        &self.config
    }

    /// Tokens (integers `[B, T]`) to logits `[B, T, vocabulary]`.
    ///
    /// # Panics
    /// When the sequences are longer than the context.
    #[track_caller]
    pub fn forward(&self, tokens: &Tensor) -> Tensor {
        let (length, context) = (self.length_of(tokens), self.config.context);
        assert!(length <= context, "{length} tokens are more than the context of {context}");
        self.logits(&self.features(tokens, &counted(length, DType::I64), None))
    }

    /// Logits `[B, T, vocabulary]` of tokens `[B, T]` that follow those of a cache, which keeps them.
    ///
    /// # Panics
    /// When the cache has no room for them.
    #[track_caller]
    pub fn forward_cached(&self, tokens: &Tensor, cache: &mut KvCache) -> Tensor {
        let positions = cache.advance(self.length_of(tokens));
        self.logits(&self.features(tokens, &positions, Some(cache)))
    }

    #[track_caller]
    fn length_of(&self, tokens: &Tensor) -> usize {
        assert!(tokens.rank() == 2, "a transformer takes tokens [B, T], not {}", tokens.ty());
        tokens.size(1)
    }

    /// Features `[B, T, width]` after the last norm.
    #[track_caller]
    fn features(&self, tokens: &Tensor, positions: &Tensor, mut cache: Option<&mut KvCache>) -> Tensor {
        let mut x = self.embedding.forward(tokens);
        if let Some(table) = &self.positions {
            x = x + table.forward(positions);
        }
        x = self.dropout.forward(&x);
        for (i, block) in self.blocks.iter().enumerate() {
            let cache = cache.as_deref_mut().map(|cache| cache.of_layer(i));
            let forward = || block.forward(&x, positions, cache);
            x = if i < self.recompute() { checkpoint(forward) } else { forward() };
        }
        self.norm.forward(&x)
    }

    #[track_caller]
    fn logits(&self, x: &Tensor) -> Tensor {
        match &self.head {
            Some(head) => head.forward(x),
            None => x.linear(&self.embedding.weight.value(), None),
        }
    }
}

impl Layer for Transformer {
    #[track_caller]
    fn forward(&self, tokens: &Tensor) -> Tensor {
        Transformer::forward(self, tokens)
    }

    fn recomputable(&self) -> usize {
        self.blocks.len()
    }

    fn set_recompute(&self, parts: usize) {
        Transformer::set_recompute(self, parts);
    }
}

impl TransformerConfig {
    fn linear(&self, inputs: usize, outputs: usize, weights: Init) -> Linear {
        let layer = Linear::new(inputs, outputs).weights(weights);
        if self.bias { layer } else { layer.no_bias() }
    }

    /// How a layer begins that ends a residual branch.
    fn residual_init(&self) -> Init {
        init::normal(self.init_std / (2.0 * self.layers as f64).sqrt())
    }

    /// Where the parameters are cut along the axis `tensor` (Shoeybi et al., 2019): queries, keys and values between heads,
    /// the feed-forward layers between their features, the layers after them by their inputs, and the embedding and the head
    /// by the vocabulary, if it has more than one part.
    pub fn tensor_plan(&self) -> Vec<Rule> {
        let split = |name: &str, dim: usize, unit: usize| Rule::new(name, [("tensor", Placement::Split { dim, unit })]);
        let cut = |name: &str, dim: usize, unit: usize| split(&format!("blocks.*.{name}"), dim, unit);
        let (query, key) = (self.head_size * (self.heads / self.kv_heads), self.head_size);
        let mut rules = Vec::new();
        let mut columns = |layer: &str, unit: usize| {
            rules.push(cut(&format!("{layer}.weight"), 0, unit));
            if self.bias {
                rules.push(cut(&format!("{layer}.bias"), 0, unit));
            }
        };
        columns("attention.query", query);
        columns("attention.key", key);
        columns("attention.value", key);
        columns("feed_forward.up", 0);
        if self.activation == ActivationKind::SwiGlu {
            columns("feed_forward.gate", 0);
        }
        rules.push(cut("attention.output.weight", 1, 0));
        rules.push(cut("feed_forward.down.weight", 1, 0));
        let unit = self.vocabulary_unit();
        if self.vocabulary >= 2 * unit {
            rules.push(split("embedding.weight", 0, unit));
            if !self.tied {
                rules.push(split("head.weight", 0, unit));
            }
        }
        rules
    }

    /// Where the vocabulary may be cut: between the blocks of both sums over it, that of the softmax and that of the product
    /// which gives the gradient of the features. The parts of a large one are larger, as far as they can still be even: the
    /// sub-trees that they are made of are fewer then, and so are the sums that move.
    fn vocabulary_unit(&self) -> usize {
        const PARTS: usize = 16;
        let product = Blocks::contraction(Blocking::Features, self.vocabulary, 1).unit;
        let softmax = Blocks::sum(Blocking::Features, self.vocabulary, 1).unit;
        let even = self.vocabulary / PARTS;
        product.max(softmax).max(if even > 0 { 1 << even.ilog2() } else { 1 })
    }
}
