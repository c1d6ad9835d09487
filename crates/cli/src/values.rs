//! Values of flags and keys, and what is allowed for each.

use clap::ValueEnum;
use meshwork::tensor::Precision;
use std::path::PathBuf;

/// A model that is known by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelName {
    /// Two convolutions, two fully connected layers
    Lenet,
    /// Two fully connected layers
    Mlp,
    /// A transformer in the style of GPT-2
    Gpt,
    /// A transformer in the style of Llama
    Llama,
}

impl ModelName {
    /// Whether the model reads text.
    pub fn is_language(self) -> bool {
        matches!(self, ModelName::Gpt | ModelName::Llama)
    }
}

/// An optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptimizerName {
    /// Stochastic gradient descent
    Sgd,
    /// Adam
    Adam,
    /// Adam with decoupled weight decay
    Adamw,
    /// RMSprop
    Rmsprop,
    /// Adagrad
    Adagrad,
    /// Momentum with a rate for every layer, for large batches
    Lars,
    /// Adam with a rate for every layer, for large batches
    Lamb,
}

/// What products and attention compute on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// 32-bit floats
    #[default]
    F32,
    /// bfloat16; weights, sums, norms and losses are f32
    Bf16,
    /// 16-bit floats with a scaled loss; weights, sums, norms and losses are f32
    F16,
}

impl PrecisionName {
    /// The library's.
    pub fn precision(self) -> Precision {
        match self {
            PrecisionName::F32 => Precision::F32,
            PrecisionName::Bf16 => Precision::BF16,
            PrecisionName::F16 => Precision::F16,
        }
    }
}

/// How the learning rate changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScheduleName {
    /// Not at all
    Constant,
    /// Times --gamma every --step-size steps
    Step,
    /// Along half a cosine to --min-lr at the end
    Cosine,
    /// Along a line to --min-lr at the end
    Linear,
    /// Up to --lr, then far below the start
    OneCycle,
}

/// How the learning rate follows the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScalingName {
    /// Not at all
    None,
    /// As the batch over --base-batch
    Linear,
    /// As the root of the batch over --base-batch
    Sqrt,
}

/// The order of the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderName {
    /// As the data numbers them
    Sequential,
    /// Another permutation in each epoch
    Shuffled,
}

/// What is done to training images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AugmentName {
    /// Nothing
    None,
    /// Turned, scaled, slanted and shifted at random, anew in each epoch
    Affine,
}

/// The name that is written on the command line.
pub fn name_of<V: ValueEnum>(value: V) -> String {
    value.to_possible_value().map(|v| v.get_name().to_string()).unwrap_or_default()
}

/// A whole number of at least 1.
pub fn count(text: &str) -> Result<u64, String> {
    match text.parse::<u64>() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err("a whole number of at least 1, such as 64".to_string()),
    }
}

/// How many blocks are computed again: a number, `all` or `none`.
pub fn recompute(text: &str) -> Result<usize, String> {
    match text {
        "all" => Ok(usize::MAX),
        "none" => Ok(0),
        number => number.parse().map_err(|_| "a number of blocks, all or none".to_string()),
    }
}

/// An amount of memory, such as `2GiB`.
pub fn bytes(text: &str) -> Result<usize, String> {
    const UNITS: [(&str, u64); 7] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("B", 1),
    ];
    let found = UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?.trim_end(), *size)));
    let amount = found.and_then(|(number, size)| Some(number.parse::<f64>().ok()? * size as f64));
    let amount = amount.filter(|bytes| *bytes >= 1.0 && *bytes < usize::MAX as f64);
    amount.map(|bytes| bytes as usize).ok_or_else(|| "an amount of memory, such as 512MiB or 2GiB".to_string())
}

/// How wide a drawing can be.
pub fn width(text: &str) -> Result<u64, String> {
    let wanted = "a whole number from 40 to 20000";
    text.parse().ok().filter(|n| (40..=20_000).contains(n)).ok_or_else(|| wanted.to_string())
}

/// A whole number of at least 0.
pub fn whole(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "a whole number from 0 to 18446744073709551615".to_string())
}

fn number(text: &str, allowed: impl Fn(f64) -> bool, wanted: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && allowed(x) => Ok(x),
        _ => Err(wanted.to_string()),
    }
}

/// A number above 0.
pub fn positive(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0, "a number above 0, such as 0.001")
}

/// A number of at least 0.
pub fn not_negative(text: &str) -> Result<f64, String> {
    number(text, |x| x >= 0.0, "a number of at least 0, such as 0.0001")
}

/// A number from 0 up to, not including, 1.
pub fn part(text: &str) -> Result<f64, String> {
    number(text, |x| (0.0..1.0).contains(&x), "a number of at least 0 and below 1, such as 0.9")
}

/// A number above 0 and below 1.
pub fn between(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0 && x < 1.0, "a number above 0 and below 1, such as 0.5")
}

/// A number of at least 1.
pub fn at_least_one(text: &str) -> Result<f64, String> {
    number(text, |x| x >= 1.0, "a number of at least 1, such as 2")
}

/// A number above 0, up to 1.
pub fn probability(text: &str) -> Result<f64, String> {
    number(text, |x| x > 0.0 && x <= 1.0, "a number above 0, up to 1, such as 0.9")
}

/// Seconds that it makes sense to wait.
pub fn interval(text: &str) -> Result<f64, String> {
    number(text, |x| (0.05..=3600.0).contains(&x), "a number of seconds from 0.05 to 3600")
}

/// Text that is not empty.
pub fn text(text: &str) -> Result<String, String> {
    if text.is_empty() { Err("a name or a path".to_string()) } else { Ok(text.to_string()) }
}

/// A path that is not empty.
pub fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("a path".to_string()) } else { Ok(PathBuf::from(text)) }
}
