//! Speed of elementwise instructions on one thread in the second cache, and of the small regions and reductions of
//! training steps: `cache_speed [threads] [part of a name]`.

use meshwork_cpu::{Context, Level, Operand, Output, Par, element, index, reduce};
use meshwork_graph::ops::{
    BinaryOp, Code, Element, Fused, Instr, Reduce, ReduceOp, ScatterAdd, Source, Space, UnaryOp,
};
use meshwork_graph::{DType, Layout, Scalar, Shape};
use std::time::{Duration, Instant};

/// The best time of one call, of enough calls for a tenth of a second.
fn best(mut work: impl FnMut()) -> f64 {
    let (mut best, start) = (f64::INFINITY, Instant::now());
    while start.elapsed() < Duration::from_millis(100) {
        let call = Instant::now();
        work();
        best = best.min(call.elapsed().as_secs_f64());
    }
    best
}

/// Bytes that are the number 1 of any dtype.
fn ones(dtype: DType, count: usize) -> Vec<u8> {
    let one: &[u8] = match dtype {
        DType::F64 => &1f64.to_le_bytes(),
        DType::F32 => &1f32.to_le_bytes(),
        DType::F16 => &[0x00, 0x3c],
        DType::BF16 => &[0x80, 0x3f],
        DType::I64 => &1i64.to_le_bytes(),
        DType::I32 => &1i32.to_le_bytes(),
        DType::U8 | DType::Bool => &[1],
    };
    one.repeat(count)
}

struct Bench<'a> {
    context: Context<'a>,
    part: Option<String>,
}

impl Bench<'_> {
    fn wants(&self, name: &str) -> bool {
        self.part.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }

    /// Seconds that a region takes on dense inputs of its dtypes.
    fn region(&self, op: &Fused, shape: &Shape) -> (f64, usize) {
        let (layout, dtype) = (Layout::contiguous(shape), op.code[op.code.len() - 1].dtype);
        let memory: Vec<Vec<u8>> = op.inputs.iter().map(|input| ones(input.dtype, shape.numel())).collect();
        let inputs: Vec<Operand> =
            // SAFETY: the memory holds the elements; allocations of this size are aligned for any dtype.
            memory.iter().zip(&op.inputs).map(|(m, x)| unsafe { Operand::new(m.as_ptr(), x.dtype, &layout) }).collect();
        let mut out = ones(dtype, shape.numel());
        let bytes = out.len() + memory.iter().map(Vec::len).sum::<usize>();
        let seconds = best(|| {
            // SAFETY: as for the inputs.
            let output = unsafe { Output::new(out.as_mut_ptr(), dtype, shape) };
            element::run(op, &inputs, &[output], self.context);
        });
        (seconds, bytes)
    }

    /// One line of the table of instructions: GB/s for every dtype it is defined for.
    fn instruction(&self, name: &str, op: Element, inputs: impl Fn(DType) -> Vec<DType>, dtypes: &[DType]) {
        if !self.wants(name) {
            return;
        }
        print!("{name:<12}");
        for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U8, DType::Bool] {
            if dtypes.contains(&dtype) {
                let result = match op {
                    Element::Binary(op) if op.compares() => DType::Bool,
                    Element::Cast(to) => to,
                    _ => dtype,
                };
                let shape = Shape::new(&[12_288]);
                let (seconds, bytes) = self.region(&Fused::single(op, shape.clone(), &inputs(dtype), result), &shape);
                print!("{:9.1}", bytes as f64 / seconds / 1e9);
            } else {
                print!("{:9}", "-");
            }
        }
        println!();
    }

    fn shape(&self, name: &str, inputs: &[DType], code: &[(Code, [u16; 3], DType)], sizes: &[usize]) {
        if self.wants(name) {
            let code: Vec<Instr> =
                code.iter().map(|&(op, args, dtype)| Instr { op, args, of_rows: false, dtype }).collect();
            let region = Fused {
                space: Space::elements(Shape::new(sizes)),
                inputs: inputs.iter().map(|&dtype| Source { dtype, of_rows: false }).collect(),
                outputs: [(inputs.len() + code.len() - 1) as u16].into_iter().collect(),
                code,
            };
            let (seconds, bytes) = self.region(&region, &Shape::new(sizes));
            self.line(name, sizes, seconds, bytes);
        }
    }

    fn reduction(&self, op: ReduceOp, sizes: &[usize], dims: &[usize]) {
        let name = format!("{op:?} over {dims:?}");
        if self.wants(&name) {
            let layout = Layout::contiguous(&Shape::new(sizes));
            let kept: Shape = (0..sizes.len()).filter(|d| !dims.contains(d)).map(|d| sizes[d]).collect();
            let (x, mut out) = (vec![1f32; layout.shape.numel()], vec![0f32; kept.numel()]);
            let op = Reduce::new(op, dims);
            let bytes = reduce::scratch(&op, DType::F32, &[&layout], self.context.par.threads());
            let mut scratch = vec![0u64; bytes.div_ceil(8)];
            // SAFETY: the bytes of numbers.
            let scratch = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast(), bytes) };
            let x = Operand::of(&x, &layout);
            let seconds = best(|| reduce::run(&op, &[x], Output::of(&mut out, &kept), scratch, self.context));
            self.line(&name, sizes, seconds, 4 * layout.shape.numel());
        }
    }

    fn scatter(&self, sizes: &[usize], count: usize, dim: usize) {
        if self.wants("scatter_add") {
            let shape = Shape::new(sizes);
            let mut picked = shape.clone();
            picked.0[dim] = count;
            let layouts = [&shape, &picked, &picked].map(Layout::contiguous);
            let (base, source) = (vec![0f32; shape.numel()], vec![1f32; picked.numel()]);
            let indices: Vec<i64> = (0..picked.numel()).map(|i| (i * 7 % sizes[dim]) as i64).collect();
            let op = ScatterAdd { dim };
            let threads = self.context.par.threads();
            let bytes = index::scatter_add_scratch(&op, DType::F32, &[&layouts[0], &layouts[1], &layouts[2]], threads);
            let mut scratch = vec![0u64; bytes.div_ceil(8)];
            // SAFETY: the bytes of numbers.
            let scratch = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast(), bytes) };
            let inputs = [
                Operand::of(&base, &layouts[0]),
                Operand::of(&indices, &layouts[1]),
                Operand::of(&source, &layouts[2]),
            ];
            let mut out = vec![0f32; shape.numel()];
            let seconds =
                best(|| index::scatter_add(&op, &inputs, Output::of(&mut out, &shape), scratch, self.context));
            self.line(&format!("scatter_add of {count}"), sizes, seconds, 8 * shape.numel() + 12 * picked.numel());
        }
    }

    fn line(&self, name: &str, sizes: &[usize], seconds: f64, bytes: usize) {
        println!(
            "{name:<28}{:<20}{:10.2} µs{:9.1} GB/s",
            format!("{sizes:?}"),
            seconds * 1e6,
            bytes as f64 / seconds / 1e9
        );
    }
}

fn main() {
    use DType::*;
    let args: Vec<String> = std::env::args().skip(1).collect();
    let par = Par::new(args.first().map_or(2, |a| a.parse().expect("a number")));
    let one = Par::new(1);
    let level = Level::current();
    let bench = Bench { context: Context { par: &one, level }, part: args.get(1).cloned() };
    println!(
        "{:<12}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}",
        "GB/s", "f32", "f64", "f16", "bf16", "i64", "i32", "u8", "bool"
    );
    let floats = [F32, F64, F16, BF16];
    let numbers = [F32, F64, F16, BF16, I64, I32, U8];
    let all = [F32, F64, F16, BF16, I64, I32, U8, Bool];
    for op in [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Sign, UnaryOp::Relu] {
        bench.instruction(&format!("{op:?}"), Element::Unary(op), |d| vec![d], &numbers);
    }
    for op in {
        use UnaryOp::*;
        [Recip, Sqrt, Rsqrt, Floor, Ceil, Round, Exp, Expm1, Log, Log1p, Sin, Cos, Tanh, Sigmoid, Erf]
    } {
        bench.instruction(&format!("{op:?}"), Element::Unary(op), |d| vec![d], &floats);
    }
    bench.instruction("Not", Element::Unary(UnaryOp::Not), |d| vec![d], &[Bool]);
    for op in {
        use BinaryOp::*;
        [Add, Sub, Mul, Div, Pow, Max, Min]
    } {
        bench.instruction(&format!("{op:?}"), Element::Binary(op), |d| vec![d; 2], &numbers);
    }
    for op in {
        use BinaryOp::*;
        [Eq, Ne, Lt, Le, Gt, Ge]
    } {
        bench.instruction(&format!("{op:?}"), Element::Binary(op), |d| vec![d; 2], &all);
    }
    for op in [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor] {
        bench.instruction(&format!("{op:?}"), Element::Binary(op), |d| vec![d; 2], &[Bool]);
    }
    bench.instruction("Select", Element::Select, |d| vec![Bool, d, d], &all);
    for to in all {
        bench.instruction(&format!("to {to}"), Element::Cast(to), |d| vec![d], &all);
    }

    let bench = Bench { context: Context { par: &par, level }, ..bench };
    println!("{} threads", par.threads());
    let (add, mul, gt) = (BinaryOp::Add, BinaryOp::Mul, BinaryOp::Gt);
    let zero = (Code::Const(Scalar::Float(0.0)), [0; 3], F32);
    let relu_gradient = [zero, (Element::Binary(gt).into(), [0, 2, 0], Bool), (Element::Select.into(), [3, 1, 2], F32)];
    let relu_product = [
        zero,
        (Element::Binary(gt).into(), [0, 2, 0], Bool),
        (Element::Cast(F32).into(), [3, 0, 0], F32),
        (Element::Binary(mul).into(), [1, 4, 0], F32),
    ];
    let biased =
        [(Element::Binary(add).into(), [0, 1, 0], F32), (Element::Unary(UnaryOp::Relu).into(), [2, 0, 0], F32)];
    for sizes in [&[256, 20, 26, 26][..], &[256, 50, 9, 9], &[256, 128], &[256, 10]] {
        bench.shape("relu(x + y)", &[F32; 2], &biased, sizes);
        bench.shape("relu gradient by select", &[F32; 2], &relu_gradient, sizes);
        bench.shape("relu gradient by product", &[F32; 2], &relu_product, sizes);
    }
    for (op, sizes, dims) in [
        (ReduceOp::Sum, &[256, 20, 26, 26][..], &[0, 2, 3][..]),
        (ReduceOp::Sum, &[256, 50, 9, 9], &[0, 2, 3]),
        (ReduceOp::Sum, &[256, 64, 7, 7], &[0, 2, 3]),
        (ReduceOp::Sum, &[64, 64, 49], &[0, 2]),
        (ReduceOp::Sum, &[256, 128], &[0]),
        (ReduceOp::Sum, &[256, 10], &[0]),
        (ReduceOp::Sum, &[256, 10], &[1]),
        (ReduceOp::Max, &[256, 10], &[1]),
        (ReduceOp::Max, &[256, 128], &[1]),
        (ReduceOp::Sum, &[256], &[0]),
        (ReduceOp::Sum, &[256, 20, 26, 26], &[2, 3]),
        (ReduceOp::Max, &[256, 50, 9, 9], &[0, 2, 3]),
    ] {
        bench.reduction(op, sizes, dims);
    }
    bench.scatter(&[256, 10], 1, 1);
    bench.scatter(&[100, 64], 256, 0);
}
