//! Everything that can be said on the command line.

use crate::bench::parallel::Exercise;
use crate::bench::{conv, gemm, pool};
use crate::devices::Devices;
use crate::language::{LanguageArgs, SizeArgs};
use crate::large_batch::LargeBatchArgs;
use crate::layout::LayoutArgs;
use crate::metrics::{Target, target};
use crate::values::*;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Trains neural networks on everything you have; the result does not depend on the layout.
#[derive(Parser, Debug)]
#[command(name = "meshwork", version, about, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Train a model
    Train(Box<TrainArgs>),
    /// Write text with a language model that was trained
    Generate(GenerateArgs),
    /// Write a language model that was trained as a folder of Hugging Face
    Export(ExportArgs),
    /// Show the program of one training step: kernels, shapes, FLOPs, bytes, memory
    Explain(ExplainArgs),
    /// Measure how fast this machine runs, beside what it can do at most
    Bench(BenchArgs),
    /// Watch a training that runs: its step, loss and speed, the cores, queues and memory
    Top(TopArgs),
    /// Write a page about a training: loss, speed, memory, settings
    Report(ReportArgs),
    /// Draw a timeline that --trace has written
    Trace(TraceArgs),
    /// Show the devices
    Devices(DevicesArgs),
}

/// Flags of `train`. A configuration file has the same names. All are optional, so that it can be told what was
/// given and what was not.
#[derive(Args, Clone, Debug, Default)]
#[command(args_override_self = true, allow_negative_numbers = true)]
pub struct TrainArgs {
    /// The model
    #[arg(value_enum, value_name = "MODEL")]
    pub positional_model: Option<ModelName>,
    /// The model, as in configuration files
    #[arg(long, value_enum, hide = true)]
    pub model: Option<ModelName>,

    /// Data set: fashion-mnist, mnist, digits, or the path of a folder or table; for language models source (this program's
    /// own documentation and source), or the path of a text or a folder of texts [default: digits; source]
    #[arg(long, value_name = "NAME|PATH", value_parser = text, help_heading = "Data")]
    pub data: Option<String>,
    /// Samples of a batch [default: 32]
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Data")]
    pub batch: Option<u64>,
    /// Order of the samples [default: shuffled]
    #[arg(long, value_enum, value_name = "ORDER", help_heading = "Data")]
    pub order: Option<OrderName>,
    /// What is done to training images [default: affine for shuffled digits, else none]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Data")]
    pub augment: Option<AugmentName>,

    /// Epochs of the whole run [default: 100 for digits, 1 for text, else 10]
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Training")]
    pub epochs: Option<u64>,
    /// Steps of the whole run; without --epochs the only limit
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Training")]
    pub steps: Option<u64>,
    /// What products and attention compute on; weights, sums, norms and losses are f32 [default: f32]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Training")]
    pub precision: Option<PrecisionName>,
    /// Scale of the loss that f16 begins with [default: 65536]
    #[arg(long, value_name = "X", value_parser = positive, help_heading = "Training")]
    pub initial_loss_scale: Option<f64>,
    /// Scale of the loss below which an overflow does not take it [default: 1]
    #[arg(long, value_name = "X", value_parser = positive, help_heading = "Training")]
    pub min_loss_scale: Option<f64>,
    /// Steps without an overflow after which the scale of the loss grows [default: 2000]
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Training")]
    pub loss_scale_window: Option<u64>,
    /// Factor by which the scale of the loss grows then [default: 2]
    #[arg(long, value_name = "X", value_parser = at_least_one, help_heading = "Training")]
    pub loss_scale_growth: Option<f64>,
    /// Factor of the scale of the loss at an overflow [default: 0.5]
    #[arg(long, value_name = "X", value_parser = between, help_heading = "Training")]
    pub loss_scale_backoff: Option<f64>,
    /// Seed of everything random [default: 0]
    #[arg(long, value_name = "N", value_parser = whole, help_heading = "Training")]
    pub seed: Option<u64>,
    /// Weights to begin with
    #[arg(long, value_name = "FILE.safetensors", value_parser = path, help_heading = "Training")]
    pub init: Option<PathBuf>,

    /// Optimizer [default: adam; adamw for language models]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Optimizer")]
    pub optimizer: Option<OptimizerName>,
    /// Learning rate [default: adam, adamw 0.003 (language models 0.001), rmsprop 0.001, adagrad, lamb 0.01, sgd 0.1, lars 1]
    #[arg(long, value_name = "RATE", value_parser = not_negative, help_heading = "Optimizer")]
    pub lr: Option<f64>,
    /// Momentum (sgd, rmsprop, lars) [default: lars 0.9, others 0]
    #[arg(long, value_name = "X", value_parser = part, help_heading = "Optimizer")]
    pub momentum: Option<f64>,
    /// Nesterov's momentum (sgd)
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        help_heading = "Optimizer"
    )]
    pub nesterov: Option<bool>,
    /// Weight decay; of language models only of matrices [default: adamw (language models 0.1), lamb 0.01, lars 0.0001,
    /// others 0]
    #[arg(long, value_name = "X", value_parser = not_negative, help_heading = "Optimizer")]
    pub weight_decay: Option<f64>,
    /// Decay of the mean of gradients (adam, adamw, lamb) [default: 0.9]
    #[arg(long, value_name = "X", value_parser = part, help_heading = "Optimizer")]
    pub beta1: Option<f64>,
    /// Decay of the mean of squares (adam, adamw, lamb) [default: 0.999]
    #[arg(long, value_name = "X", value_parser = part, help_heading = "Optimizer")]
    pub beta2: Option<f64>,
    /// Decay of the mean of squares (rmsprop) [default: 0.99]
    #[arg(long, value_name = "X", value_parser = part, help_heading = "Optimizer")]
    pub alpha: Option<f64>,
    /// Added to denominators (all but sgd) [default: adagrad 1e-10, lamb 1e-6, others 1e-8]
    #[arg(long, value_name = "X", value_parser = not_negative, help_heading = "Optimizer")]
    pub eps: Option<f64>,

    /// Scale gradients down whose global norm is larger; 0 for never [default: 0; language models 1]
    #[arg(long, value_name = "X", value_parser = not_negative, help_heading = "Optimizer")]
    pub max_norm: Option<f64>,
    /// Average the weights with this decay, such as 0.999; 0 for not [default: 0]
    #[arg(long, value_name = "DECAY", value_parser = part, help_heading = "Optimizer")]
    pub ema: Option<f64>,
    /// Have the average follow the first weights closely
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        help_heading = "Optimizer"
    )]
    pub ema_warmup: Option<bool>,
    /// End the run before an update by a loss or gradients that are not finite; the run is saved as it was before
    /// [default: true]
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        help_heading = "Optimizer"
    )]
    pub check_finite: Option<bool>,

    /// How the learning rate changes [default: constant; cosine where optimizer, rate and length are the default ones]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Schedule")]
    pub schedule: Option<ScheduleName>,
    /// Steps in which the rate first rises from 0, or from --lr to the scaled rate (not one-cycle) [default: 0]
    #[arg(long, value_name = "STEPS", value_parser = whole, help_heading = "Schedule")]
    pub warmup: Option<u64>,
    /// Steps between two changes (step) [default: a third of the run]
    #[arg(long, value_name = "STEPS", value_parser = count, help_heading = "Schedule")]
    pub step_size: Option<u64>,
    /// Factor of a change (step) [default: 0.1]
    #[arg(long, value_name = "X", value_parser = positive, help_heading = "Schedule")]
    pub gamma: Option<f64>,
    /// Rate at the end (cosine, linear) [default: 0]
    #[arg(long, value_name = "RATE", value_parser = not_negative, help_heading = "Schedule")]
    pub min_lr: Option<f64>,

    #[command(flatten)]
    pub large_batch: LargeBatchArgs,
    #[command(flatten)]
    pub language: LanguageArgs,

    /// Threads of each device; the result does not depend on them [default: all cores]
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Layout")]
    pub threads: Option<u64>,
    #[command(flatten)]
    pub layout: LayoutArgs,
    /// Samples of a batch of the test set [default: as many as of --batch, or as --memory-limit allows]
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Layout")]
    pub test_batch: Option<u64>,
    /// Compute as few blocks again as a step needs to take no more than SIZE of each device, such as 2GiB
    #[arg(long, value_name = "SIZE", value_parser = bytes, help_heading = "Layout")]
    pub memory_limit: Option<usize>,

    /// Folder for checkpoints; DIR/model.safetensors holds the newest weights
    #[arg(long, value_name = "DIR", value_parser = path, help_heading = "Files")]
    pub save: Option<PathBuf>,
    /// Save every N steps [default: after every epoch]
    #[arg(long, value_name = "N", value_parser = count, help_heading = "Files")]
    pub save_every: Option<u64>,
    /// Save to a folder that holds checkpoints of another run
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        help_heading = "Files"
    )]
    pub overwrite: Option<bool>,
    /// Go on with the run saved in DIR, with its settings, and save there
    #[arg(long, value_name = "DIR", value_parser = path, help_heading = "Files")]
    pub resume: Option<PathBuf>,
    /// Write a line of JSON for every step and epoch
    #[arg(long, value_name = "FILE.jsonl", value_parser = path, help_heading = "Files")]
    pub log: Option<PathBuf>,
    /// Write loss, gradient norm, speed, TFLOP/s, share of the peak and memory of every step to FILE.jsonl, FILE.csv, or a
    /// folder for TensorBoard; may be given several times [default: DIR/metrics.jsonl with --save DIR]
    #[arg(long, value_name = "PATH", value_parser = target, help_heading = "Files")]
    pub metrics: Vec<Target>,
    /// Write a timeline of every kernel, copy and wait; meshwork trace FILE draws it
    #[arg(long, value_name = "FILE.json", value_parser = path, help_heading = "Files")]
    pub trace: Option<PathBuf>,
    /// Watch the training as `meshwork top` does
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true,
        help_heading = "View"
    )]
    pub top: Option<bool>,
    /// Read settings from a file; flags win
    #[arg(long, value_name = "FILE.toml", value_parser = path, help_heading = "Files")]
    pub config: Option<PathBuf>,
}

/// Flags of `generate`.
#[derive(Args, Debug)]
pub struct GenerateArgs {
    /// Folder that a training of gpt or llama was saved to, or one of Hugging Face: config.json, safetensors, tokenizer.json
    #[arg(long, value_name = "DIR", value_parser = path)]
    pub checkpoint: PathBuf,
    /// Use the averaged weights of a training with --ema
    #[arg(long)]
    pub ema: bool,
    /// What the text begins with
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub prompt: String,
    /// Tokens to write, unless the text ends before
    #[arg(long, value_name = "N", value_parser = count, default_value = "256")]
    pub tokens: u64,
    /// Below 1 likely tokens become likelier; at 0 the likeliest is always taken
    #[arg(long, value_name = "X", value_parser = not_negative, default_value = "0.8")]
    pub temperature: f64,
    /// Choose between so many of the likeliest tokens only
    #[arg(long, value_name = "N", value_parser = count)]
    pub top_k: Option<u64>,
    /// Choose between the likeliest tokens only that together have this probability
    #[arg(long, value_name = "X", value_parser = probability)]
    pub top_p: Option<f64>,
    /// Another seed, another text
    #[arg(long, value_name = "N", value_parser = whole, default_value = "0")]
    pub seed: u64,
    /// Threads; the text does not depend on them [default: all cores]
    #[arg(long, value_name = "N", value_parser = count)]
    pub threads: Option<u64>,
}

/// Flags of `export`.
#[derive(Args, Debug)]
pub struct ExportArgs {
    /// Folder that a training of gpt or llama was saved to
    #[arg(long, value_name = "DIR", value_parser = path)]
    pub checkpoint: PathBuf,
    /// Write the averaged weights of a training with --ema
    #[arg(long)]
    pub ema: bool,
    /// Folder to write, which must be new or empty
    #[arg(long, value_name = "DIR", value_parser = path)]
    pub to: PathBuf,
    /// Bytes of weights in one file, above which there are several
    #[arg(long, value_name = "N", value_parser = count, default_value = "5000000000")]
    pub max_shard_bytes: u64,
}

/// Flags of `explain`.
#[derive(Args, Debug)]
pub struct ExplainArgs {
    /// The model
    #[arg(value_enum, value_name = "MODEL")]
    pub model: ModelName,
    /// Samples of a batch
    #[arg(long, value_name = "N", value_parser = count, default_value = "64")]
    pub batch: u64,
    /// Optimizer
    #[arg(long, value_enum, value_name = "NAME", default_value = "adam")]
    pub optimizer: OptimizerName,
    /// What products and attention compute on
    #[arg(long, value_enum, value_name = "NAME", default_value = "f32")]
    pub precision: PrecisionName,
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Tokens that there are (gpt, llama)
    #[arg(long, value_name = "N", value_parser = count, default_value = "512")]
    pub vocabulary: u64,
    #[command(flatten)]
    pub layout: LayoutArgs,
}

/// Flags of `report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Folder that a training was saved to, or the FILE.jsonl of its --metrics
    #[arg(value_name = "RUN", value_parser = path)]
    pub run: PathBuf,
    /// The page [default: RUN/report.html; beside a file, its name with .html]
    #[arg(long, value_name = "FILE.html", value_parser = path)]
    pub to: Option<PathBuf>,
    /// A timeline of --trace, to be summed up on the page
    #[arg(long, value_name = "FILE.json", value_parser = path)]
    pub timeline: Option<PathBuf>,
}

/// Flags of `top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Process of the training, or the folder that it saves to [default: the one that runs]
    #[arg(value_name = "PID|DIR")]
    pub target: Option<String>,
    /// Print lines, as is done where there is no terminal
    #[arg(long)]
    pub plain: bool,
    /// Time between two lines
    #[arg(long, value_name = "SECONDS", value_parser = interval, default_value = "1")]
    pub interval: f64,
}

/// Flags of `devices`.
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// CPU devices: cpu:N, or the cores of each, such as cpu:0-1,2-3 [default: one with all cores]
    #[arg(long, value_name = "DEVICES")]
    pub devices: Option<Devices>,
}

/// `bench` and what it measures.
#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// What `bench` measures.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Matrix products, in GFLOP/s beside the processor's peak
    Gemm(GemmArgs),
    /// Elementwise operations and reductions, in GB/s beside the bandwidth of memory
    Elementwise(ElementwiseArgs),
    /// Convolutions and their gradients, in GFLOP/s beside the processor's peak
    Conv(ConvArgs),
    /// Pooling and its gradients, in GB/s beside the bandwidth of memory
    Pool(PoolArgs),
    /// Training steps of a model on one batch of random numbers
    Train(Box<TrainBenchArgs>),
    /// What runs at the same time, beside what the dependencies of the work allow
    Parallel(ParallelArgs),
}

/// Flags of every measurement.
#[derive(Args, Debug)]
pub struct BenchCommon {
    /// Threads of each device [default: all cores]
    #[arg(long, value_name = "N", value_parser = count)]
    pub threads: Option<u64>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Flags of `bench gemm`.
#[derive(Args, Debug)]
pub struct GemmArgs {
    /// Measure this product alone: MxKxN or BATCHxMxKxN, with -tn, -nt or -tt where operands lie transposed, or -grad for the
    /// gradient of a weight from K samples; may be given several times
    #[arg(long, value_name = "SIZES", value_parser = gemm::parse)]
    pub shape: Vec<gemm::Product>,
    /// Type of the numbers
    #[arg(long, value_enum, value_name = "NAME", default_value = "f32")]
    pub dtype: PrecisionName,
    #[command(flatten)]
    pub common: BenchCommon,
}

/// Flags of `bench elementwise`.
#[derive(Args, Debug)]
pub struct ElementwiseArgs {
    /// Rows and columns of the matrices
    #[arg(long, value_name = "N", value_parser = count, default_value = "10000")]
    pub size: u64,
    #[command(flatten)]
    pub common: BenchCommon,
}

/// Flags of `bench conv`.
#[derive(Args, Debug)]
pub struct ConvArgs {
    /// Measure this layer alone, such as 16x64x56x56-128x3x3-s2-p1: input (samples, channels, sizes), kernel (channels of the
    /// output, sizes), then -s, -p, -d and -g for stride, padding, dilation and groups; may be given several times
    #[arg(long, value_name = "LAYER", value_parser = conv::parse)]
    pub layer: Vec<conv::Layer>,
    #[command(flatten)]
    pub common: BenchCommon,
}

/// Flags of `bench pool`.
#[derive(Args, Debug)]
pub struct PoolArgs {
    /// Measure this layer alone, such as max-16x64x56x56-3x3-s2-p1 or avg-16x64x56x56-2x2: input (samples, channels, sizes) and window
    /// (sizes), then -s, -p and, for maxima, -d for stride, padding and dilation; may be given several times
    #[arg(long, value_name = "LAYER", value_parser = pool::parse)]
    pub layer: Vec<pool::Layer>,
    #[command(flatten)]
    pub common: BenchCommon,
}

/// Flags of `bench train`.
#[derive(Args, Debug)]
pub struct TrainBenchArgs {
    /// The model
    #[arg(value_enum, value_name = "MODEL")]
    pub model: ModelName,
    /// Samples of a batch
    #[arg(long, value_name = "N", value_parser = count, default_value = "256")]
    pub batch: u64,
    /// Steps that are timed
    #[arg(long, value_name = "N", value_parser = count, default_value = "60")]
    pub steps: u64,
    /// Optimizer
    #[arg(long, value_enum, value_name = "NAME", default_value = "sgd")]
    pub optimizer: OptimizerName,
    /// What products and attention compute on; the loss is not scaled
    #[arg(long, value_enum, value_name = "NAME", default_value = "f32")]
    pub precision: PrecisionName,
    /// Check in every step that loss and gradients are finite, as `meshwork train` does
    #[arg(long)]
    pub check_finite: bool,
    #[command(flatten)]
    pub sizes: SizeArgs,
    /// Tokens that there are (gpt, llama)
    #[arg(long, value_name = "N", value_parser = count, default_value = "512")]
    pub vocabulary: u64,
    /// Write a timeline of the timed steps; meshwork trace FILE draws it
    #[arg(long, value_name = "FILE.json", value_parser = path)]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub layout: LayoutArgs,
    #[command(flatten)]
    pub common: BenchCommon,
}

/// Flags of `trace`.
#[derive(Args, Debug)]
#[command(allow_negative_numbers = true)]
pub struct TraceArgs {
    /// A timeline of --trace, or Chrome trace events of another program
    #[arg(value_name = "FILE", value_parser = path)]
    pub file: PathBuf,
    /// Draw it as a picture into this file
    #[arg(long, value_name = "OUT.svg", value_parser = path)]
    pub svg: Option<PathBuf>,
    /// Begin here, in milliseconds since the first span [default: 0]
    #[arg(long, value_name = "MS", value_parser = not_negative)]
    pub from: Option<f64>,
    /// End here [default: the end]
    #[arg(long, value_name = "MS", value_parser = not_negative)]
    pub to: Option<f64>,
    /// Columns, or pixels of the picture [default: as wide as the terminal; 1500 pixels]
    #[arg(long, value_name = "N", value_parser = width)]
    pub width: Option<u64>,
}

/// Flags of `bench parallel`.
#[derive(Args, Debug)]
pub struct ParallelArgs {
    /// CPU devices, at least two: cpu:N, or the cores of each, such as cpu:0-1,2-3 [default: as each exercise needs]
    #[arg(long, value_name = "DEVICES")]
    pub devices: Option<Devices>,
    /// Measure this exercise alone; may be given several times
    #[arg(long, value_enum, value_name = "NAME")]
    pub exercise: Vec<Exercise>,
    /// Rows and columns of matrices, width of layers, elements of vectors [default: a few seconds an exercise]
    #[arg(long, value_name = "N", value_parser = count)]
    pub size: Option<u64>,
    /// Products (two, copies, issue) [default: 20; 100 flat ones for copies]
    #[arg(long, value_name = "N", value_parser = count)]
    pub count: Option<u64>,
    /// Write a timeline of all rounds; meshwork trace FILE draws it
    #[arg(long, value_name = "FILE", value_parser = path)]
    pub trace: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
