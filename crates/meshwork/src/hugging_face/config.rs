//! Between `config.json` and the configuration of a transformer.

use super::family::Family;
use super::keys::Keys;
use super::{HuggingFaceError, Result};
use crate::nn::{ActivationKind, NormKind, Positions, TransformerConfig};
use serde_json::{Value, json};
use std::path::Path;

/// Sizes above are mistakes; more would only fail later.
const MOST: usize = 1 << 28;
/// As [`MOST`], of blocks.
const MOST_LAYERS: usize = 1 << 16;
/// The functions of feed-forward layers without gates.
const GELU: [(&str, ActivationKind); 3] = [
    ("gelu_new", ActivationKind::GeluTanh),
    ("gelu_pytorch_tanh", ActivationKind::GeluTanh),
    ("gelu", ActivationKind::Gelu),
];

/// Reads what a model is made of.
pub fn read(path: &Path) -> Result<(Family, TransformerConfig)> {
    let keys = Keys::read(path)?;
    let types = Family::ALL.map(|family| (family.model_type(), family));
    let family = keys.needed("model_type", keys.word("model_type", &types))?;
    keys.only("architectures", json!([family.class()]))?;
    keys.none("quantization_config")?;
    let config = match family {
        Family::Gpt2 => gpt2(&keys)?,
        Family::Llama => llama(&keys)?,
    };
    config.check().map_err(|source| HuggingFaceError::Sizes { path: path.to_owned(), source })?;
    Ok((family, config))
}

/// Describes a model.
pub fn write(family: Family, config: &TransformerConfig, end_of_text: Option<u32>) -> Value {
    let mut described = match family {
        Family::Gpt2 => to_gpt2(config),
        Family::Llama => to_llama(config),
    };
    described["architectures"] = json!([family.class()]);
    described["model_type"] = json!(family.model_type());
    described["vocab_size"] = json!(config.vocabulary);
    described["initializer_range"] = json!(config.init_std);
    described["tie_word_embeddings"] = json!(config.tied);
    described["bos_token_id"] = json!(end_of_text);
    described["eos_token_id"] = json!(end_of_text);
    described["dtype"] = json!("float32");
    described
}

fn gpt2(keys: &Keys) -> Result<TransformerConfig> {
    keys.only("scale_attn_weights", json!(true))?;
    keys.only("scale_attn_by_inverse_layer_idx", json!(false))?;
    keys.only("add_cross_attention", json!(false))?;
    let [vocabulary, context, width, heads] =
        each(["vocab_size", "n_positions", "n_embd", "n_head"], |key| size(keys, key))?;
    let layers = keys.needed("n_layer", keys.count("n_layer", MOST_LAYERS))?;
    if !width.is_multiple_of(heads) {
        return Err(keys.unsupported("n_head", &format!("a divisor of n_embd, {width}")));
    }
    let dropout = part(keys, "resid_pdrop", 0.1)?;
    if part(keys, "embd_pdrop", 0.1)? != dropout {
        return Err(keys.unsupported("embd_pdrop", &format!("the value of resid_pdrop, {dropout}")));
    }
    Ok(TransformerConfig {
        hidden: keys.count("n_inner", MOST)?.unwrap_or(4 * width),
        norm_eps: epsilon(keys, "layer_norm_epsilon", 1e-5)?,
        activation: keys.word("activation_function", &GELU)?.unwrap_or(ActivationKind::GeluTanh),
        tied: keys.flag("tie_word_embeddings", true)?,
        dropout,
        attention_dropout: part(keys, "attn_pdrop", 0.1)?,
        init_std: first_weights(keys)?,
        ..TransformerConfig::gpt2(vocabulary, context, layers, width, heads)
    })
}

fn to_gpt2(config: &TransformerConfig) -> Value {
    let activation = if config.activation == ActivationKind::Gelu { "gelu" } else { "gelu_new" };
    json!({
        "n_positions": config.context,
        "n_embd": config.width,
        "n_layer": config.layers,
        "n_head": config.heads,
        "n_inner": (config.hidden != 4 * config.width).then_some(config.hidden),
        "activation_function": activation,
        "layer_norm_epsilon": config.norm_eps,
        "embd_pdrop": config.dropout,
        "resid_pdrop": config.dropout,
        "attn_pdrop": config.attention_dropout,
    })
}

fn llama(keys: &Keys) -> Result<TransformerConfig> {
    keys.none("sliding_window")?;
    keys.word("hidden_act", &[("silu", ()), ("swish", ())])?;
    let [vocabulary, context, width, heads, hidden] = each(
        ["vocab_size", "max_position_embeddings", "hidden_size", "num_attention_heads", "intermediate_size"],
        |key| size(keys, key),
    )?;
    let layers = keys.needed("num_hidden_layers", keys.count("num_hidden_layers", MOST_LAYERS))?;
    if !width.is_multiple_of(heads) {
        return Err(keys.unsupported("num_attention_heads", &format!("a divisor of hidden_size, {width}")));
    }
    let bias = keys.flag("attention_bias", false)?;
    if keys.flag("mlp_bias", false)? != bias {
        return Err(keys.unsupported("mlp_bias", &format!("the value of attention_bias, {bias}")));
    }
    Ok(TransformerConfig {
        vocabulary,
        context,
        layers,
        width,
        heads,
        kv_heads: keys.count("num_key_value_heads", MOST)?.unwrap_or(heads),
        head_size: keys.count("head_dim", MOST)?.unwrap_or(width / heads),
        hidden,
        norm: NormKind::Rms,
        norm_eps: epsilon(keys, "rms_norm_eps", 1e-6)?,
        activation: ActivationKind::SwiGlu,
        positions: Positions::Rotary { theta: rotary(keys)? },
        bias,
        tied: keys.flag("tie_word_embeddings", false)?,
        dropout: 0.0,
        attention_dropout: part(keys, "attention_dropout", 0.0)?,
        init_std: first_weights(keys)?,
    })
}

/// Theta of plain rotary positions: in `rope_parameters` since version 5 of `transformers`, beside `rope_scaling` before.
fn rotary(keys: &Keys) -> Result<f64> {
    let theta = |keys: &Keys, default: f64| keys.number("rope_theta", default, "a number above 0", |n| n > 0.0);
    let outside = theta(keys, 10_000.0)?;
    for (key, within) in [("rope_parameters", "rope_parameters."), ("rope_scaling", "rope_scaling.")] {
        let Some(inside) = keys.object(key, within)? else { continue };
        ["rope_type", "type"].into_iter().try_for_each(|key| inside.only(key, json!("default")))?;
        inside.number("partial_rotary_factor", 1.0, "1", |n| n == 1.0)?;
        return theta(&inside, outside);
    }
    keys.number("partial_rotary_factor", 1.0, "1", |n| n == 1.0)?;
    Ok(outside)
}

fn to_llama(config: &TransformerConfig) -> Value {
    let Positions::Rotary { theta } = config.positions else { unreachable!("a Llama has rotary positions") };
    json!({
        "max_position_embeddings": config.context,
        "hidden_size": config.width,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "intermediate_size": config.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": config.norm_eps,
        "rope_parameters": { "rope_type": "default", "rope_theta": theta },
        // Versions before 5 look here.
        "rope_theta": theta,
        "attention_bias": config.bias,
        "mlp_bias": config.bias,
        "attention_dropout": config.attention_dropout,
    })
}

fn each<const N: usize>(keys: [&str; N], size: impl Fn(&str) -> Result<usize>) -> Result<[usize; N]> {
    let mut sizes = [0; N];
    for (slot, key) in sizes.iter_mut().zip(keys) {
        *slot = size(key)?;
    }
    Ok(sizes)
}

fn size(keys: &Keys, key: &str) -> Result<usize> {
    keys.needed(key, keys.count(key, MOST))
}

fn part(keys: &Keys, key: &str, default: f64) -> Result<f64> {
    keys.number(key, default, "a number from 0 to below 1", |n| (0.0..1.0).contains(&n))
}

fn epsilon(keys: &Keys, key: &str, default: f64) -> Result<f64> {
    keys.number(key, default, "a number of at least 0", |n| n >= 0.0)
}

fn first_weights(keys: &Keys) -> Result<f64> {
    keys.number("initializer_range", 0.02, "a number of at least 0", |n| n >= 0.0)
}
