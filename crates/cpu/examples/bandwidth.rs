//! Memory bandwidth of the elementwise and reducing kernels: `bandwidth [elements] [threads] [part of a name]`.

use meshwork_cpu::{Context, Level, Operand, Output, Par, copy, element, reduce};
use meshwork_graph::ops::{BinaryOp, Element, Fused, Reduce, ReduceOp, UnaryOp};
use meshwork_graph::{DType, Layout, Shape};
use std::time::Instant;

fn best(bytes: usize, mut work: impl FnMut()) -> f64 {
    let seconds = (0..5).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e9
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| args.get(i).map(|a| a.parse::<usize>().expect("a number"));
    let n = number(0).unwrap_or(100_000_000);
    let par = Par::new(number(1).unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get())));
    let wanted = |name: &str| args.get(2).is_none_or(|part| name.contains(part));
    let context = Context { par: &par, level: Level::current() };
    let shape = Shape::new(&[n]);
    let layout = Layout::contiguous(&shape);
    let (a, b) = (vec![1.5f32; n], vec![0.25f32; n]);
    let mut c = vec![0f32; n];
    let report = |name: &str, bytes: usize, work: &mut dyn FnMut()| {
        if wanted(name) {
            println!("{name:<24}{:8.2} GB/s", best(bytes, work));
        }
    };
    println!("{n} f32, {} threads, {}", par.threads(), context.level.name());

    let element = |op, inputs: &[Operand], c: &mut [f32]| {
        let dtypes = vec![DType::F32; inputs.len()];
        element::run(&Fused::single(op, shape.clone(), &dtypes, DType::F32), inputs, &[Output::of(c, &shape)], context);
    };
    let (x, y) = (Operand::of(&a, &layout), Operand::of(&b, &layout));
    report("copy", 8 * n, &mut || copy::run(x, Output::of(&mut c, &shape), context));
    report("add", 12 * n, &mut || element(Element::Binary(BinaryOp::Add), &[x, y], &mut c));
    for (name, op) in [("exp", UnaryOp::Exp), ("tanh", UnaryOp::Tanh), ("erf", UnaryOp::Erf), ("sin", UnaryOp::Sin)] {
        report(name, 8 * n, &mut || element(Element::Unary(op), &[x], &mut c));
    }
    report("pow", 12 * n, &mut || element(Element::Binary(BinaryOp::Pow), &[x, y], &mut c));

    let reduction = |name: &str, op: ReduceOp, sizes: &[usize], dims: &[usize]| {
        let layout = Layout::contiguous(&Shape::new(sizes));
        let count = layout.shape.numel();
        let kept: Shape = (0..sizes.len()).filter(|d| !dims.contains(d)).map(|d| sizes[d]).collect();
        let mut out = vec![0f32; kept.numel()];
        let op = Reduce::new(op, dims);
        let bytes = reduce::scratch(&op, DType::F32, &[&layout], par.threads());
        let mut scratch = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: the bytes of numbers.
        let scratch = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast(), bytes) };
        let x = Operand::of(&a[..count], &layout);
        report(name, 4 * count, &mut || reduce::run(&op, &[x], Output::of(&mut out, &kept), scratch, context));
    };
    let rows = n / 1024;
    reduction("sum of all", ReduceOp::Sum, &[n], &[0]);
    reduction("max of all", ReduceOp::Max, &[n], &[0]);
    reduction("sum [n/1024, 1024] 1", ReduceOp::Sum, &[rows, 1024], &[1]);
    reduction("sum [n/1024, 1024] 0", ReduceOp::Sum, &[rows, 1024], &[0]);
    reduction("sum [n/16, 16] 1", ReduceOp::Sum, &[n / 16, 16], &[1]);
    reduction("sum [n/10, 10] 1", ReduceOp::Sum, &[n / 10, 10], &[1]);
    reduction("sum [n/10, 10] 0", ReduceOp::Sum, &[n / 10, 10], &[0]);
    reduction("sum [n/3136, 64, 49] 02", ReduceOp::Sum, &[n / 3136, 64, 49], &[0, 2]);
}
