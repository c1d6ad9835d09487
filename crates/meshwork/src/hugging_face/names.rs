//! Which tensor of a file is which parameters, and how they lie in it.

use super::family::Family;
use crate::DType;
use crate::nn::{Module, Transformer, nearest};
use crate::tensor::{Tensor, concat};
use std::collections::HashMap;

/// The name of the logits' weights in both classes.
const HEAD: &str = "lm_head.weight";
/// Differences that are listed before the rest is only counted.
const LISTED: usize = 4;

/// A tensor of a file: one parameter, or several of them below each other.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name in the file.
    pub name: String,
    /// The parameters with their shapes.
    pub parts: Vec<(String, Vec<usize>)>,
    /// Whether the file has it as [in, out], as the `Conv1D` of GPT-2.
    pub transposed: bool,
}

impl Entry {
    /// Its shape in the file.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape = self.parts[0].1.clone();
        shape[0] = self.parts.iter().map(|(_, shape)| shape[0]).sum();
        if self.transposed {
            shape.reverse();
        }
        shape
    }

    /// Its number of elements.
    pub fn numel(&self) -> usize {
        self.shape().iter().product()
    }

    /// From the values of the parameters to the tensor.
    pub fn join(&self, values: &[&Tensor]) -> Tensor {
        let joined = concat(values, 0);
        if self.transposed { joined.t() } else { joined }
    }

    /// From the tensor to the values of the parameters, which are there when this returns.
    fn split(&self, tensor: &Tensor) -> Vec<(String, Tensor)> {
        let upright = if self.transposed { tensor.t() } else { tensor.clone() };
        let sizes: Vec<usize> = self.parts.iter().map(|(_, shape)| shape[0]).collect();
        let parts = upright.split(&sizes, 0);
        parts.iter().for_each(Tensor::eval);
        self.parts.iter().map(|(name, _)| name.clone()).zip(parts).collect()
    }
}

/// The tensors of a model's files, in the order of its layers.
pub fn entries(family: Family, model: &Transformer) -> Vec<Entry> {
    let shapes: HashMap<String, Vec<usize>> =
        model.named_parameters().into_iter().map(|(name, p)| (name, p.shape().to_vec())).collect();
    let mut found = Vec::new();
    // What the model has not (biases, say) is not in the file.
    let mut add = |theirs: &str, ours: &[&str], conv1d: bool| {
        for kind in ["weight", "bias"] {
            let parts = ours.iter().map(|layer| format!("{layer}.{kind}"));
            let parts: Vec<_> = parts.filter_map(|name| Some((name.clone(), shapes.get(&name)?.clone()))).collect();
            if !parts.is_empty() {
                found.push(Entry { name: format!("{theirs}.{kind}"), parts, transposed: conv1d && kind == "weight" });
            }
        }
    };
    let layers = model.config().layers;
    match family {
        Family::Gpt2 => {
            add("transformer.wte", &["embedding"], false);
            add("transformer.wpe", &["positions"], false);
            for i in 0..layers {
                let mut block = |theirs: &str, ours: &[&str], conv1d: bool| {
                    let ours: Vec<String> = ours.iter().map(|layer| format!("blocks.{i}.{layer}")).collect();
                    let ours: Vec<&str> = ours.iter().map(String::as_str).collect();
                    add(&format!("transformer.h.{i}.{theirs}"), &ours, conv1d);
                };
                block("ln_1", &["norm1"], false);
                block("attn.c_attn", &["attention.query", "attention.key", "attention.value"], true);
                block("attn.c_proj", &["attention.output"], true);
                block("ln_2", &["norm2"], false);
                block("mlp.c_fc", &["feed_forward.up"], true);
                block("mlp.c_proj", &["feed_forward.down"], true);
            }
            add("transformer.ln_f", &["norm"], false);
        }
        Family::Llama => {
            add("model.embed_tokens", &["embedding"], false);
            for i in 0..layers {
                let mut block = |theirs: &str, ours: &str| {
                    add(&format!("model.layers.{i}.{theirs}"), &[&format!("blocks.{i}.{ours}")], false);
                };
                block("input_layernorm", "norm1");
                block("self_attn.q_proj", "attention.query");
                block("self_attn.k_proj", "attention.key");
                block("self_attn.v_proj", "attention.value");
                block("self_attn.o_proj", "attention.output");
                block("post_attention_layernorm", "norm2");
                block("mlp.gate_proj", "feed_forward.gate");
                block("mlp.up_proj", "feed_forward.up");
                block("mlp.down_proj", "feed_forward.down");
            }
            add("model.norm", &["norm"], false);
        }
    }
    add("lm_head", &["head"], false);
    found
}

impl Family {
    /// What the names of all tensors but the logits' weights begin with; files of the bare model leave it out.
    fn prefix(self) -> &'static str {
        match self {
            Family::Gpt2 => "transformer.",
            Family::Llama => "model.",
        }
    }

    /// The name of the embeddings.
    fn embedding(self) -> &'static str {
        match self {
            Family::Gpt2 => "transformer.wte.weight",
            Family::Llama => "model.embed_tokens.weight",
        }
    }

    /// Whether a tensor of old files is a constant of the class, and no weight.
    fn is_constant(self, name: &str) -> bool {
        match self {
            Family::Gpt2 => name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"),
            Family::Llama => name.ends_with(".rotary_emb.inv_freq"),
        }
    }
}

/// The weights of a model while its files are read.
pub struct Arriving {
    family: Family,
    tied: bool,
    /// By name, without those that have arrived.
    awaited: HashMap<String, Entry>,
    /// In the order of the layers.
    names: Vec<String>,
    state: Vec<(String, Tensor)>,
    /// What a file of a tied model has for both ends, which must be equal.
    ends: HashMap<&'static str, Vec<u8>>,
    problems: Vec<String>,
}

impl Arriving {
    /// Awaits all weights of a model.
    pub fn new(family: Family, model: &Transformer) -> Arriving {
        let entries = entries(family, model);
        Arriving {
            family,
            tied: model.config().tied,
            names: entries.iter().map(|entry| entry.name.clone()).collect(),
            awaited: entries.into_iter().map(|entry| (entry.name.clone(), entry)).collect(),
            state: Vec::new(),
            ends: HashMap::new(),
            problems: Vec::new(),
        }
    }

    /// Takes the tensors of a file.
    pub fn take(&mut self, tensors: Vec<(String, Tensor)>) {
        let prefix = self.family.prefix();
        for (name, tensor) in tensors {
            let full = if name.starts_with(prefix) || name == HEAD { name.clone() } else { format!("{prefix}{name}") };
            if !self.family.is_constant(&full) {
                self.take_one(&name, full, &tensor);
            }
        }
    }

    fn take_one(&mut self, name: &str, full: String, tensor: &Tensor) {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        if !matches!(dtype, DType::F32 | DType::F16 | DType::BF16) {
            self.awaited.remove(&full);
            return self.problems.push(format!("{name} is {dtype}; supported are f32, f16 and bf16"));
        }
        let tensor = &tensor.to_dtype(DType::F32);
        if self.tied
            && let Some(end) = [HEAD, self.family.embedding()].into_iter().find(|end| *end == full)
        {
            self.ends.insert(end, tensor.to_bytes());
            if end == HEAD {
                return;
            }
        }
        let Some(entry) = self.awaited.remove(&full) else { return self.not_awaited(name, &full) };
        if shape != entry.shape() {
            return self.problems.push(format!("{name} has the shape {shape:?} and must have {:?}", entry.shape()));
        }
        self.state.extend(entry.split(tensor));
    }

    fn not_awaited(&mut self, name: &str, full: &str) {
        // Looking for names takes its time, which is wasted on what is not listed.
        let names: &[String] = if self.problems.len() < LISTED { &self.names } else { &[] };
        let nearest = || nearest(full, names.iter().map(String::as_str));
        let problem = match self.names.iter().any(|known| known == full) {
            true => "is there twice".to_string(),
            false => match nearest() {
                Some(nearest) => format!("is not expected (nearest: {nearest})"),
                None => "is not expected".to_string(),
            },
        };
        self.problems.push(format!("{name} {problem}"));
    }

    /// The state of the model.
    ///
    /// # Errors
    /// What is missing, too much or of another shape or type.
    pub fn finish(mut self) -> Result<Vec<(String, Tensor)>, String> {
        let missing = self.names.iter().filter(|name| self.awaited.contains_key(*name));
        self.problems.extend(missing.map(|name| format!("{name} is missing")));
        let embedding = self.family.embedding();
        if let (Some(head), Some(table)) = (self.ends.get(HEAD), self.ends.get(embedding))
            && head != table
        {
            let problem = format!("{HEAD} differs from {embedding}, though tie_word_embeddings says that they are one");
            self.problems.push(problem);
        }
        if self.problems.is_empty() {
            return Ok(self.state);
        }
        let more = self.problems.len().saturating_sub(LISTED);
        self.problems.truncate(LISTED);
        if more > 0 {
            self.problems.push(format!("and {more} differences more"));
        }
        Err(self.problems.join("; "))
    }
}
