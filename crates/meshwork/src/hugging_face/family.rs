//! The classes of `transformers` that are transformers of Meshwork.

use crate::nn::{ActivationKind, NormKind, Positions, TransformerConfig};

/// A class of models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `GPT2LMHeadModel`
    Gpt2,
    /// `LlamaForCausalLM`
    Llama,
}

impl Family {
    /// Each of them.
    pub const ALL: [Family; 2] = [Family::Gpt2, Family::Llama];

    /// What `config.json` calls it under `model_type`.
    pub fn model_type(self) -> &'static str {
        match self {
            Family::Gpt2 => "gpt2",
            Family::Llama => "llama",
        }
    }

    /// The name of the class.
    pub fn class(self) -> &'static str {
        match self {
            Family::Gpt2 => "GPT2LMHeadModel",
            Family::Llama => "LlamaForCausalLM",
        }
    }

    /// The class that a model can be.
    ///
    /// # Errors
    /// What the nearest one has otherwise.
    pub fn of(config: &TransformerConfig) -> Result<Family, String> {
        let family = match config.positions {
            Positions::Learned => Family::Gpt2,
            Positions::Rotary { .. } => Family::Llama,
        };
        let &TransformerConfig { width, heads, kv_heads, head_size, norm, activation, bias, .. } = config;
        let needs = match family {
            Family::Gpt2 => vec![
                (norm == NormKind::Layer, "layer norms".to_string()),
                (activation != ActivationKind::SwiGlu, "GELU between two linear layers".to_string()),
                (bias, "biases".to_string()),
                (kv_heads == heads, format!("as many heads of keys as of queries, not {kv_heads} of {heads}")),
                (
                    heads * head_size == width,
                    format!("as many features in all heads as in a token, not {heads} · {head_size} of {width}"),
                ),
            ],
            Family::Llama => vec![
                (norm == NormKind::Rms, "root-mean-square norms".to_string()),
                (activation == ActivationKind::SwiGlu, "SwiGLU".to_string()),
                (width.is_multiple_of(heads), format!("heads that divide the features, not {heads} of {width}")),
            ],
        };
        let wanting: Vec<String> = needs.into_iter().filter(|(met, _)| !met).map(|(_, need)| need).collect();
        match wanting.is_empty() {
            true => Ok(family),
            false => {
                Err(format!("its positions are those of {}, which has {}", family.class(), wanting.join(", and ")))
            }
        }
    }
}
