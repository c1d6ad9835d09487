//! `meshwork bench gemm`: matrix products, in canonical order.

use super::machine::Machine;
use super::report::{Report, Row, Unit};
use super::timing::seconds;
use crate::args::GemmArgs;
use crate::failure::Failure;
use meshwork::tensor::{grad_with, randn};
use meshwork::{DType, Tensor};

/// A product `[batch, m, k] · [batch, k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

const fn shape(m: usize, k: usize, n: usize) -> Shape {
    Shape { batch: 1, m, k, n }
}

const SHAPES: [Shape; 7] = [
    shape(256, 256, 256),
    shape(1024, 1024, 1024),
    shape(4000, 4000, 4000),
    shape(256, 800, 128),
    shape(8192, 512, 2048),
    Shape { batch: 64, m: 64, k: 64, n: 64 },
    shape(256, 784, 256),
];
/// Lengths of the sums of the square products.
const TERMS: [usize; 4] = [9, 100, 1000, 16384];
/// Samples, inputs and outputs of linear layers whose weight gradients are measured.
const LAYERS: [[usize; 3]; 4] = [[256, 800, 128], [256, 784, 256], [32, 784, 256], [65536, 64, 64]];

/// Parses `256x800x128` (m, k, n) or `64x64x64x64` (batch, m, k, n).
pub fn parse(text: &str) -> Result<Shape, String> {
    let sizes: Option<Vec<usize>> = text.split('x').map(|n| n.parse().ok().filter(|n| *n > 0)).collect();
    match sizes.as_deref() {
        Some(&[m, k, n]) => Ok(shape(m, k, n)),
        Some(&[batch, m, k, n]) => Ok(Shape { batch, m, k, n }),
        _ => Err("sizes such as 256x800x128 (m, k, n) or 64x64x64x64 (batch, m, k, n)".to_string()),
    }
}

/// Measures the products.
pub fn run(args: &GemmArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let peak = machine.peak(args.dtype.precision());
    let mut report = Report::begin("gemm", &machine, Unit::Flops, &[("peak", peak)], args.common.json);
    let mut row = |name: String, flops: f64, work: &mut dyn FnMut() -> Tensor| {
        report.row(&Row { name, seconds: seconds(work), amount: flops / 1e9, bound: peak });
    };
    let dtype = args.dtype.precision().dtype();
    let random = |shape: &[usize]| {
        let x = random(shape)?.to_dtype(dtype);
        x.eval();
        Ok::<Tensor, Failure>(x)
    };
    let all = args.shape.is_empty();
    let shapes = if all { &SHAPES[..] } else { &args.shape[..] };
    for &Shape { batch, m, k, n } in shapes {
        let (a, b) = (random(&[batch, m, k])?, random(&[batch, k, n])?);
        let name = if batch == 1 { format!("{m}x{k}x{n}") } else { format!("{batch}x{m}x{k}x{n}") };
        let flops = 2.0 * (batch * m) as f64 * (k * n) as f64;
        if batch == 1 {
            let (a, b) = (a.squeeze(0), b.squeeze(0));
            row(name, flops, &mut || a.matmul(&b));
        } else {
            row(name, flops, &mut || a.matmul(&b));
        }
    }
    if all {
        let (a, b) = (random(&[1024, 1024])?, random(&[1024, 1024])?);
        let flops = 2.0 * f64::from(1u32 << 30);
        row("1024x1024x1024, left transposed".to_string(), flops, &mut || a.t().matmul(&b));
        row("1024x1024x1024, right transposed".to_string(), flops, &mut || a.matmul(&b.t()));
        row("1024x1024x1024, both transposed".to_string(), flops, &mut || a.t().matmul(&b.t()));
        for k in TERMS {
            let (a, b) = (random(&[1024, k])?, random(&[k, 1024])?);
            row(format!("1024x{k}x1024"), 2.0 * 1024.0 * 1024.0 * k as f64, &mut || a.matmul(&b));
        }
        for [samples, inputs, outputs] in LAYERS {
            let (x, dy) = (random(&[samples, inputs])?, random(&[samples, outputs])?);
            let w = random(&[outputs, inputs])?.variable();
            let flops = 2.0 * samples as f64 * (inputs * outputs) as f64;
            let name = format!("weight gradient {outputs}x{samples}x{inputs}");
            row(name, flops, &mut || grad_with(&[&x.linear(&w, None)], Some(&[&dy]), &[&w], false).remove(0));
        }
    }
    report.end();
    Ok(())
}

/// Random numbers that are there.
pub fn random(shape: &[usize]) -> Result<Tensor, Failure> {
    let bytes = shape.iter().try_fold(DType::F32.size(), |n, d| n.checked_mul(*d)).filter(|n| *n < 1 << 34);
    bytes.ok_or_else(|| Failure::mistake("such a shape does not fit into memory"))?;
    let x = randn(shape).detach();
    x.eval();
    Ok(x)
}
