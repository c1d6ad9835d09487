//! Every class of operation on one thread and on more.
//!
//! What is possible with n threads: a time n times shorter, unless moving the operands and results through memory takes
//! longer, as fast as n threads can.

use super::Sizes;
use super::report::{Report, Row};
use super::rounds::in_turn;
use crate::bench::gemm::random;
use crate::failure::Failure;
use meshwork::limits::{self, Bandwidth};
use meshwork::tensor::ConvOptions;
use meshwork::{Device, Level, Par, Tensor, cpu_groups, set_cpu_groups, synchronize_device, with_default_device};
use std::time::Duration;

/// An operation on operands of these shapes.
struct Case {
    name: &'static str,
    shapes: Vec<Vec<usize>>,
    work: fn(&[Tensor]) -> Tensor,
}

/// Time for one operation.
const BUDGET: Duration = Duration::from_millis(600);

/// Threads 1, 2, 4, … up to all cores.
pub fn run(sizes: Sizes, report: &mut Report) -> Result<(), Failure> {
    let before = cpu_groups().map_err(Failure::mistake)?;
    let mut cores: Vec<usize> = before.concat();
    cores.sort_unstable();
    cores.dedup();
    let mut counts: Vec<usize> = (1..).map(|i| 1 << i).take_while(|&n| n < cores.len()).collect();
    counts.push(cores.len());
    let one = bandwidth(1);
    for count in counts {
        let most = bandwidth(count);
        groups(&[cores[..1].to_vec(), cores[..count].to_vec()])?;
        let devices = Device::cpus().map_err(Failure::mistake)?;
        let mut rows = Vec::new();
        for case in cases(sizes) {
            rows.extend(measure(&case, &devices, &most)?);
        }
        let speeds = [one.read, most.read, one.copy, most.copy].map(|speed| format!("{:.1}", speed / 1e9));
        let [one_read, read, one_copy, copy] = speeds;
        let what = format!(
            "1 and {count} threads; memory is read at {one_read} and {read} GB/s, copied at {one_copy} and {copy} GB/s"
        );
        report.exercise("scaling", &what, &devices, &rows);
    }
    groups(&before)
}

fn groups(groups: &[Vec<usize>]) -> Result<(), Failure> {
    set_cpu_groups(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>()).map_err(Failure::mistake)
}

fn bandwidth(threads: usize) -> Bandwidth {
    limits::bandwidth(&Par::new(threads), Level::current())
}

/// Measures an operation on the first device and on the second, in turn.
fn measure(case: &Case, devices: &[Device], most: &Bandwidth) -> Result<[Row; 2], Failure> {
    let operands = |device| -> Result<Vec<Tensor>, Failure> {
        with_default_device(device, || case.shapes.iter().map(|shape| random(shape)).collect())
    };
    let (first, second) = (operands(&devices[0])?, operands(&devices[1])?);
    let run = |operands: &[Tensor], device: &Device| {
        let result = (case.work)(operands);
        result.eval();
        synchronize_device(device);
        vec![result]
    };
    let [one, many] = in_turn(BUDGET, [&mut || run(&first, &devices[0]), &mut || run(&second, &devices[1])]);
    let (read, written) = (first.iter().map(bytes).sum::<f64>(), bytes(&(case.work)(&first)));
    // Where much is written memory is as fast as when arrays are copied.
    let speed = if written * 4.0 < read { most.read } else { most.copy };
    let threads = devices[1].num_threads();
    let allowed = (one.seconds / threads as f64).max((read + written) / speed).min(one.seconds);
    let (alone, name) = (one.seconds, format!("{} {:?}", case.name, case.shapes[0]));
    Ok([
        Row::new(format!("{name}, 1 thread"), one),
        Row::held(format!("{name}, {threads} threads"), many, allowed, alone),
    ])
}

fn bytes(x: &Tensor) -> f64 {
    (x.numel() * x.dtype().size()) as f64
}

/// Classes of operations: matrices of `8n` rows and columns, at most 8192, for work that memory bounds, of `n` for
/// products, and `4n` positions of 1d, 2d and 3d data for convolutions and pooling.
fn cases(sizes: Sizes) -> Vec<Case> {
    let n = sizes.size(1024);
    let (wide, positions) = (n.saturating_mul(8).min(8192), n.saturating_mul(4));
    let side = |dims: u32| (1..).take_while(|s: &usize| s.saturating_pow(dims) <= positions).last().unwrap_or(1);
    let [line, square, cube] = [vec![positions], vec![side(2); 2], vec![side(3); 3]];
    let data = |channels: [usize; 2], place: &[usize]| [&channels[..], place].concat();
    let conv = |place: &[usize]| vec![data([8, 32], place), data([64, 32], &vec![3; place.len()])];
    let pool = |place: &[usize]| vec![data([(n / 16).max(1), 64], place)];
    let matrices = |count: usize| vec![vec![wide; 2]; count];
    let case = |name, shapes, work| Case { name, shapes, work };
    vec![
        case("a + b", matrices(2), |x| &x[0] + &x[1]),
        case("exp", matrices(1), |x| x[0].exp()),
        case("sum of all", matrices(1), |x| x[0].sum(..)),
        case("sum over rows", matrices(1), |x| x[0].sum(0)),
        case("sum over columns", matrices(1), |x| x[0].sum(1)),
        case("matmul", vec![vec![n; 2]; 2], |x| x[0].matmul(&x[1])),
        case("conv1d", conv(&line), |x| x[0].conv1d(&x[1], None, &padded())),
        case("conv2d", conv(&square), |x| x[0].conv2d(&x[1], None, &padded())),
        case("conv3d", conv(&cube), |x| x[0].conv3d(&x[1], None, &padded())),
        case("max_pool1d", pool(&line), |x| x[0].max_pool1d(2)),
        case("max_pool2d", pool(&square), |x| x[0].max_pool2d(2)),
        case("max_pool3d", pool(&cube), |x| x[0].max_pool3d(2)),
        case("avg_pool1d", pool(&line), |x| x[0].avg_pool1d(2)),
        case("avg_pool2d", pool(&square), |x| x[0].avg_pool2d(2)),
        case("avg_pool3d", pool(&cube), |x| x[0].avg_pool3d(2)),
    ]
}

/// A border that keeps the sizes for kernels of 3.
fn padded() -> ConvOptions {
    ConvOptions { padding: 1.into(), ..ConvOptions::default() }
}
