//! Models of random layers.

use super::dice::Dice;
use meshwork::DType;
use meshwork::nn::*;
use meshwork::tensor::{Tensor, rand, randn};
use std::sync::Arc;

/// What a model is given, for so many samples.
#[derive(Clone, Debug)]
pub enum Inputs {
    /// `[N, …]`, normally distributed.
    Numbers(Vec<usize>),
    /// `[N, length]` words.
    Words { length: usize, words: usize },
}

impl Inputs {
    pub fn batch(&self, samples: usize) -> Tensor {
        match self {
            Inputs::Numbers(shape) => randn(&[&[samples], &shape[..]].concat()),
            Inputs::Words { length, words } => (rand(&[samples, *length]) * *words as f64).floor().to_dtype(DType::I64),
        }
    }
}

/// A stem, layers from features to features, and logits.
#[derive(Module)]
pub struct Net {
    stem: Box<dyn Layer>,
    body: Vec<Box<dyn Layer>>,
    head: Box<dyn Layer>,
    #[module(skip)]
    pub inputs: Inputs,
    #[module(skip)]
    pub classes: usize,
    /// Whether there are norms of the batch, which need two samples.
    #[module(skip)]
    pub needs_two: bool,
    /// Whether the inputs are sequences of vectors.
    #[module(skip)]
    pub is_sequence: bool,
    /// What it is made of.
    #[module(skip)]
    pub words: Vec<String>,
}

impl Net {
    /// The features after each layer, and the logits `[N, classes]`.
    pub fn run(&self, x: &Tensor) -> (Vec<Tensor>, Tensor) {
        let mut features = vec![self.stem.forward(x)];
        for layer in &self.body {
            features.push(layer.forward(&features[features.len() - 1]));
        }
        let logits = self.head.forward(&features[features.len() - 1]);
        (features, logits)
    }

    pub fn random(dice: &mut Dice) -> Net {
        let mut words = Vec::new();
        let mut needs_two;
        let is_large = dice.percent(15);
        let random_width = |dice: &mut Dice| if is_large { dice.within(200, 500) } else { random_width(dice) };
        let Stem { layer: stem, inputs, mut width, table } = Stem::random(dice, &random_width, &mut words);
        needs_two = words[0].ends_with("batch norm");
        let is_sequence = words[0].starts_with("sequence");
        let mut body: Vec<Box<dyn Layer>> = Vec::new();
        // Layers that may be used again, with their widths.
        let mut squares: Vec<(usize, Arc<dyn Layer>)> = Vec::new();
        for _ in 0..dice.within(if is_large { 3 } else { 0 }, 7) {
            let again = squares.iter().filter(|(w, _)| *w == width).map(|(_, layer)| layer.clone()).collect::<Vec<_>>();
            let (word, layer): (String, Box<dyn Layer>) = match dice.below(if again.is_empty() { 10 } else { 13 }) {
                0 | 1 => {
                    let next = random_width(dice);
                    let layer = linear(dice, width, next);
                    width = next;
                    (format!("linear {next}"), layer)
                }
                2 | 3 => {
                    let layer: Arc<dyn Layer> = Arc::from(linear(dice, width, width));
                    squares.push((width, layer.clone()));
                    ("square".to_string(), Box::new(layer))
                }
                4 => {
                    let inner: Arc<dyn Layer> = Arc::from(linear(dice, width, width));
                    squares.push((width, inner.clone()));
                    ("residual".to_string(), Box::new(Residual { inner }))
                }
                5 => {
                    let next = random_width(dice);
                    let layer = Box::new(Branches {
                        left: linear(dice, width, next),
                        right: linear(dice, width, next),
                        multiplies: dice.percent(40),
                    });
                    width = next;
                    (format!("branches {next}"), layer)
                }
                6 => {
                    needs_two = true;
                    ("batch norm".to_string(), Box::new(BatchNorm1d::new(width)))
                }
                7 if dice.percent(50) => ("rms norm".to_string(), Box::new(RmsNorm::new(width))),
                7 => ("layer norm".to_string(), Box::new(LayerNorm::new(width))),
                8 => ("dropout".to_string(), Box::new(Dropout::new(0.25))),
                9 => ("activation".to_string(), Box::new(Activation::random(dice))),
                _ => ("again".to_string(), Box::new(dice.one_of(&again))),
            };
            words.push(word);
            body.push(layer);
        }
        let tied = table.filter(|_| dice.percent(40));
        let classes = tied.as_ref().map_or_else(|| dice.within(1, 30), |table| table.weight.shape()[0]);
        let head: Box<dyn Layer> = match tied {
            Some(table) => Box::new(Tied { back: Linear::new(width, table.weight.shape()[1]), table }),
            None => Box::new(Linear::new(width, classes)),
        };
        words.push(format!("out {classes}"));
        Net { stem, body, head, inputs, classes, needs_two, is_sequence, words }
    }
}

impl Layer for Net {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.run(x).1
    }
}

/// Mostly small, sometimes such that a layer has more than a quarter of a MiB of weights.
fn random_width(dice: &mut Dice) -> usize {
    match dice.below(10) {
        0..5 => dice.within(1, 48),
        5..7 => dice.one_of(&[32, 64, 128, 256]),
        7..9 => dice.within(49, 300),
        _ => dice.within(301, 600),
    }
}

fn linear(dice: &mut Dice, from: usize, to: usize) -> Box<dyn Layer> {
    let linear = if dice.percent(20) { Linear::new(from, to).no_bias() } else { Linear::new(from, to) };
    if dice.percent(60) { Box::new(Then { linear, activation: Activation::random(dice) }) } else { Box::new(linear) }
}

/// From inputs to features.
struct Stem {
    layer: Box<dyn Layer>,
    inputs: Inputs,
    width: usize,
    /// The embedding that it looks words up in.
    table: Option<Arc<Embedding>>,
}

impl Stem {
    fn random(dice: &mut Dice, random_width: &dyn Fn(&mut Dice) -> usize, words: &mut Vec<String>) -> Stem {
        match dice.below(8) {
            0 | 1 => {
                let (channels, size) = (dice.within(1, 3), dice.within(6, 11));
                let (filters, kernel, stride) = (dice.within(1, 20), dice.within(1, 3), dice.within(1, 2));
                let after = ((size + 2 - kernel) / stride).div_ceil(2);
                let norm = dice.percent(40).then(|| BatchNorm2d::new(filters));
                let with = if norm.is_some() { ", batch norm" } else { "" };
                words.push(format!("images {channels}×{size}×{size}, {filters} filters {kernel}/{stride}{with}"));
                let conv = Conv2d::new(channels, filters, kernel).stride(stride).padding(1);
                let layer = Box::new(Images { conv, norm, largest: dice.percent(50) });
                let inputs = Inputs::Numbers(vec![channels, size, size]);
                Stem { layer, inputs, width: filters * after * after, table: None }
            }
            2 | 3 => {
                let (length, entries, size) = (dice.within(1, 6), dice.within(1, 90), random_width(dice).min(200));
                let mean = dice.percent(50);
                words.push(format!("words {length} of {entries}, size {size}"));
                let table = Arc::new(Embedding::new(entries, size));
                let layer = Box::new(Words { table: table.clone(), mean });
                let inputs = Inputs::Words { length, words: entries };
                Stem { layer, inputs, width: if mean { size } else { length * size }, table: Some(table) }
            }
            4 => {
                let (length, size, width) = (dice.within(1, 9), dice.within(1, 40), random_width(dice));
                let attends = dice.percent(50);
                words.push(format!("sequence {length}×{size} to {width}, attention: {attends}"));
                let layer =
                    Box::new(Sequences { first: Linear::new(size, width), norm: LayerNorm::new(width), attends });
                Stem { layer, inputs: Inputs::Numbers(vec![length, size]), width, table: None }
            }
            _ => {
                let (size, width) = (random_width(dice), random_width(dice));
                words.push(format!("features {size} to {width}"));
                Stem { layer: linear(dice, size, width), inputs: Inputs::Numbers(vec![size]), width, table: None }
            }
        }
    }
}

/// An activation by number.
#[derive(Debug, Module)]
struct Activation {
    kind: usize,
}

impl Activation {
    fn random(dice: &mut Dice) -> Activation {
        Activation { kind: dice.below(6) }
    }
}

impl Layer for Activation {
    fn forward(&self, x: &Tensor) -> Tensor {
        match self.kind {
            0 => x.relu(),
            1 => x.tanh(),
            2 => x.gelu(),
            3 => x.silu(),
            4 => x.softmax(-1),
            _ => x.sigmoid(),
        }
    }
}

#[derive(Debug, Module)]
struct Then {
    linear: Linear,
    activation: Activation,
}

impl Layer for Then {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.activation.forward(&self.linear.forward(x))
    }
}

#[derive(Module)]
struct Residual {
    inner: Arc<dyn Layer>,
}

impl Layer for Residual {
    fn forward(&self, x: &Tensor) -> Tensor {
        x + self.inner.forward(x)
    }
}

/// The sum of two ways, or their product.
#[derive(Module)]
struct Branches {
    left: Box<dyn Layer>,
    right: Box<dyn Layer>,
    multiplies: bool,
}

impl Layer for Branches {
    fn forward(&self, x: &Tensor) -> Tensor {
        let (left, right) = (self.left.forward(x), self.right.forward(x));
        if self.multiplies { left * right.sigmoid() } else { left + right }
    }
}

#[derive(Debug, Module)]
struct Images {
    conv: Conv2d,
    norm: Option<BatchNorm2d>,
    largest: bool,
}

impl Layer for Images {
    fn forward(&self, x: &Tensor) -> Tensor {
        let mut x = self.conv.forward(x);
        if let Some(norm) = &self.norm {
            x = norm.forward(&x);
        }
        let x = x.relu();
        let x = if self.largest { MaxPool2d::new(2).forward(&x) } else { AvgPool2d::new(2).forward(&x) };
        x.flatten(1)
    }
}

#[derive(Debug, Module)]
struct Words {
    table: Arc<Embedding>,
    mean: bool,
}

impl Layer for Words {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.table.forward(x);
        if self.mean { x.mean(1) } else { x.flatten(1) }
    }
}

/// Position by position, or with attention of each to all; then the mean over the positions.
#[derive(Debug, Module)]
struct Sequences {
    first: Linear,
    norm: LayerNorm,
    attends: bool,
}

impl Layer for Sequences {
    fn forward(&self, x: &Tensor) -> Tensor {
        let x = self.norm.forward(&self.first.forward(x));
        if !self.attends {
            return x.gelu().mean(1);
        }
        let scores = x.matmul(&x.transpose(1, 2)).softmax(-1);
        scores.matmul(&x).mean(1)
    }
}

/// Logits by the table that words were looked up in.
#[derive(Debug, Module)]
struct Tied {
    back: Linear,
    table: Arc<Embedding>,
}

impl Layer for Tied {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.back.forward(x).matmul(&self.table.weight.value().t())
    }
}
