//! A block: attention, then a feed-forward layer, each on normalised features and added to what it was given.

use super::cache::CacheOfLayer;
use super::feed_forward::FeedForward;
use super::self_attention::SelfAttention;
use super::{NormKind, TransformerConfig};
use crate::nn::{Dropout, LayerNorm, Module, RmsNorm, Visitor};
use crate::tensor::Tensor;

/// A block with the norms before its layers (Xiong et al., 2020).
#[derive(Debug, Module)]
pub struct Block {
    /// Before the attention.
    pub norm1: Norm,
    /// Tokens look at those before them.
    pub attention: SelfAttention,
    /// Of what the attention adds.
    pub dropout1: Dropout,
    /// Before the feed-forward layer.
    pub norm2: Norm,
    /// Each token by itself.
    pub feed_forward: FeedForward,
    /// Of what the feed-forward layer adds.
    pub dropout2: Dropout,
}

impl Block {
    /// A block of the model.
    pub fn new(config: &TransformerConfig) -> Block {
        Block {
            norm1: Norm::new(config),
            attention: SelfAttention::new(config),
            dropout1: Dropout::new(config.dropout),
            norm2: Norm::new(config),
            feed_forward: FeedForward::new(config),
            dropout2: Dropout::new(config.dropout),
        }
    }

    /// `[B, T, width]` to the same; see [`SelfAttention::forward`].
    #[track_caller]
    pub fn forward(&self, x: &Tensor, positions: &Tensor, cache: Option<CacheOfLayer<'_>>) -> Tensor {
        let mixed = self.attention.forward(&self.norm1.forward(x), positions, cache);
        let x = x + self.dropout1.forward(&mixed);
        let fed = self.feed_forward.forward(&self.norm2.forward(&x));
        &x + self.dropout2.forward(&fed)
    }
}

/// One of the kinds of normalisation.
#[derive(Debug)]
pub enum Norm {
    /// Mean and variance.
    Layer(LayerNorm),
    /// Mean square.
    Rms(RmsNorm),
}

impl Norm {
    /// As the model has it.
    pub fn new(config: &TransformerConfig) -> Norm {
        let &TransformerConfig { width, norm_eps, .. } = config;
        match config.norm {
            NormKind::Layer if config.bias => Norm::Layer(LayerNorm::new(width).eps(norm_eps)),
            NormKind::Layer => Norm::Layer(LayerNorm::new(width).eps(norm_eps).no_bias()),
            NormKind::Rms => Norm::Rms(RmsNorm::new(width).eps(norm_eps)),
        }
    }

    /// `[…, width]` to the same.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        match self {
            Norm::Layer(norm) => norm.forward(x),
            Norm::Rms(norm) => norm.forward(x),
        }
    }
}

impl Module for Norm {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Norm::Layer(norm) => norm.visit(visitor),
            Norm::Rms(norm) => norm.visit(visitor),
        }
    }
}
