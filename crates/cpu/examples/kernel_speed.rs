//! Speed of matrix products, attention and convolutions, in GFLOP/s and against the processor's peak as a chain of multiply-adds finds it.
//!
//! `cargo run --release -p meshwork-cpu --example kernel_speed [threads] [dot|cold|price|update|attention|conv] [filter]`
//!
//! `cold` are products whose operands and results come from memory, as in a training step; large pages, which a training
//! has, are what `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` asks for. `update` is the gradient of a weight and a step of gradient
//! descent, as two kernels and as one.
//!
//! With `MEDIAN=1` in the environment times are medians of many runs instead of the best.
//!
//! The filter is a part of a product's or convolution's name, as in `1024×1024×` or `LeNet 2 forward`.

use half::bf16;
use meshwork_cpu::{Context, Level, Operand, Output, Par, Stored, attention, conv, dot, element, epilogue};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::{
    Attention, AttentionMask, AttentionResult, BinaryOp, Conv, ConvGeometry, ConvInput, ConvWeight, Dot, Element,
    Epilogue, Fused, Instr, Source, Space, Spatial,
};
use meshwork_graph::{DType, Dims, Layout, Op, Operation, Shape, Type};
use std::time::Instant;

#[repr(C, align(64))]
#[derive(Clone, Copy)]
struct Line([u8; 64]);

/// Numbers that begin with a line of the caches, as those of a training do: vectors of a result that lie on two lines each cost
/// a product that comes from memory 7 %.
struct Numbers {
    lines: Vec<Line>,
    count: usize,
}

impl Numbers {
    fn new(count: usize) -> Self {
        let line = Line([0x3e; 64]);
        Numbers { lines: vec![line; count.div_ceil(16)], count }
    }

    fn all(&self) -> &[f32] {
        // SAFETY: a line has 16 numbers; any bits are one.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.count) }
    }

    fn all_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.count) }
    }
}

/// The best of several runs, in seconds, or their median where the environment has `MEDIAN`.
fn best(mut run: impl FnMut()) -> f64 {
    run();
    let mut times = Vec::new();
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.25 {
        let start = Instant::now();
        run();
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    if std::env::var("MEDIAN").is_ok() { times[times.len() / 2] } else { times[0] }
}

/// GFLOP/s of a product that stays in the first-level cache: nothing is faster.
fn peak(par: &Par, level: Level) -> f64 {
    let kernels = <f32 as meshwork_cpu::gemm::Real>::kernels(level);
    let (rows, width, terms) = (kernels.rows(), kernels.columns(), 256);
    let time = best(|| {
        par.run(par.threads(), &|_| {
            let mut room = vec![Line([0; 64]); (terms * (rows + width) + 17 * rows * width) / 16 + 4];
            let base: *mut f32 = room.as_mut_ptr().cast();
            // SAFETY: all rooms lie inside `room`.
            unsafe {
                let call = meshwork_simd::microkernel::Call {
                    tiles: 1,
                    way: 1,
                    terms,
                    block: terms,
                    a: base,
                    a_step: rows as isize,
                    a_tile: 0,
                    b: base.add(terms * rows),
                    b_term: width as isize,
                    b_tile: 0,
                    copy: std::ptr::null_mut(),
                    copy_tile: 0,
                    counter: base,
                    start: std::ptr::null(),
                    merge: std::ptr::null(),
                    merges: 0,
                    out: base.add(terms * (rows + width)),
                    out_row: width as isize,
                    out_tile: 0,
                    ahead: meshwork_simd::line::Lines::NONE,
                };
                for _ in 0..2000 {
                    kernels.table[rows - 1][1][0](std::hint::black_box(&call));
                }
            }
        });
    });
    (par.threads() * 2000 * 2 * rows * width * terms) as f64 / time * 1e-9
}

/// Runs `kernel` with scratch memory.
fn timed(bytes: usize, mut kernel: impl FnMut(&mut [u8])) -> f64 {
    let mut lines = vec![Line([0; 64]); bytes.div_ceil(64)];
    // SAFETY: the lines are plain bytes, at least as many.
    let scratch = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), bytes) };
    best(|| kernel(scratch))
}

/// Bytes that no cache holds.
const FAR: usize = 256 << 20;

/// Products: rows, columns, terms, products of a batch.
type Sizes = (usize, usize, usize, usize);

/// Products with features as terms.
const PRODUCTS: [Sizes; 34] = [
    (2048, 256, 256, 1),
    (2048, 1024, 256, 1),
    (2048, 256, 1024, 1),
    (64, 64, 64, 1),
    (64, 64, 64, 64),
    (128, 128, 128, 1),
    (256, 256, 256, 1),
    (512, 512, 512, 1),
    (1024, 1024, 1024, 1),
    (4000, 4000, 4000, 1),
    (8192, 2048, 512, 1),
    (4096, 4096, 9, 1),
    (4096, 4096, 64, 1),
    (384, 384, 4096, 1),
    (4096, 64, 64, 1),
    (20000, 48, 300, 1),
    (256, 10, 128, 1),
    (256, 128, 800, 1),
    (256, 800, 128, 1),
    (256, 256, 784, 1),
    (32, 128, 800, 1),
    (32, 800, 128, 1),
    (32, 256, 784, 1),
    (32, 10, 256, 1),
    (32, 256, 10, 1),
    (256, 10, 256, 1),
    (256, 256, 10, 1),
    (32, 32, 20000, 1),
    (1, 1024, 1024, 1),
    (1024, 1, 1024, 1),
    (1, 4096, 4096, 1),
    (4, 4096, 4096, 1),
    (4096, 4, 4096, 1),
    (1, 1, 1 << 20, 1),
];

/// Products whose terms are the samples of a batch: gradients of weights.
const GRADIENTS: [Sizes; 10] = [
    (128, 800, 256, 1),
    (128, 800, 32, 1),
    (256, 784, 256, 1),
    (256, 784, 32, 1),
    (10, 128, 256, 1),
    (10, 256, 32, 1),
    (10, 256, 256, 1),
    (10, 128, 4096, 1),
    (64, 64, 65536, 1),
    (512, 64, 100_000, 1),
];

/// Gradients of a transformer's weights by 16 sequences of 128 tokens: two sequences are a block of terms.
const OF_SEQUENCES: [Sizes; 3] = [(256, 256, 2048, 1), (1024, 256, 2048, 1), (256, 1024, 2048, 1)];

/// How the operands of a product lie in memory.
const TURNS: [&str; 4] = ["NN", "TN", "NT", "TT"];

/// The best times of one product under each of `blockings`, whose runs take turns, and so do sets of operands of so many
/// bytes together.
fn product((m, n, k, count): Sizes, turn: usize, blockings: &[Blocking], bytes: usize, context: Context) -> Vec<f64> {
    let dense = |rows: usize, columns: usize, turned: bool| match turned {
        false => Layout::contiguous(&Shape::new(&[count, rows, columns])),
        true => Layout::contiguous(&Shape::new(&[count, columns, rows])).permute(&[0, 2, 1]),
    };
    let (lhs, rhs) = (dense(m, k, turn & 1 != 0), dense(k, n, turn & 2 != 0));
    let dims = |d| Dims::from_slice(&[d]);
    let sizes = [m * k, k * n, m * n].map(|numbers| count * numbers);
    let sets = (bytes / (4 * sizes.iter().sum::<usize>())).max(1);
    let [a, b, mut c] = sizes.map(|size| Numbers::new(sets * size));
    let ([a, b], c, shape) = ([a.all(), b.all()], c.all_mut(), Shape::new(&[count, m, n]));
    let mut turns = (0..sets).cycle();
    let mut runs: Vec<(Dot, Vec<Line>, f64)> = blockings
        .iter()
        .map(|&blocking| {
            let op =
                Dot { lhs_batch: dims(0), rhs_batch: dims(0), lhs_contract: dims(2), rhs_contract: dims(1), blocking };
            let bytes = dot::scratch(&op, DType::F32, &[&lhs, &rhs], context.par.threads());
            (op, vec![Line([0; 64]); bytes.div_ceil(64)], f64::INFINITY)
        })
        .collect();
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < 0.2 * runs.len() as f64 {
        for (op, lines, best) in &mut runs {
            // SAFETY: the lines are plain bytes.
            let scratch = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * 64) };
            for _ in 0..3 {
                let [a_at, b_at, c_at] = turns.next().map(|set| sizes.map(|size| set * size)).expect("a set");
                // SAFETY: the layouts lie inside the vectors.
                let inputs = unsafe {
                    [
                        Operand::new(a[a_at..].as_ptr().cast(), DType::F32, &lhs),
                        Operand::new(b[b_at..].as_ptr().cast(), DType::F32, &rhs),
                    ]
                };
                let c = &mut c[c_at..c_at + sizes[2]];
                let start = Instant::now();
                dot::run(op, &inputs, Output::of(c, &shape), scratch, context);
                *best = best.min(start.elapsed().as_secs_f64());
            }
        }
    }
    runs.iter().map(|run| run.2).collect()
}

/// A line of a table for each product whose name has `filter` in it: the name and one field for each way the operands
/// lie.
fn for_products(filter: &str, field: impl Fn(Sizes, usize, Blocking) -> String) {
    let sums = [
        (Blocking::Features, &PRODUCTS[..]),
        (Blocking::Samples, &GRADIENTS[..]),
        (Blocking::Every(256), &OF_SEQUENCES[..]),
    ];
    for (blocking, list) in sums {
        for &(m, n, k, count) in list {
            let batch = if count > 1 { format!("{count} of ") } else { String::new() };
            let name = format!("{batch}{m}×{n}×{k}");
            if !name.contains(filter) {
                continue;
            }
            print!("{name:22}");
            for (turn, name) in TURNS.iter().enumerate() {
                print!("{name} {:17}", field((m, n, k, count), turn, blocking));
            }
            println!();
        }
    }
}

fn speed((m, n, k, count): Sizes, time: f64) -> f64 {
    (2 * count * m * n * k) as f64 / time * 1e-9
}

fn products(filter: &str, bytes: usize, context: Context, peak: f64) {
    for_products(filter, |sizes, turn, blocking| {
        let speed = speed(sizes, product(sizes, turn, &[blocking], bytes, context)[0]);
        format!("{speed:.0} ({:.0} %)", speed / peak * 100.0)
    });
}

/// What the canonical order costs: beside it, the same kernels with all terms of a sum in one block.
fn price(filter: &str, context: Context) {
    for_products(filter, |sizes, turn, blocking| {
        let times = product(sizes, turn, &[blocking, Blocking::Every(sizes.2)], 0, context);
        let [canonical, free] = [0, 1].map(|i| speed(sizes, times[i]));
        format!("{canonical:.0}/{free:.0} {:+.1} %", (times[0] / times[1] - 1.0) * 100.0)
    });
}

/// `w + rate · lhsᵀ rhs` in place: the product alone, the product and the update, and both as one kernel.
fn updates(filter: &str, context: Context) {
    for (m, n, k, _) in GRADIENTS {
        let name = format!("{m}×{n}×{k}");
        if !name.contains(filter) {
            continue;
        }
        let ty = Type { dtype: DType::F32, shape: Shape::new(&[m, n]) };
        let fused = Fused {
            space: Space::elements(ty.shape.clone()),
            inputs: vec![Source { dtype: DType::F32, of_rows: false }; 3],
            code: vec![
                Instr { op: Element::Binary(BinaryOp::Mul).into(), args: [0, 1, 0], of_rows: false, dtype: DType::F32 },
                Instr { op: Element::Binary(BinaryOp::Add).into(), args: [3, 2, 0], of_rows: false, dtype: DType::F32 },
            ],
            outputs: [4].into_iter().collect(),
        };
        let dims = |dims: &[usize]| Dims::from_slice(dims);
        let dot = Dot {
            lhs_batch: dims(&[]),
            rhs_batch: dims(&[]),
            lhs_contract: dims(&[0]),
            rhs_contract: dims(&[0]),
            blocking: Blocking::Samples,
        };
        let op = Epilogue { dot: Box::new(dot), product: ty.clone(), fused: Box::new(fused), at: 0 };
        let [lhs, rhs, dense] = [[k, m], [k, n], [m, n]].map(|shape| Layout::contiguous(&Shape::new(&shape)));
        let rate = Layout::contiguous(&Shape::new(&[1, 1])).expand(&ty.shape);
        let layouts = [&lhs, &rhs, &rate, &dense];
        let (a, b, r) = (Numbers::new(k * m), Numbers::new(k * n), [1e-3f32]);
        let (mut w, mut product) = (Numbers::new(m * n), Numbers::new(m * n));
        // SAFETY: the layouts lie inside the vectors; the weight is read and written element by element.
        let [x, y, scale, weight] = [(a.all(), &lhs), (b.all(), &rhs), (&r, &rate), (w.all(), &dense)]
            .map(|(data, layout)| unsafe { Operand::new(data.as_ptr().cast(), DType::F32, layout) });
        let place = w.all_mut().as_mut_ptr().cast();
        // SAFETY: as above.
        let new = || unsafe { Output::new(place, DType::F32, &ty.shape) };
        let threads = context.par.threads();
        let bytes = dot::scratch(&op.dot, DType::F32, &layouts[..2], threads);
        let alone = timed(bytes, |scratch| {
            dot::run(&op.dot, &[x, y], Output::of(product.all_mut(), &ty.shape), scratch, context);
        });
        let both = timed(bytes, |scratch| {
            dot::run(&op.dot, &[x, y], Output::of(product.all_mut(), &ty.shape), scratch, context);
            element::run(&op.fused, &[Operand::of(product.all(), &dense), scale, weight], &[new()], context);
        });
        let one = timed(epilogue::scratch(&op, &layouts, threads), |scratch| {
            epilogue::run(&op, &[x, y, scale, weight], &[new()], scratch, context);
        });
        let [alone, both, one] = [alone, both, one].map(|time| time * 1e6);
        println!("{name:22}product {alone:.1} µs   product, update {both:.1} µs   as one {one:.1} µs");
    }
}

/// Convolutions: name, x, w, stride, padding.
type Layer = (&'static str, [usize; 4], [usize; 4], usize, usize);

const LAYERS: [Layer; 7] = [
    ("LeNet 1", [256, 1, 28, 28], [20, 1, 3, 3], 1, 0),
    ("LeNet 2", [256, 20, 13, 13], [50, 20, 5, 5], 1, 0),
    ("3×3", [16, 64, 32, 32], [64, 64, 3, 3], 1, 1),
    ("3×3 deep", [16, 256, 8, 8], [256, 256, 3, 3], 1, 1),
    ("3×3 stride 2", [16, 64, 32, 32], [128, 64, 3, 3], 2, 1),
    ("1×1", [16, 128, 16, 16], [256, 128, 1, 1], 1, 0),
    ("7×7 stride 2", [4, 3, 112, 112], [64, 3, 7, 7], 2, 3),
];

fn convolutions(filter: &str, context: Context, peak: f64) {
    let threads = context.par.threads();
    for (name, x, w, stride, padding) in LAYERS {
        let wanted = |what: &str| format!("{name} {what}").contains(filter);
        if !["forward", "input", "weight"].into_iter().any(wanted) {
            continue;
        }
        let s = |n: usize| Spatial::from_slice(&[n, n]);
        let geometry = ConvGeometry { stride: s(stride), padding: s(padding), dilation: s(1), groups: 1 };
        let mut y = Shape::new(&[x[0], w[0]]);
        y.0.extend(geometry.output(&x[2..], &w[2..]).expect("a kernel that fits"));
        let flops = (2 * y.numel() * w[1..].iter().product::<usize>()) as f64;
        let (x, w) = (Shape::new(&x), Shape::new(&w));
        let (xl, wl, yl) = (Layout::contiguous(&x), Layout::contiguous(&w), Layout::contiguous(&y));
        let data = |shape: &Shape| vec![0.5f32; shape.numel()];
        let (mut xd, mut wd, mut yd) = (data(&x), data(&w), data(&y));
        let report = |what: &str, time: f64| {
            let speed = flops / time * 1e-9;
            print!("{what} {speed:.0} ({:.0} %, {:.2} ms)   ", speed / peak * 100.0, time * 1e3);
        };
        print!("{name}: ");
        let forward = Conv::new(geometry.clone());
        let bytes = conv::forward::scratch(&forward, DType::F32, &[&xl, &wl], threads);
        if wanted("forward") {
            report(
                "forward",
                timed(bytes, |scratch| {
                    let inputs = [Operand::of(&xd, &xl), Operand::of(&wd, &wl)];
                    conv::forward::run(&forward, &inputs, Output::of(&mut yd, &y), scratch, context);
                }),
            );
        }
        let input = ConvInput::new(geometry.clone(), Spatial::from_slice(&x[2..]));
        let bytes = conv::input::scratch(&input, DType::F32, &[&yl, &wl], threads);
        if wanted("input") {
            report(
                "input",
                timed(bytes, |scratch| {
                    let inputs = [Operand::of(&yd, &yl), Operand::of(&wd, &wl)];
                    conv::input::run(&input, &inputs, Output::of(&mut xd, &x), scratch, context);
                }),
            );
        }
        let weight = ConvWeight::new(geometry, Spatial::from_slice(&w[2..]));
        let bytes = conv::weight::scratch(&weight, DType::F32, &[&xl, &yl], threads);
        if wanted("weight") {
            report(
                "weight",
                timed(bytes, |scratch| {
                    let inputs = [Operand::of(&xd, &xl), Operand::of(&yd, &yl)];
                    conv::weight::run(&weight, &inputs, Output::of(&mut wd, &w), scratch, context);
                }),
            );
        }
        println!();
    }
}

/// Attention: samples, length, heads, features of a head.
const ATTENTIONS: [[usize; 4]; 5] =
    [[16, 128, 8, 32], [16, 128, 8, 64], [2, 1024, 8, 64], [1, 1024, 8, 128], [1, 1024, 1, 64]];

/// Elements of a type.
enum Data {
    F32(Vec<f32>),
    Bf16(Vec<bf16>),
}

impl Data {
    /// As many times ½.
    fn halves(ty: &Type) -> Data {
        let count = ty.shape.numel();
        match ty.dtype {
            DType::BF16 => Data::Bf16(vec![bf16::from_f32(0.5); count]),
            _ => Data::F32(vec![0.5; count]),
        }
    }

    fn operand<'a>(&'a self, layout: &'a Layout) -> Operand<'a> {
        match self {
            Data::F32(data) => Operand::of(data, layout),
            Data::Bf16(data) => Operand::of(data, layout),
        }
    }

    fn output<'a>(&'a mut self, shape: &'a Shape) -> Output<'a> {
        match self {
            Data::F32(data) => Output::of(data, shape),
            Data::Bf16(data) => Output::of(data, shape),
        }
    }
}

/// Forward and backward passes of causal attention, all results together; only pairs that are seen count.
fn attentions<S: Stored>(filter: &str, context: Context, peak: f64) {
    use AttentionResult::{Key, Normalizer, Output as Mean, Query, Value};
    for [b, t, h, d] in ATTENTIONS {
        let name = format!("{b}×{t}×{h}×{d} {}", S::DTYPE);
        let wanted = |what: &str| format!("{name} {what}").contains(filter);
        if !["forward", "backward"].into_iter().any(wanted) {
            continue;
        }
        print!("{name}: ");
        let passes: [(&str, &[AttentionResult]); 2] =
            [("forward", &[Mean, Normalizer]), ("backward", &[Query, Key, Value])];
        for (what, results) in passes.into_iter().filter(|(what, _)| wanted(what)) {
            let attention = Attention::new((d as f64).powf(-0.5), AttentionMask::causal(t, t));
            let op = Attention { results: results.iter().copied().collect(), ..attention };
            // Normalizers and deltas have a number for each row.
            let shapes =
                op.inputs().into_iter().zip([4, 4, 4, 3, 4, 3]).map(|(_, rank)| Shape::new(&[b, t, h, d][..rank]));
            let dtype = |rank| if rank == 4 { S::DTYPE } else { DType::F32 };
            let types: Vec<Type> = shapes.map(|shape| Type { dtype: dtype(shape.rank()), shape }).collect();
            let refs: Vec<&Type> = types.iter().collect();
            let flops = op.flops(&refs, &types[0]) as f64;
            let layouts: Vec<Layout> = types.iter().map(|ty| Layout::contiguous(&ty.shape)).collect();
            let data: Vec<Data> = types.iter().map(Data::halves).collect();
            let inputs: Vec<Operand> = data.iter().zip(&layouts).map(|(x, layout)| x.operand(layout)).collect();
            let outputs = Op::from(op.clone()).results(&refs).expect("operands that fit");
            let mut outs: Vec<Data> = outputs.iter().map(Data::halves).collect();
            let bytes = attention::scratch(&op, S::DTYPE, &layouts.iter().collect::<Vec<_>>(), context.par.threads());
            let time = timed(bytes, |scratch| {
                let outs = outs.iter_mut().zip(&outputs).map(|(out, ty)| out.output(&ty.shape)).collect();
                attention::run(&op, &inputs, outs, scratch, context);
            });
            let speed = flops / time * 1e-9;
            print!("{what} {speed:.0} ({:.0} %, {:.2} ms)   ", speed / peak * 100.0, time * 1e3);
        }
        println!();
    }
}

fn main() {
    let threads = std::env::args().nth(1).map_or(2, |t| t.parse().expect("a number of threads"));
    let which = std::env::args().nth(2);
    let filter = std::env::args().nth(3).unwrap_or_default();
    let wanted = |name: &str| which.as_deref().is_none_or(|w| w == name);
    let (par, level) = (Par::new(threads), Level::current());
    let context = Context { par: &par, level };
    let peak = peak(&par, level);
    println!("{} on {threads} threads, peak {peak:.0} GFLOP/s", level.name());
    if wanted("dot") {
        products(&filter, 0, context, peak);
    }
    if which.as_deref() == Some("cold") {
        products(&filter, FAR, context, peak);
    }
    if which.as_deref() == Some("price") {
        price(&filter, context);
    }
    if wanted("update") {
        updates(&filter, context);
    }
    if wanted("attention") {
        attentions::<f32>(&filter, context, peak);
        attentions::<bf16>(&filter, context, peak);
    }
    if wanted("conv") {
        convolutions(&filter, context, peak);
    }
}
