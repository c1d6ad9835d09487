//! `meshwork bench gemm`: matrix products, in canonical order.

use super::layer::{or_all, sizes};
use super::machine::Machine;
use super::report::{Report, Row, Unit};
use super::timing::seconds;
use crate::args::GemmArgs;
use crate::failure::Failure;
use meshwork::tensor::{grad_with, randn};
use meshwork::{DType, Tensor};

/// How the operands of a product lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lies {
    /// As rows of `[m, k]` and `[k, n]`, or each as its transpose.
    Rows { left_transposed: bool, right_transposed: bool },
    /// The gradient of the weight `[m, n]` of a linear layer, for `k` samples: dyᵀ · x, whose sum is cut as that of a training is.
    Gradient,
}

/// A product `[batch, m, k] · [batch, k, n]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    pub batch: usize,
    pub m: usize,
    pub k: usize,
    pub n: usize,
    pub lies: Lies,
}

/// What is measured where nothing is named: the products of models, those of few rows, transposed ones, short and long sums, gradients of weights.
const PRODUCTS: [&str; 25] = [
    "256x256x256",
    "1024x1024x1024",
    "4000x4000x4000",
    "256x800x128",
    "8192x512x2048",
    "64x64x64x64",
    "1x1024x1024",
    "4x1024x1024",
    "32x1024x1024",
    "1x1024x1024-nt",
    "256x784x256-nt",
    "32x784x256-nt",
    "256x256x256-tn",
    "1024x1024x1024-tn",
    "1024x1024x1024-nt",
    "1024x1024x1024-tt",
    "1024x9x1024",
    "1024x32x1024",
    "1024x100x1024",
    "1024x1000x1024",
    "1024x16384x1024",
    "128x256x800-grad",
    "256x256x784-grad",
    "256x32x784-grad",
    "64x65536x64-grad",
];

/// Parses `256x800x128` (m, k, n) or `64x64x64x64` (batch, m, k, n), with `-tn`, `-nt` or `-tt` behind it where the left, the right
/// or both operands lie transposed, or `-grad` for the gradient of a weight `[m, n]` from `k` samples.
pub fn parse(text: &str) -> Result<Product, String> {
    let mistake = || {
        "sizes such as 256x800x128 (m, k, n) or 64x64x64x64 (batch, m, k, n), with -tn, -nt, -tt or -grad behind them"
            .to_string()
    };
    let (lengths, suffix) = text.split_once('-').unwrap_or((text, "nn"));
    let rows = |left_transposed, right_transposed| Lies::Rows { left_transposed, right_transposed };
    let lies = match suffix {
        "nn" => rows(false, false),
        "tn" => rows(true, false),
        "nt" => rows(false, true),
        "tt" => rows(true, true),
        "grad" => Lies::Gradient,
        _ => return Err(mistake()),
    };
    match sizes(lengths).as_deref() {
        Some(&[m, k, n]) => Ok(Product { batch: 1, m, k, n, lies }),
        Some(&[batch, m, k, n]) if lies != Lies::Gradient => Ok(Product { batch, m, k, n, lies }),
        _ => Err(mistake()),
    }
}

impl std::fmt::Display for Product {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.batch > 1 {
            write!(f, "{}x", self.batch)?;
        }
        write!(f, "{}x{}x{}", self.m, self.k, self.n)?;
        f.write_str(match self.lies {
            Lies::Rows { left_transposed: false, right_transposed: false } => "",
            Lies::Rows { left_transposed: true, right_transposed: false } => "-tn",
            Lies::Rows { left_transposed: false, right_transposed: true } => "-nt",
            Lies::Rows { left_transposed: true, right_transposed: true } => "-tt",
            Lies::Gradient => "-grad",
        })
    }
}

/// Measures the products.
pub fn run(args: &GemmArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let peak = machine.peak(args.dtype.precision());
    let mut report = Report::begin("gemm", &machine, Unit::Flops, &[("peak", peak)], args.common.json);
    let dtype = args.dtype.precision().dtype();
    let random = |shape: &[usize]| {
        let x = random(shape)?.to_dtype(dtype);
        x.eval();
        Ok::<Tensor, Failure>(x)
    };
    for product in or_all(&args.shape, &PRODUCTS, parse)? {
        let Product { batch, m, k, n, lies } = product;
        let seconds = match lies {
            Lies::Rows { left_transposed, right_transposed } => {
                // As it lies in memory; a batch of one is a plain matrix.
                let operand = |rows: usize, columns: usize, transposed: bool| {
                    let sizes = if transposed { [batch, columns, rows] } else { [batch, rows, columns] };
                    if batch == 1 { random(&sizes[1..]) } else { random(&sizes) }
                };
                let (a, b) = (operand(m, k, left_transposed)?, operand(k, n, right_transposed)?);
                // Anew for each product: a tensor that is kept is computed once, and then lies as if it had never been transposed.
                let turned = |x: &Tensor, transposed: bool| if transposed { x.transpose(-2, -1) } else { x.clone() };
                seconds(|| turned(&a, left_transposed).matmul(&turned(&b, right_transposed)))
            }
            Lies::Gradient => {
                let (x, dy, w) = (random(&[k, n])?, random(&[k, m])?, random(&[m, n])?.variable());
                seconds(|| grad_with(&[&x.linear(&w, None)], Some(&[&dy]), &[&w], false).remove(0))
            }
        };
        let amount = 2e-9 * (batch * m) as f64 * (k * n) as f64;
        report.row(&Row { name: product.to_string(), seconds, amount, bound: peak });
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
