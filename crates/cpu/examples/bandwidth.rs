//! Memory bandwidth of the elementwise and reducing kernels beside that of bare loops over the same memory:
//! `bandwidth [elements] [threads] [part of a name]`.

use meshwork_cpu::{Context, Level, Operand, Output, Par, Shared, copy, element, reduce};
use meshwork_graph::ops::{BinaryOp, Code, Element, Fused, Instr, Reduce, ReduceOp, Source, Space, UnaryOp};
use meshwork_graph::{DType, Layout, Scalar, Shape};
use std::ops::Range;
use std::time::Instant;

/// What the memory gives a loop that does next to nothing.
mod bare {
    /// `c = a + b`, stored past the caches.
    pub fn add(a: &[f32], b: &[f32], c: &mut [f32]) {
        let head = c.as_ptr().align_offset(64).min(c.len());
        let lines = a[head..].as_chunks::<16>().0.iter().zip(b[head..].as_chunks::<16>().0);
        for (c, (a, b)) in c[head..].as_chunks_mut::<16>().0.iter_mut().zip(lines) {
            stream(std::array::from_fn(|i| a[i] + b[i]), c);
        }
    }

    /// `c = a + a`, stored past the caches.
    pub fn double(a: &[f32], c: &mut [f32]) {
        let head = c.as_ptr().align_offset(64).min(c.len());
        for (c, a) in c[head..].as_chunks_mut::<16>().0.iter_mut().zip(a[head..].as_chunks::<16>().0) {
            stream(std::array::from_fn(|i| a[i] + a[i]), c);
        }
    }

    #[inline(always)]
    fn stream(line: [f32; 16], to: &mut [f32; 16]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 processor has SSE; a line has four vectors, and the callers' lines are aligned.
        unsafe {
            use std::arch::x86_64::{_mm_loadu_ps, _mm_stream_ps};
            for i in (0..16).step_by(4) {
                _mm_stream_ps(to.as_mut_ptr().add(i), _mm_loadu_ps(line.as_ptr().add(i)));
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            *to = line;
        }
    }

    /// Reads everything.
    pub fn read(a: &[f32]) -> f32 {
        let mut sums = [0f32; 64];
        for chunk in a.as_chunks::<64>().0 {
            sums.iter_mut().zip(chunk).for_each(|(sum, x)| *sum += x);
        }
        sums.iter().sum()
    }
}

fn best(bytes: usize, work: &mut dyn FnMut()) -> f64 {
    let seconds = (0..7).map(|_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e9
}

/// `Instr` of a region whose registers are all f32 except where `dtype` says so.
fn instr(op: impl Into<Code>, args: [u16; 3], dtype: DType) -> Instr {
    Instr { op: op.into(), args, of_rows: false, dtype }
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
    println!("{n} f32, {} threads, {}", par.threads(), context.level.name());

    let out = Shared(c.as_mut_ptr());
    let share = |i: usize| -> Range<usize> { i * n / par.threads()..(i + 1) * n / par.threads() };
    // SAFETY: the threads' shares are disjoint, and nobody else uses `c` meanwhile.
    let out = |i: usize| unsafe { out.slice(share(i).start, share(i).len()) };
    let add = best(12 * n, &mut || par.run(par.threads(), &|i| bare::add(&a[share(i)], &b[share(i)], out(i))));
    let double = best(8 * n, &mut || par.run(par.threads(), &|i| bare::double(&a[share(i)], out(i))));
    let read = best(4 * n, &mut || {
        par.run(par.threads(), &|i| {
            std::hint::black_box(bare::read(&a[share(i)]));
        });
    });
    for (name, bound) in [("bare add", add), ("bare double", double), ("bare read", read)] {
        println!("{name:<28}{bound:8.2} GB/s");
    }
    let report = |name: &str, bytes: usize, bound: f64, work: &mut dyn FnMut()| {
        if wanted(name) {
            let got = best(bytes, work);
            println!("{name:<28}{got:8.2} GB/s{:6.0} %", got / bound * 100.0);
        }
    };

    let (x, y) = (Operand::of(&a, &layout), Operand::of(&b, &layout));
    report("copy", 8 * n, double, &mut || copy::run(x, Output::of(&mut c, &shape), context));
    let mut region = |name: &str, inputs: &[Operand], code: &[Instr], bound: f64| {
        let op = Fused {
            space: Space::elements(shape.clone()),
            inputs: vec![Source { dtype: DType::F32, of_rows: false }; inputs.len()],
            code: code.to_vec(),
            outputs: [(inputs.len() + code.len() - 1) as u16].into_iter().collect(),
        };
        let dtype = code[code.len() - 1].dtype;
        let bytes = (4 * inputs.len() + dtype.size()) * n;
        report(name, bytes, bound, &mut || {
            // SAFETY: the memory has room for `n` elements of at most four bytes.
            let output = unsafe { Output::new(c.as_mut_ptr().cast(), dtype, &shape) };
            element::run(&op, inputs, &[output], context);
        });
    };
    let f32 = DType::F32;
    let binary = |op| instr(Element::Binary(op), [0, 1, 0], if op.compares() { DType::Bool } else { DType::F32 });
    region("add", &[x, y], &[binary(BinaryOp::Add)], add);
    region("mul", &[x, y], &[binary(BinaryOp::Mul)], add);
    region("max", &[x, y], &[binary(BinaryOp::Max)], add);
    region("relu", &[x], &[instr(Element::Unary(UnaryOp::Relu), [0; 3], f32)], double);
    let constant = instr(Code::Const(Scalar::Float(2.0)), [0; 3], f32);
    let times = |args, dtype| instr(Element::Binary(BinaryOp::Mul), args, dtype);
    region("x * 2", &[x], &[constant.clone(), times([0, 1, 0], f32)], double);
    let chain = [
        constant,
        times([0, 1, 0], f32),
        instr(Element::Binary(BinaryOp::Add), [3, 2, 0], f32),
        instr(Element::Unary(UnaryOp::Relu), [4, 0, 0], f32),
    ];
    region("relu(x * y + 2)", &[x, y], &chain, add);
    region("x > y", &[x, y], &[binary(BinaryOp::Gt)], add);
    region("to bool", &[x], &[instr(Element::Cast(DType::Bool), [0; 3], DType::Bool)], read);
    region("to bf16", &[x], &[instr(Element::Cast(DType::BF16), [0; 3], DType::BF16)], double);
    for (name, op) in [("exp", UnaryOp::Exp), ("tanh", UnaryOp::Tanh), ("erf", UnaryOp::Erf), ("sin", UnaryOp::Sin)] {
        region(name, &[x], &[instr(Element::Unary(op), [0; 3], f32)], double);
    }
    region("pow", &[x, y], &[binary(BinaryOp::Pow)], add);

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
        report(name, 4 * count, read, &mut || reduce::run(&op, &[x], Output::of(&mut out, &kept), scratch, context));
    };
    let (rows, edge) = (n / 1024, n.isqrt());
    reduction("sum of all", ReduceOp::Sum, &[n], &[0]);
    reduction("max of all", ReduceOp::Max, &[n], &[0]);
    reduction("sum [√n, √n] 0 1", ReduceOp::Sum, &[edge, edge], &[0, 1]);
    reduction("sum [√n, √n] 0", ReduceOp::Sum, &[edge, edge], &[0]);
    reduction("max [√n, √n] 0", ReduceOp::Max, &[edge, edge], &[0]);
    reduction("sum [√n, √n] 1", ReduceOp::Sum, &[edge, edge], &[1]);
    reduction("max [√n, √n] 1", ReduceOp::Max, &[edge, edge], &[1]);
    reduction("sum [n/1024, 1024] 1", ReduceOp::Sum, &[rows, 1024], &[1]);
    reduction("sum [n/1024, 1024] 0", ReduceOp::Sum, &[rows, 1024], &[0]);
    reduction("sum [n/16, 16] 1", ReduceOp::Sum, &[n / 16, 16], &[1]);
    reduction("sum [n/10, 10] 1", ReduceOp::Sum, &[n / 10, 10], &[1]);
    reduction("sum [n/10, 10] 0", ReduceOp::Sum, &[n / 10, 10], &[0]);
    reduction("sum [n/3136, 64, 49] 02", ReduceOp::Sum, &[n / 3136, 64, 49], &[0, 2]);
}
