//! `meshwork bench pool`: pooling and its gradients.

use super::gemm::random;
use super::layer::{by, fits, options, or_all, sizes, write_options};
use super::machine::Machine;
use super::report::{Report, Row, Unit};
use super::timing::seconds;
use crate::args::PoolArgs;
use crate::failure::Failure;
use meshwork::Tensor;
use meshwork::tensor::{PoolOptions, grad_with};

/// A pooling of one, two or three spatial dimensions, with the same padding and dilation in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Maxima, or else means.
    max: bool,
    /// Samples, channels, spatial sizes.
    input: Vec<usize>,
    /// Spatial sizes of a window.
    kernel: Vec<usize>,
    /// The same in all dimensions; windows that lie side by side where it is missing.
    stride: Option<usize>,
    padding: usize,
    dilation: usize,
}

/// What is measured where nothing is named: layers of known networks, each number of dimensions at least once.
const LAYERS: [&str; 12] = [
    // LeNet; VGG.
    "avg-256x20x26x26-2x2",
    "avg-256x50x9x9-2x2",
    "max-16x64x112x112-2x2",
    // Residual networks, Inception.
    "max-16x64x112x112-3x3-s2-p1",
    "avg-16x512x7x7-7x7",
    "max-16x192x28x28-3x3-s1-p1",
    "avg-16x192x28x28-3x3-s1-p1",
    // Sound, volumes.
    "max-32x64x4096-4",
    "avg-32x64x4096-8-s4",
    "max-4x64x16x56x56-2x2x2",
    "max-4x64x16x28x28-3x3x3-s2-p1",
    "avg-4x64x16x28x28-2x2x2",
];

/// Parses `max-16x64x56x56-3x3-s2-p1-d1`: what the windows give (`max` or `avg`), the input (samples, channels, spatial sizes) and
/// the window, then stride, padding and, for maxima, dilation where they are not the window's size, 0 and 1.
pub fn parse(text: &str) -> Result<Layer, String> {
    let layer = layer(text).ok_or_else(|| {
        "a layer such as max-16x64x56x56-3x3-s2-p1 or avg-16x64x56x56-2x2 (input and window, with -s, -p and, for maxima, -d for \
         stride, padding and dilation)"
            .to_string()
    })?;
    let fits = fits(&layer.kernel, &layer.input[2..], layer.padding, layer.dilation).unwrap_or(false);
    let half = layer.kernel.iter().all(|size| layer.padding <= size / 2);
    (fits && half)
        .then_some(layer)
        .ok_or_else(|| "a layer whose window fits its input, with a padding of at most half the window".to_string())
}

/// What the words say; no more dimensions than there are, and as many in the window as in the input.
fn layer(text: &str) -> Option<Layer> {
    let mut words = text.split('-');
    let max = match words.next()? {
        "max" => true,
        "avg" => false,
        _ => return None,
    };
    let (input, kernel) = (sizes(words.next()?)?, sizes(words.next()?)?);
    let (mut stride, mut padding, mut dilation) = (0, 0, 1);
    let mut numbers = [("s", &mut stride), ("p", &mut padding), ("d", &mut dilation)];
    options(words, &mut numbers[..if max { 3 } else { 2 }])?;
    let stride = (stride > 0).then_some(stride);
    ((1..=3).contains(&kernel.len()) && input.len() == kernel.len() + 2).then_some(Layer {
        max,
        input,
        kernel,
        stride,
        padding,
        dilation,
    })
}

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}-{}", if self.max { "max" } else { "avg" }, by(&self.input), by(&self.kernel))?;
        write_options(f, &[("s", self.stride.unwrap_or(0), 0), ("p", self.padding, 0), ("d", self.dilation, 1)])
    }
}

impl Layer {
    fn of(&self, x: &Tensor) -> Tensor {
        let options = PoolOptions {
            stride: self.stride.map(Into::into),
            padding: self.padding.into(),
            dilation: self.dilation.into(),
            ..self.kernel.as_slice().into()
        };
        match (self.kernel.len(), self.max) {
            (1, false) => x.avg_pool1d(options),
            (1, true) => x.max_pool1d(options),
            (2, false) => x.avg_pool2d(options),
            (2, true) => x.max_pool2d(options),
            (_, false) => x.avg_pool3d(options),
            (_, true) => x.max_pool3d(options),
        }
    }
}

/// Measures the layers, forward and backward: the bytes of the input, the result and their gradients that each must read or write.
pub fn run(args: &PoolArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let copy = machine.bandwidth().copy / 1e9;
    let mut report = Report::begin("pool", &machine, Unit::Bytes, &[("copy", copy)], args.common.json);
    for layer in or_all(&args.layer, &LAYERS, parse)? {
        let x = random(&layer.input)?.variable();
        let dy = random(layer.of(&x).shape())?;
        let mut row = |what: &str, inputs: usize, work: &mut dyn FnMut() -> Tensor| {
            let (name, amount) = (format!("{layer} {what}"), 4e-9 * (inputs * x.numel() + dy.numel()) as f64);
            report.row(&Row { name, seconds: seconds(work), amount, bound: copy });
        };
        row("forward", 1, &mut || layer.of(&x).detach());
        // Where maxima lie is in the input.
        let inputs = if layer.max { 2 } else { 1 };
        row("gradient", inputs, &mut || grad_with(&[&layer.of(&x)], Some(&[&dy]), &[&x], false).remove(0));
    }
    report.end();
    Ok(())
}
