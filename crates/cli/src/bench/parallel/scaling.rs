//! Every class of operation on one thread and on more.
//!
//! What is possible with n threads: a time n times shorter, unless moving the operands and results through memory takes
//! longer, as fast as n threads can.

use super::Sizes;
use super::report::{Report, Row};
use super::rounds::in_turn;
use crate::bench::gemm::random;
use crate::failure::Failure;
use meshwork::tensor::ConvOptions;
use meshwork::{
    Device, Level, Par, Tensor, cpu_groups, limits, set_cpu_groups, synchronize_device, with_default_device,
};

/// An operation on operands that are there.
struct Case {
    name: String,
    operands: Vec<Tensor>,
    work: fn(&[Tensor]) -> Tensor,
}

/// Threads 1, 2, 4, … up to all cores.
pub fn run(sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let before = cpu_groups().map_err(Failure::mistake)?;
    let mut cores: Vec<usize> = before.concat();
    cores.sort_unstable();
    cores.dedup();
    let mut counts: Vec<usize> = (0..).map(|i| 1 << i).take_while(|&n| n < cores.len()).collect();
    counts.push(cores.len());
    let several = if counts.len() > 1 { &counts[1..] } else { &counts[..] };
    let one = limits_of(1);
    for &count in several {
        let most = if count == 1 { one } else { limits_of(count) };
        groups(&[cores[..1].to_vec(), cores[..count].to_vec()])?;
        let devices = Device::cpus().map_err(Failure::mistake)?;
        let mut rows = Vec::new();
        for (single, several) in cases(&devices[0], sizes)?.into_iter().zip(cases(&devices[1], sizes)?) {
            rows.extend(measure(&single, &several, &devices, &most));
        }
        let what = format!("1 and {count} threads; memory reads {:.1} and {:.1} GB/s", one.read / 1e9, most.read / 1e9);
        report.exercise("scaling", &what, &devices, &rows);
    }
    groups(&before)
}

fn groups(groups: &[Vec<usize>]) -> Result<(), Failure> {
    set_cpu_groups(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>()).map_err(Failure::mistake)
}

fn limits_of(threads: usize) -> limits::Bandwidth {
    limits::bandwidth(&Par::new(threads), Level::current())
}

fn measure(single: &Case, several: &Case, devices: &[Device], most: &limits::Bandwidth) -> [Row; 2] {
    let run = |case: &Case, device: &Device| {
        let result = (case.work)(&case.operands);
        result.eval();
        synchronize_device(device);
        vec![result]
    };
    let [one, many] = in_turn([&mut || run(single, &devices[0]), &mut || run(several, &devices[1])]);
    let result = (single.work)(&single.operands);
    let (read, written) = (single.operands.iter().map(bytes).sum::<f64>(), bytes(&result));
    // Where much is written memory is as fast as when arrays are copied.
    let speed = if written * 4.0 < read { most.read } else { most.copy };
    let threads = devices[1].num_threads();
    let allowed = (one.seconds / threads as f64).max((read + written) / speed);
    let beside = one.seconds;
    let name = &single.name;
    [
        Row::new(format!("{name}, 1 thread"), one),
        Row::held(format!("{name}, {threads} threads"), many, allowed.min(beside), beside),
    ]
}

fn bytes(x: &Tensor) -> f64 {
    (x.numel() * x.dtype().size()) as f64
}

/// Classes of operations: matrices of `4n` rows and columns for work that memory bounds, of `n` for products, and `4n`
/// positions of 1d, 2d and 3d data for convolutions and pooling.
fn cases(device: &Device, sizes: Sizes) -> Result<Vec<Case>, Failure> {
    with_default_device(device, || {
        let n = sizes.size(1024);
        let wide = 4 * n;
        let mut cases = Vec::new();
        let mut case = |name: &str, shapes: &[&[usize]], work: fn(&[Tensor]) -> Tensor| -> Result<(), Failure> {
            let operands: Vec<Tensor> = shapes.iter().map(|shape| random(shape)).collect::<Result<_, _>>()?;
            cases.push(Case { name: format!("{name} {:?}", operands[0].shape()), operands, work });
            Ok(())
        };
        case("a + b", &[&[wide, wide], &[wide, wide]], |x| &x[0] + &x[1])?;
        case("exp", &[&[wide, wide]], |x| x[0].exp())?;
        case("sum of all", &[&[wide, wide]], |x| x[0].sum(..))?;
        case("sum of columns", &[&[wide, wide]], |x| x[0].sum(0))?;
        case("sum of rows", &[&[wide, wide]], |x| x[0].sum(1))?;
        case("matmul", &[&[n, n], &[n, n]], |x| x[0].matmul(&x[1]))?;
        let side = |dims: u32| (1..).take_while(|s: &usize| s.pow(dims) <= wide).last().unwrap_or(1);
        let [line, square, cube] = [1, 2, 3].map(side);
        case("conv1d", &[&[8, 32, line], &[64, 32, 3]], |x| x[0].conv1d(&x[1], None, &padded()))?;
        case("conv2d", &[&[8, 32, square, square], &[64, 32, 3, 3]], |x| x[0].conv2d(&x[1], None, &padded()))?;
        case("conv3d", &[&[8, 32, cube, cube, cube], &[64, 32, 3, 3, 3]], |x| x[0].conv3d(&x[1], None, &padded()))?;
        let channels = [(n / 16).max(1), 64];
        let data = |position: &[usize]| [&channels[..], position].concat();
        let [d1, d2, d3] = [data(&[line]), data(&[square; 2]), data(&[cube; 3])];
        case("max_pool1d", &[&d1], |x| x[0].max_pool1d(2))?;
        case("max_pool2d", &[&d2], |x| x[0].max_pool2d(2))?;
        case("max_pool3d", &[&d3], |x| x[0].max_pool3d(2))?;
        case("avg_pool1d", &[&d1], |x| x[0].avg_pool1d(2))?;
        case("avg_pool2d", &[&d2], |x| x[0].avg_pool2d(2))?;
        case("avg_pool3d", &[&d3], |x| x[0].avg_pool3d(2))?;
        Ok(cases)
    })
}

/// A border that keeps the sizes for kernels of 3.
fn padded() -> ConvOptions {
    ConvOptions { padding: 1.into(), ..ConvOptions::default() }
}
