//! The models that are trained.

use meshwork::mesh::{Placement, Rule};
use meshwork::nn::*;
use meshwork::prelude::Tensor;
use meshwork::tensor::{manual_seed, rand, randn};
use meshwork::train::BuiltIn;
use meshwork::{DType, nn};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A model with its data and what is split along the axis `tensor`.
pub struct Subject {
    pub name: &'static str,
    pub model: Box<dyn nn::Layer>,
    pub inputs: fn(usize) -> Tensor,
    pub classes: usize,
    /// Dimensions of the inputs, besides the samples, of which each element has a class.
    pub labelled: usize,
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
    Subject { name, model: model.build(), inputs, classes: 10, labelled: 0, places: model.tensor_plan() }
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
    let places = vec![cut("embedding.weight", 1), cut("hidden.*", 0), cut("norm.*", 0), cut("back.weight", 1)];
    Subject { name: "small", model: Box::new(model), inputs, classes: WORDS, labelled: 0, places }
}

/// Strided and grouped convolutions, batch normalisation, pools whose windows overlap.
#[derive(Debug, Module)]
pub struct Convolutions {
    first: Conv2d,
    norm: BatchNorm2d,
    pool: MaxPool2d,
    grouped: Conv2d,
    norm2: BatchNorm2d,
    mean: AvgPool2d,
    out: Linear,
}

impl Layer for Convolutions {
    /// Images `[N, 3, 13, 11]` to logits `[N, 7]`.
    fn forward(&self, images: &Tensor) -> Tensor {
        let x = self.pool.forward(&self.norm.forward(&self.first.forward(images)).relu());
        let x = self.norm2.forward(&self.grouped.forward(&x)).silu();
        self.out.forward(&self.mean.forward(&x).flatten(1))
    }
}

pub fn convolutions() -> Subject {
    let model = Convolutions {
        first: Conv2d::new(3, 12, [3, 2]).stride([2, 1]).padding(1),
        norm: BatchNorm2d::new(12),
        pool: MaxPool2d::new(3).stride(2).padding(1),
        grouped: Conv2d::new(12, 9, [2, 3]).groups(3),
        norm2: BatchNorm2d::new(9),
        mean: AvgPool2d::new(2).stride(1),
        out: Linear::new(9 * 2 * 3, 7),
    };
    let places = vec![cut("first.*", 0), cut("norm.*", 0), cut("grouped.*", 0), cut("out.weight", 1)];
    let inputs = |batch: usize| randn(&[batch, 3, 13, 11]);
    Subject { name: "convolutions", model: Box::new(model), inputs, classes: 7, labelled: 0, places }
}

/// A multi-layer perceptron whose first layer is not trained, and neither is one of its biases.
pub fn frozen() -> Subject {
    let subject = mlp();
    for (name, parameter) in subject.model.named_parameters() {
        parameter.set_requires_grad(!name.starts_with("fc1.") && name != "fc2.bias");
    }
    Subject { name: "frozen", ..subject }
}

/// Two branches that are taken in turn, each on its own for some steps.
#[derive(Debug, Module)]
pub struct Branches {
    trunk: Linear,
    left: Linear,
    right: Linear,
    #[module(skip)]
    turn: AtomicUsize,
}

impl Layer for Branches {
    /// `[N, 20]` to `[N, 9]`: left, left and right, right, and so on.
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.trunk.forward(x).tanh();
        match self.turn.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => self.left.forward(&x),
            1 => self.left.forward(&x) + self.right.forward(&x),
            _ => self.right.forward(&x),
        }
    }
}

pub fn branches() -> Subject {
    let model = Branches {
        trunk: Linear::new(20, 64),
        left: Linear::new(64, 9),
        right: Linear::new(64, 9),
        turn: AtomicUsize::new(0),
    };
    let places = vec![cut("trunk.*", 0), cut("left.weight", 1), cut("right.weight", 0)];
    Subject {
        name: "branches",
        model: Box::new(model),
        inputs: |batch| randn(&[batch, 20]),
        classes: 9,
        labelled: 0,
        places,
    }
}

/// Layers of certain types of numbers.
#[derive(Debug, Module)]
pub struct Typed {
    first: Parameter,
    bias: Parameter,
    second: Parameter,
    third: Parameter,
}

impl Layer for Typed {
    /// `[N, 33]` to `[N, 11]`: each layer computes in the type of its weight.
    fn forward(&self, x: &Tensor) -> Tensor {
        let bias = self.bias.value();
        let x = x.to_dtype(self.first.dtype()).linear(&self.first.value(), Some(&bias)).relu();
        let x = x.to_dtype(self.second.dtype()).linear(&self.second.value(), None).tanh();
        x.to_dtype(self.third.dtype()).linear(&self.third.value(), None)
    }
}

fn typed(name: &'static str, [first, second, third]: [DType; 3]) -> Subject {
    let weight = |shape: &[usize], dtype| Parameter::of_dtype(shape, dtype, init::xavier_uniform(1.0));
    let model = Typed {
        first: weight(&[70, 33], first),
        bias: Parameter::of_dtype(&[70], first, init::uniform(0.2)),
        second: weight(&[130, 70], second),
        third: weight(&[11, 130], third),
    };
    let places = vec![cut("first", 0), cut("bias", 0), cut("second", 1), cut("third", 0)];
    Subject { name, model: Box::new(model), inputs: |batch| randn(&[batch, 33]), classes: 11, labelled: 0, places }
}

pub fn precise() -> Subject {
    typed("precise", [DType::F64; 3])
}

pub fn halves() -> Subject {
    typed("halves", [DType::BF16, DType::F16, DType::F32])
}

/// Tokens `[N, 9]` to the token after each.
fn text(name: &'static str, config: TransformerConfig) -> Subject {
    let model = Transformer::new(config);
    let inputs = |batch: usize| (rand(&[batch, 9]) * WORDS as f64).floor().to_dtype(DType::I64);
    Subject { name, model: Box::new(model), inputs, classes: WORDS, labelled: 1, places: config.tensor_plan() }
}

pub fn gpt() -> Subject {
    let config = TransformerConfig::gpt2(WORDS, 9, 2, 48, 4);
    text("gpt", TransformerConfig { dropout: 0.1, attention_dropout: 0.1, ..config })
}

pub fn llama() -> Subject {
    let config = TransformerConfig::llama(WORDS, 12, 2, 36, 6);
    text("llama", TransformerConfig { kv_heads: 3, ..config })
}

/// A vocabulary that is cut along `tensor` into uneven parts, with tied embeddings.
pub fn gpt_of_many_words() -> Subject {
    of_many_words("gpt of many words", TransformerConfig::gpt2(257, 9, 1, 48, 4))
}

/// And with embeddings of their own at both ends.
pub fn llama_of_many_words() -> Subject {
    of_many_words("llama of many words", TransformerConfig::llama(131, 9, 1, 36, 6))
}

fn of_many_words(name: &'static str, config: TransformerConfig) -> Subject {
    let subject = text(name, config);
    assert!(subject.places.iter().any(|rule| rule.matches("embedding.weight")), "{name}: the vocabulary is not cut");
    Subject {
        classes: config.vocabulary,
        inputs: |batch| (rand(&[batch, 9]) * 131.0).floor().to_dtype(DType::I64),
        ..subject
    }
}

/// Layers with more parameters than are gathered at once, the first of which are used again.
#[derive(Debug, Module)]
pub struct Deep {
    layers: Vec<Linear>,
    out: Linear,
}

impl Layer for Deep {
    /// `[N, 210]` to `[N, 9]`.
    fn forward(&self, x: &Tensor) -> Tensor {
        let again = self.layers[..2].iter();
        let x = self.layers.iter().chain(again).fold(x.clone(), |x, layer| layer.forward(&x).tanh());
        self.out.forward(&x)
    }
}

pub fn deep() -> Subject {
    let model = Deep { layers: (0..6).map(|_| Linear::new(210, 210)).collect(), out: Linear::new(210, 9) };
    let places = vec![cut("layers.1.*", 0), cut("layers.2.weight", 1)];
    Subject {
        name: "deep",
        model: Box::new(model),
        inputs: |batch| randn(&[batch, 210]),
        classes: 9,
        labelled: 0,
        places,
    }
}

/// Splits a dimension of parameters along the axis `tensor`.
fn cut(name: &str, dim: usize) -> Rule {
    Rule::new(name, [("tensor", Placement::split(dim))])
}

/// Batches of these sizes, with labels.
pub fn batches(subject: &Subject, sizes: &[usize]) -> Vec<(Tensor, Tensor)> {
    manual_seed(7);
    let batch = |&size: &usize| {
        let inputs = (subject.inputs)(size);
        let shape = [&[size], &inputs.shape()[1..=subject.labelled]].concat();
        let count = shape.iter().product::<usize>();
        let labels: Vec<i64> = (0..count).map(|i| ((7 * i + 3) % subject.classes) as i64).collect();
        (inputs, Tensor::from_slice(&labels, &shape))
    };
    let batches: Vec<_> = sizes.iter().map(batch).collect();
    meshwork::synchronize();
    batches
}
