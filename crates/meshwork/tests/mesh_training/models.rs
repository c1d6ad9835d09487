//! The models that are trained.

use meshwork::mesh::{Placement, Rule};
use meshwork::nn::*;
use meshwork::prelude::Tensor;
use meshwork::tensor::{arange, manual_seed, rand, randn};
use meshwork::train::BuiltIn;
use meshwork::{DType, nn};

/// A model with its data and what is split along the axis `tensor`.
pub struct Subject {
    pub name: &'static str,
    pub model: Box<dyn nn::Layer>,
    pub inputs: fn(usize) -> Tensor,
    pub classes: usize,
    pub places: Vec<Rule>,
}

pub fn lenet() -> Subject {
    images("lenet", BuiltIn::LeNet)
}

pub fn mlp() -> Subject {
    images("mlp", BuiltIn::Mlp)
}

fn images(name: &'static str, model: BuiltIn) -> Subject {
    let inputs = |batch: usize| randn(&[batch, 1, 28, 28]);
    Subject { name, model: model.build(), inputs, classes: 10, places: model.tensor_plan() }
}

/// Embeddings that are used again as the output layer, batch normalisation, dropout, sizes that nothing divides.
#[derive(Debug, Module)]
pub struct Small {
    embedding: Embedding,
    hidden: Linear,
    norm: BatchNorm1d,
    dropout: Dropout,
    back: Linear,
    layer_norm: LayerNorm,
}

const WORDS: usize = 23;
const WIDTH: usize = 36;

impl Layer for Small {
    /// Words `[N, 5]` to logits `[N, WORDS]`.
    fn forward(&self, words: &Tensor) -> Tensor {
        let x = self.embedding.forward(&words.to_dtype(DType::I64)).mean(1);
        let x = self.dropout.forward(&self.norm.forward(&self.hidden.forward(&x)).gelu());
        let x = self.layer_norm.forward(&self.back.forward(&x));
        x.matmul(&self.embedding.weight.value().transpose(0, 1))
    }
}

pub fn small() -> Subject {
    let model = Small {
        embedding: Embedding::new(WORDS, WIDTH),
        hidden: Linear::new(WIDTH, 70),
        norm: BatchNorm1d::new(70),
        dropout: Dropout::new(0.3),
        back: Linear::new(70, WIDTH),
        layer_norm: LayerNorm::new(WIDTH),
    };
    let inputs = |batch: usize| (rand(&[batch, 5]) * WORDS as f64).floor();
    let cut = |name: &str, dim: usize| Rule::new(name, [("tensor", Placement::split(dim))]);
    let places = vec![cut("embedding.weight", 1), cut("hidden.*", 0), cut("norm.*", 0), cut("back.weight", 1)];
    Subject { name: "small", model: Box::new(model), inputs, classes: WORDS, places }
}

/// Batches and labels: whole ones, and a last one of another size.
pub fn batches(subject: &Subject) -> Vec<(Tensor, Tensor)> {
    manual_seed(7);
    let batch = |size: usize| {
        let labels = (arange(size, DType::I64) * 7i64 + 3i64).to_dtype(DType::F32) / subject.classes as f64;
        let labels =
            ((&labels - labels.floor()) * subject.classes as f64).round().minimum((subject.classes - 1) as f64);
        ((subject.inputs)(size), labels.to_dtype(DType::I64))
    };
    let batches: Vec<_> = [22, 22, 22, 5].into_iter().map(batch).collect();
    meshwork::synchronize();
    batches
}
