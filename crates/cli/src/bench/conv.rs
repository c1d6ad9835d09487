//! `meshwork bench conv`: convolutions and their gradients.

use super::gemm::random;
use super::machine::Machine;
use super::report::{Report, Row, Unit};
use super::timing::seconds;
use crate::args::ConvArgs;
use crate::failure::Failure;
use meshwork::Tensor;
use meshwork::tensor::{ConvOptions, Precision, grad_with};

/// Name, input, weight, stride, padding.
type Layer = (&'static str, &'static [usize], &'static [usize], usize, usize);

const LAYERS: [Layer; 8] = [
    ("LeNet 1", &[256, 1, 28, 28], &[20, 1, 3, 3], 1, 0),
    ("LeNet 2", &[256, 20, 13, 13], &[50, 20, 5, 5], 1, 0),
    ("3x3", &[16, 64, 56, 56], &[64, 64, 3, 3], 1, 1),
    ("3x3 stride 2", &[16, 128, 28, 28], &[256, 128, 3, 3], 2, 1),
    ("1x1", &[16, 256, 14, 14], &[512, 256, 1, 1], 1, 0),
    ("7x7 stride 2", &[8, 3, 224, 224], &[64, 3, 7, 7], 2, 3),
    ("1d, 5", &[32, 64, 1024], &[128, 64, 5], 1, 2),
    ("3d, 3x3x3", &[4, 32, 16, 16, 16], &[64, 32, 3, 3, 3], 1, 1),
];

/// Measures layers of known networks, one of each dimension at least.
pub fn run(args: &ConvArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let peak = machine.peak(Precision::F32);
    let mut report = Report::begin("conv", &machine, Unit::Flops, &[("peak", peak)], args.common.json);
    for (name, input, weight, stride, padding) in LAYERS {
        let (x, w) = (random(input)?.variable(), random(weight)?.variable());
        let options = ConvOptions { stride: stride.into(), padding: padding.into(), ..ConvOptions::default() };
        let conv = |x: &Tensor, w: &Tensor| match input.len() {
            3 => x.conv1d(w, None, &options),
            4 => x.conv2d(w, None, &options),
            _ => x.conv3d(w, None, &options),
        };
        let y = conv(&x, &w);
        let dy = random(y.shape())?;
        let taps: usize = weight[1..].iter().product();
        let flops = 2.0 * (y.numel() * taps) as f64;
        let mut row = |what: &str, work: &mut dyn FnMut() -> Tensor| {
            let name = format!("{name} {input:?} {what}");
            report.row(&Row { name, seconds: seconds(work), amount: flops / 1e9, bound: peak });
        };
        row("forward", &mut || conv(&x, &w).detach());
        row("input gradient", &mut || grad_with(&[&conv(&x, &w)], Some(&[&dy]), &[&x], false).remove(0));
        row("weight gradient", &mut || grad_with(&[&conv(&x, &w)], Some(&[&dy]), &[&w], false).remove(0));
    }
    report.end();
    Ok(())
}
