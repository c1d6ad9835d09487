//! The sizes and kinds of a transformer's parts.

/// What a [`Transformer`](super::Transformer) is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Tokens that there are.
    pub vocabulary: usize,
    /// Tokens of the longest sequence.
    pub context: usize,
    /// Blocks.
    pub layers: usize,
    /// Features of a token between the blocks.
    pub width: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values, each read by `heads / kv_heads` heads of queries (Ainslie et al., 2023).
    pub kv_heads: usize,
    /// Features of a head.
    pub head_size: usize,
    /// Features inside a feed-forward layer.
    pub hidden: usize,
    /// How features are normalised before each layer and at the end.
    pub norm: NormKind,
    /// Added to the variance, or the mean square.
    pub norm_eps: f64,
    /// The function inside a feed-forward layer.
    pub activation: ActivationKind,
    /// How the model knows where a token is.
    pub positions: Positions,
    /// Whether linear layers have biases.
    pub bias: bool,
    /// Whether the logits are products with the embeddings themselves (Press and Wolf, 2017).
    pub tied: bool,
    /// Part of the embeddings and of each layer's result that is dropped in training.
    pub dropout: f64,
    /// Part of the attention probabilities that is dropped in training.
    pub attention_dropout: f64,
    /// Standard deviation of the first weights; of layers that end a residual branch, divided by √(2 · layers).
    pub init_std: f64,
}

/// A normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// [`LayerNorm`](crate::nn::LayerNorm)
    Layer,
    /// [`RmsNorm`](crate::nn::RmsNorm)
    Rms,
}

/// A function between two linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationKind {
    /// x · Φ(x)
    Gelu,
    /// Its approximation with tanh, as in GPT-2
    GeluTanh,
    /// silu(gate · x) · (up · x), with two linear layers (Shazeer, 2020)
    SwiGlu,
}

/// Where a token is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Positions {
    /// An embedding of each position, added to that of the token.
    Learned,
    /// Queries and keys are turned by angles in proportion to the position (Su et al., 2021).
    Rotary {
        /// The slowest pair of features turns by one radian in about so many positions.
        theta: f64,
    },
}

/// Sizes that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no transformer has {0}")]
pub struct ConfigError(String);

impl TransformerConfig {
    /// A model in the style of GPT-2 (Radford et al., 2019): learned positions, layer norms, GELU, biases, tied
    /// embeddings; feed-forward layers are four times as wide.
    pub fn gpt2(vocabulary: usize, context: usize, layers: usize, width: usize, heads: usize) -> TransformerConfig {
        TransformerConfig {
            vocabulary,
            context,
            layers,
            width,
            heads,
            kv_heads: heads,
            head_size: width / heads.max(1),
            hidden: 4 * width,
            norm: NormKind::Layer,
            norm_eps: 1e-5,
            activation: ActivationKind::GeluTanh,
            positions: Positions::Learned,
            bias: true,
            tied: true,
            dropout: 0.0,
            attention_dropout: 0.0,
            init_std: 0.02,
        }
    }

    /// A model in the style of Llama (Touvron et al., 2023): rotary positions, root-mean-square norms, SwiGLU, no biases,
    /// embeddings of their own at both ends; the three layers of a feed-forward layer have about as many weights as the two
    /// of GPT-2 have: they are 8/3 as wide, up to the next multiple of 32.
    pub fn llama(vocabulary: usize, context: usize, layers: usize, width: usize, heads: usize) -> TransformerConfig {
        TransformerConfig {
            hidden: (8 * width).div_ceil(3).next_multiple_of(32),
            norm: NormKind::Rms,
            activation: ActivationKind::SwiGlu,
            positions: Positions::Rotary { theta: 10_000.0 },
            bias: false,
            tied: false,
            ..TransformerConfig::gpt2(vocabulary, context, layers, width, heads)
        }
    }

    /// Checks that the sizes go together.
    ///
    /// # Errors
    /// When something has size 0, heads do not divide what they must, or rotary positions cannot pair the features.
    pub fn check(&self) -> Result<(), ConfigError> {
        let sizes = [
            ("tokens in its vocabulary", self.vocabulary),
            ("positions", self.context),
            ("blocks", self.layers),
            ("features", self.width),
            ("heads", self.heads),
            ("heads of keys and values", self.kv_heads),
            ("features in a head (more heads than features?)", self.head_size),
            ("features in its feed-forward layers", self.hidden),
        ];
        if let Some((what, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(ConfigError(format!("0 {what}")));
        }
        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ConfigError(format!(
                "{} heads of queries that share {} heads of keys: the second number must divide the first",
                self.heads, self.kv_heads
            )));
        }
        if matches!(self.positions, Positions::Rotary { .. }) && !self.head_size.is_multiple_of(2) {
            return Err(ConfigError(format!(
                "rotary positions and {} features in a head: they are turned in pairs, so their number must be even",
                self.head_size
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_do_not_go_together_are_named() {
        let said = |config: TransformerConfig| config.check().unwrap_err().to_string();
        let llama = TransformerConfig::llama(100, 16, 2, 48, 4);
        assert_eq!(llama.check(), Ok(()));
        assert_eq!((llama.head_size, llama.hidden), (12, 128));
        assert_eq!(said(TransformerConfig { layers: 0, ..llama }), "no transformer has 0 blocks");
        assert_eq!(
            said(TransformerConfig::gpt2(100, 16, 2, 4, 8)),
            "no transformer has 0 features in a head (more heads than features?)"
        );
        assert_eq!(
            said(TransformerConfig { kv_heads: 3, ..llama }),
            "no transformer has 4 heads of queries that share 3 heads of keys: the second number must divide the first"
        );
        assert_eq!(
            said(TransformerConfig { head_size: 3, ..llama }),
            "no transformer has rotary positions and 3 features in a head: they are turned in pairs, so their number must be even"
        );
    }
}
