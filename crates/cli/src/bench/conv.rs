//! `meshwork bench conv`: convolutions and their gradients.

use super::gemm::random;
use super::layer::{by, fits, options, or_all, sizes, write_options};
use super::machine::Machine;
use super::report::{Report, Row, Unit};
use super::timing::seconds;
use crate::args::ConvArgs;
use crate::failure::Failure;
use meshwork::Tensor;
use meshwork::tensor::{ConvOptions, Precision, grad_with};

/// A convolution of one, two or three spatial dimensions, with the same stride, padding and dilation in all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Samples, channels, spatial sizes.
    input: Vec<usize>,
    /// Channels of the output, spatial sizes.
    kernel: Vec<usize>,
    stride: usize,
    padding: usize,
    dilation: usize,
    groups: usize,
}

/// What is measured where nothing is named: layers of known networks, each number of dimensions at least once.
const LAYERS: [&str; 12] = [
    // LeNet.
    "256x1x28x28-20x3x3",
    "256x20x13x13-50x5x5",
    // Residual networks.
    "8x3x224x224-64x7x7-s2-p3",
    "16x64x56x56-64x3x3-p1",
    "16x128x28x28-256x3x3-s2-p1",
    "16x256x14x14-512x1x1",
    "16x512x7x7-512x3x3-p1",
    // Depth by depth, in groups, with holes.
    "16x96x56x56-96x3x3-p1-g96",
    "16x256x14x14-256x3x3-p1-g32",
    "8x256x28x28-256x3x3-p2-d2",
    // Sound, volumes.
    "32x64x1024-128x5-p2",
    "4x32x16x16x16-64x3x3x3-p1",
];

/// Parses `16x64x56x56-128x3x3-s2-p1-d1-g1`: the input (samples, channels, spatial sizes), the kernel (channels of the output,
/// spatial sizes), then stride, padding, dilation and groups where they are not 1, 0, 1 and 1.
pub fn parse(text: &str) -> Result<Layer, String> {
    let layer = layer(text).ok_or_else(|| {
        "a layer such as 16x64x56x56-128x3x3-s2-p1 (input, channels and size of the kernel, with -s, -p, -d and -g for stride, \
         padding, dilation and groups)"
            .to_string()
    })?;
    let fits = layer.fits().unwrap_or(false);
    fits.then_some(layer).ok_or_else(|| "a layer whose kernel and groups fit its input".to_string())
}

/// What the words say; no more dimensions than there are, and as many in the kernel as in the input.
fn layer(text: &str) -> Option<Layer> {
    let mut words = text.split('-');
    let (input, kernel) = (sizes(words.next()?)?, sizes(words.next()?)?);
    let mut layer = Layer { input, kernel, stride: 1, padding: 0, dilation: 1, groups: 1 };
    let Layer { stride, padding, dilation, groups, .. } = &mut layer;
    options(words, &mut [("s", stride), ("p", padding), ("d", dilation), ("g", groups)])?;
    ((2..=4).contains(&layer.kernel.len()) && layer.input.len() == layer.kernel.len() + 1).then_some(layer)
}

impl std::fmt::Display for Layer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", by(&self.input), by(&self.kernel))?;
        write_options(
            f,
            &[("s", self.stride, 1), ("p", self.padding, 0), ("d", self.dilation, 1), ("g", self.groups, 1)],
        )
    }
}

impl Layer {
    /// Whether groups divide the channels, and the kernel lies in the padded input; `None` where that is beyond all numbers.
    fn fits(&self) -> Option<bool> {
        let groups = self.input[1].is_multiple_of(self.groups) && self.kernel[0].is_multiple_of(self.groups);
        Some(groups && fits(&self.kernel[1..], &self.input[2..], self.padding, self.dilation)?)
    }

    fn options(&self) -> ConvOptions {
        ConvOptions {
            stride: self.stride.into(),
            padding: self.padding.into(),
            dilation: self.dilation.into(),
            groups: self.groups,
        }
    }

    /// `[O, C / groups, spatial sizes]`.
    fn weight(&self) -> Vec<usize> {
        [&[self.kernel[0], self.input[1] / self.groups], &self.kernel[1..]].concat()
    }

    fn of(&self, x: &Tensor, w: &Tensor) -> Tensor {
        let options = self.options();
        match self.input.len() {
            3 => x.conv1d(w, None, &options),
            4 => x.conv2d(w, None, &options),
            _ => x.conv3d(w, None, &options),
        }
    }
}

/// Measures the layers, forward and backward.
pub fn run(args: &ConvArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let peak = machine.peak(Precision::F32);
    let mut report = Report::begin("conv", &machine, Unit::Flops, &[("peak", peak)], args.common.json);
    for layer in or_all(&args.layer, &LAYERS, parse)? {
        let weight = layer.weight();
        let (x, w) = (random(&layer.input)?.variable(), random(&weight)?.variable());
        let y = layer.of(&x, &w);
        let dy = random(y.shape())?;
        let taps: usize = weight[1..].iter().product();
        let flops = 2.0 * y.numel() as f64 * taps as f64;
        let mut row = |what: &str, work: &mut dyn FnMut() -> Tensor| {
            let name = format!("{layer} {what}");
            report.row(&Row { name, seconds: seconds(work), amount: flops / 1e9, bound: peak });
        };
        row("forward", &mut || layer.of(&x, &w).detach());
        row("input gradient", &mut || grad_with(&[&layer.of(&x, &w)], Some(&[&dy]), &[&x], false).remove(0));
        row("weight gradient", &mut || grad_with(&[&layer.of(&x, &w)], Some(&[&dy]), &[&w], false).remove(0));
    }
    report.end();
    Ok(())
}
