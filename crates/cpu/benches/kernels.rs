//! Kernels by themselves, on all cores: `cargo bench -p meshwork-cpu [--bench kernels] [-- NAME]`.
//!
//! Figures beside what the machine can do at most are printed by `meshwork bench`; this is for comparing a kernel with
//! what it was before.

use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime};
use meshwork_cpu::{Context, Level, Operand, Output, Par, kernel};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::{
    Attention, AttentionMask, AttentionResult, AvgPool, AvgPoolInput, BinaryOp, Conv, ConvGeometry, ConvInput,
    ConvWeight, Dot, Element, Fused, Reduce, ReduceOp, Spatial, UnaryOp, Window, Windows,
};
use meshwork_graph::program::Target;
use meshwork_graph::{DType, Dims, Layout, Op, Operation, Shape, Type};
use std::time::Duration;

/// A kernel with memory for its operands, its result and its scratch.
struct Call {
    op: Op,
    layouts: Vec<Layout>,
    operands: Vec<Vec<f32>>,
    shapes: Vec<Shape>,
    outs: Vec<Vec<f32>>,
    scratch: Vec<u64>,
}

impl Call {
    /// An operation on f32 operands of these shapes; `turned` ones lie in memory with their two dims exchanged.
    fn new(op: impl Into<Op>, shapes: &[&[usize]], turned: &[bool], threads: usize) -> Call {
        let op = op.into();
        let layout = |(i, shape): (usize, &&[usize])| match turned.get(i) {
            Some(true) => Layout::contiguous(&Shape::new(&[shape[1], shape[0]])).permute(&[1, 0]),
            _ => Layout::contiguous(&Shape::new(shape)),
        };
        let layouts: Vec<Layout> = shapes.iter().enumerate().map(layout).collect();
        let types: Vec<Type> = shapes.iter().map(|shape| Type::new(DType::F32, *shape)).collect();
        let inputs: Vec<(&Type, &Layout)> = types.iter().zip(&layouts).collect();
        let outputs = op.results(&types.iter().collect::<Vec<_>>()).expect("operands that fit");
        let bytes = kernel::CpuTarget { threads }.scratch(&op, &inputs, &outputs[0]);
        let numbers = |count: usize| (0..count).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<f32>>();
        let operands = layouts.iter().map(|layout| numbers(layout.shape.numel())).collect();
        let outs = outputs.iter().map(|output| numbers(output.shape.numel())).collect();
        let shapes = outputs.into_iter().map(|output| output.shape).collect();
        Call { op, layouts, operands, shapes, outs, scratch: vec![0; bytes.div_ceil(8) + 8] }
    }

    fn run(&mut self, context: Context) {
        // SAFETY: layouts lie inside their operands, scratch memory is at least as large as the kernel asks.
        unsafe {
            let operands = self.operands.iter().zip(&self.layouts);
            let operands: Vec<Operand> =
                operands.map(|(x, layout)| Operand::new(x.as_ptr().cast(), DType::F32, layout)).collect();
            let start = self.scratch.as_mut_ptr();
            let start = start.add(start.align_offset(64)).cast::<u8>();
            let scratch = std::slice::from_raw_parts_mut(start, (self.scratch.len() - 8) * 8);
            let outputs = self.outs.iter_mut().zip(&self.shapes).map(|(out, shape)| Output::of(out, shape)).collect();
            kernel::run(&self.op, &operands, outputs, scratch, context);
        }
    }
}

/// Measures calls whose throughput is what `amount` says.
struct Bench<'a> {
    group: BenchmarkGroup<'a, WallTime>,
    par: Par,
}

impl<'a> Bench<'a> {
    fn new(criterion: &'a mut Criterion, name: &str) -> Bench<'a> {
        let mut group = criterion.benchmark_group(name);
        group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1)).sample_size(20);
        Bench { group, par: Par::new(std::thread::available_parallelism().map_or(1, |n| n.get())) }
    }

    fn call(&mut self, name: &str, mut call: Call, amount: Throughput) {
        self.group.throughput(amount);
        self.group.bench_function(name, |b| {
            let context = Context { par: &self.par, level: Level::current() };
            b.iter(|| call.run(context));
        });
    }

    fn threads(&self) -> usize {
        self.par.threads()
    }
}

fn products(criterion: &mut Criterion) {
    let mut bench = Bench::new(criterion, "product");
    let sizes = [(1024, 1024, 1024), (256, 128, 800), (256, 784, 256), (1, 4096, 4096), (64, 64, 65536)];
    for (m, n, k) in sizes {
        for (name, turned) in [("NN", [false, false]), ("TN", [true, false]), ("NT", [false, true])] {
            let dims = |d: usize| Dims::from_slice(&[d]);
            let op = Dot {
                lhs_batch: Dims::new(),
                rhs_batch: Dims::new(),
                lhs_contract: dims(1),
                rhs_contract: dims(0),
                blocking: Blocking::Features,
            };
            let call = Call::new(op, &[&[m, k], &[k, n]], &turned, bench.threads());
            bench.call(&format!("{name} {m}x{n}x{k}"), call, Throughput::Elements((2 * m * n * k) as u64));
        }
    }
}

/// Convolutions: name, x, w, stride, padding.
type Layer = (&'static str, [usize; 4], [usize; 4], usize, usize);

const LAYERS: [Layer; 4] = [
    ("LeNet 1", [256, 1, 28, 28], [20, 1, 3, 3], 1, 0),
    ("LeNet 2", [256, 20, 13, 13], [50, 20, 5, 5], 1, 0),
    ("3x3", [16, 64, 32, 32], [64, 64, 3, 3], 1, 1),
    ("7x7 stride 2", [4, 3, 112, 112], [64, 3, 7, 7], 2, 3),
];

fn convolutions(criterion: &mut Criterion) {
    let mut bench = Bench::new(criterion, "convolution");
    for (name, x, w, stride, padding) in LAYERS {
        let s = |n: usize| Spatial::from_slice(&[n, n]);
        let geometry = ConvGeometry { stride: s(stride), padding: s(padding), dilation: s(1), groups: 1 };
        let space = geometry.output(&x[2..], &w[2..]).expect("a kernel that fits");
        let y = [&[x[0], w[0]], &space[..]].concat();
        let flops = 2 * y.iter().product::<usize>() * w[1..].iter().product::<usize>();
        let amount = Throughput::Elements(flops as u64);
        let threads = bench.threads();
        let forward = Call::new(Conv::new(geometry.clone()), &[&x, &w], &[], threads);
        bench.call(&format!("{name} forward"), forward, amount.clone());
        let input = ConvInput::new(geometry.clone(), Spatial::from_slice(&x[2..]));
        bench.call(&format!("{name} input"), Call::new(input, &[&y, &w], &[], threads), amount.clone());
        let weight = ConvWeight::new(geometry, Spatial::from_slice(&w[2..]));
        bench.call(&format!("{name} weight"), Call::new(weight, &[&x, &y], &[], threads), amount);
    }
}

fn pools(criterion: &mut Criterion) {
    let mut bench = Bench::new(criterion, "pool");
    let window = Window::Fixed { kernel: 2, stride: 2, padding: 0, dilation: 1, ceil: false };
    let pool = AvgPool { windows: Windows::from_slice(&[window; 2]), count_include_pad: true };
    for [n, c, h, w] in [[256, 20, 26, 26], [256, 50, 9, 9]] {
        let (x, y) = ([n, c, h, w], [n, c, h / 2, w / 2]);
        let amount = Throughput::Bytes(4 * (x.iter().product::<usize>() + y.iter().product::<usize>()) as u64);
        let threads = bench.threads();
        let forward = Call::new(pool.clone(), &[&x], &[], threads);
        bench.call(&format!("avg {h}x{w}"), forward, amount.clone());
        let gradient = AvgPoolInput { pool: pool.clone(), size: Spatial::from_slice(&[h, w]) };
        bench.call(&format!("avg gradient {h}x{w}"), Call::new(gradient, &[&y], &[], threads), amount);
    }
}

fn regions(criterion: &mut Criterion) {
    let mut bench = Bench::new(criterion, "elementwise");
    let region = |op: Element, inputs: usize, shape: &[usize], threads: usize| {
        let fused = Fused::single(op, Shape::new(shape), &vec![DType::F32; inputs], DType::F32);
        Call::new(fused, &vec![shape; inputs], &[], threads)
    };
    for n in [12_288, 32 << 20] {
        for (name, op, inputs) in [
            ("add", Element::Binary(BinaryOp::Add), 2),
            ("relu", Element::Unary(UnaryOp::Relu), 1),
            ("exp", Element::Unary(UnaryOp::Exp), 1),
            ("tanh", Element::Unary(UnaryOp::Tanh), 1),
        ] {
            let call = region(op, inputs, &[n], bench.threads());
            bench.call(&format!("{name} {n}"), call, Throughput::Bytes((4 * (inputs + 1) * n) as u64));
        }
    }
}

fn reductions(criterion: &mut Criterion) {
    let mut bench = Bench::new(criterion, "reduction");
    let cases: [(&[usize], &[usize]); 6] = [
        (&[32 << 20], &[0]),
        (&[8192, 4096], &[0]),
        (&[8192, 4096], &[1]),
        (&[256, 128], &[0]),
        (&[256, 20, 26, 26], &[0, 2, 3]),
        (&[256, 64, 7, 7], &[0, 2, 3]),
    ];
    for op in [ReduceOp::Sum, ReduceOp::Max] {
        for (shape, dims) in cases {
            let call = Call::new(Reduce::new(op, dims), &[shape], &[], bench.threads());
            let bytes = Throughput::Bytes(4 * shape.iter().product::<usize>() as u64);
            bench.call(&format!("{op:?} {shape:?} over {dims:?}"), call, bytes);
        }
    }
}

/// Attention: samples, length, heads, features of a head.
const ATTENTIONS: [[usize; 4]; 4] = [[16, 128, 8, 32], [16, 128, 8, 64], [2, 1024, 8, 64], [1, 1024, 8, 128]];

fn attentions(criterion: &mut Criterion) {
    let mut bench = Bench::new(criterion, "attention");
    use AttentionResult::{Key, Normalizer, Output, Query, Value};
    for [b, t, h, d] in ATTENTIONS {
        let (rows, numbers) = ([b, t, h, d], [b, t, h]);
        let passes: [(&str, &[AttentionResult]); 2] =
            [("forward", &[Output, Normalizer]), ("backward", &[Query, Key, Value])];
        for (name, results) in passes {
            let attention = Attention::new((d as f64).powf(-0.5), AttentionMask::causal(t, t));
            let op = Attention { results: results.iter().copied().collect(), ..attention };
            let all: [&[usize]; 6] = [&rows, &rows, &rows, &numbers, &rows, &numbers];
            let shapes = &all[..op.inputs().len()];
            let types: Vec<Type> = shapes.iter().map(|shape| Type::new(DType::F32, *shape)).collect();
            let flops = op.flops(&types.iter().collect::<Vec<_>>(), &types[0]);
            let call = Call::new(op, shapes, &[], bench.threads());
            bench.call(&format!("{name} {b}x{t}x{h}x{d}"), call, Throughput::Elements(flops));
        }
    }
}

criterion_group!(kernels, attentions, products, convolutions, pools, regions, reductions);
criterion_main!(kernels);
