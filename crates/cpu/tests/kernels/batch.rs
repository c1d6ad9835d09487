//! Sums over a batch that is split over devices, and merged, have the bits of the sum over the whole.

use crate::common::{self, Numbers, assert_bits, with_scratch};
use meshwork_cpu::gemm::{Element, Real};
use meshwork_cpu::kernel::{self, CpuTarget};
use meshwork_cpu::{Context, Level, Operand, Output, Par};
use meshwork_graph::batch::{merge, parts};
use meshwork_graph::canonical::{Blocking, Blocks};
use meshwork_graph::ops::{ConvGeometry, ConvWeight, Dot, IndexAdd, Reduce, ReduceOp, ScatterAdd, Spatial};
use meshwork_graph::program::Target;
use meshwork_graph::{DType, Dims, Layout, Op, Shape, Type};
use smallvec::smallvec;
use std::fmt::Debug;
use std::ops::Range;

const BATCHES: [usize; 7] = [1, 5, 32, 33, 100, 256, 257];

/// What the devices are worth.
const WEIGHTS: [&[f64]; 6] = [&[1.0], &[1.0; 2], &[1.0; 3], &[3.0, 1.0], &[0.2, 0.5, 0.3], &[1.0; 8]];

#[derive(Clone)]
enum Data<T> {
    Numbers(Vec<T>),
    Indices(Vec<i64>),
}

/// An operand, and which of its dimensions are the samples.
#[derive(Clone)]
struct Value<T> {
    data: Data<T>,
    shape: Shape,
    samples: Option<usize>,
}

impl<T: Element> Value<T> {
    fn numbers(shape: &[usize], samples: usize) -> Self {
        let shape = Shape::new(shape);
        let data = Data::Numbers(Numbers(shape.numel() as u64 + 7).elements(shape.numel()));
        Value { data, shape, samples: Some(samples) }
    }

    fn zeros(shape: &[usize]) -> Self {
        let shape = Shape::new(shape);
        Value { data: Data::Numbers(vec![T::narrow(T::Real::ZERO); shape.numel()]), shape, samples: None }
    }

    fn indices(shape: &[usize], size: usize) -> Self {
        let (shape, mut numbers) = (Shape::new(shape), Numbers(9));
        let data = Data::Indices((0..shape.numel()).map(|_| numbers.below(size) as i64).collect());
        Value { data, shape, samples: Some(0) }
    }

    /// The part of these samples.
    fn part(&self, range: &Range<usize>) -> Self {
        let Some(dim) = self.samples else { return self.clone() };
        fn rows<X: Copy>(data: &[X], [count, row]: [usize; 2], range: &Range<usize>) -> Vec<X> {
            data.chunks(count * row).flat_map(|x| &x[range.start * row..range.end * row]).copied().collect()
        }
        let sizes = [self.shape[dim], self.shape[dim + 1..].iter().product()];
        let data = match &self.data {
            Data::Numbers(data) => Data::Numbers(rows(data, sizes, range)),
            Data::Indices(data) => Data::Indices(rows(data, sizes, range)),
        };
        let mut shape = self.shape.clone();
        shape.0[dim] = range.len();
        Value { data, shape, samples: self.samples }
    }

    fn ty(&self) -> Type {
        let dtype = if let Data::Indices(_) = self.data { DType::I64 } else { T::DTYPE };
        Type { dtype, shape: self.shape.clone() }
    }
}

fn run<T: Element>(op: &Op, inputs: &[Value<T>], context: Context) -> Vec<T> {
    let types: Vec<Type> = inputs.iter().map(Value::ty).collect();
    let layouts: Vec<Layout> = types.iter().map(|ty| Layout::contiguous(&ty.shape)).collect();
    let ty = op.operation().infer(&types.iter().collect::<Vec<_>>()).expect("legal operands");
    let operand = |(value, layout)| {
        let value: &Value<T> = value;
        match &value.data {
            Data::Numbers(data) => Operand::of(data, layout),
            Data::Indices(data) => Operand::of(data, layout),
        }
    };
    let operands: Vec<Operand> = inputs.iter().zip(&layouts).map(operand).collect();
    let pairs: Vec<(&Type, &Layout)> = types.iter().zip(&layouts).collect();
    let scratch = CpuTarget { threads: context.par.lanes() }.scratch(op, &pairs, &ty);
    let mut result = vec![T::narrow(common::real(f64::NAN)); ty.shape.numel()];
    with_scratch(scratch, |scratch| {
        kernel::run(op, &operands, smallvec![Output::of(&mut result, &ty.shape)], scratch, context);
    });
    result
}

/// Splits the operation over devices with all numbers of threads and all levels.
fn check<T: Element + Debug>(op: impl Into<Op>, batch: usize, inputs: &[Value<T>]) {
    let op = op.into();
    let pars = [Par::new(1), Par::new(2), Par::new(3)];
    let devices: Vec<Context> =
        pars.iter().flat_map(|par| Level::available().into_iter().map(move |level| Context { par, level })).collect();
    let unit = Blocks::sum(Blocking::Samples, batch, 1).unit;
    let whole = run(&op, inputs, devices[0]);
    let mut on_part = op.clone();
    on_part.part_of_batch(batch);
    assert_ne!(on_part, op);
    assert_bits(&run(&on_part, inputs, devices[0]), &whole, "all of a batch");
    for weights in WEIGHTS {
        for turn in 0..devices.len() {
            let shares = parts(batch, weights).expect("weights");
            let of_device = |(device, ranges): (usize, Vec<Range<usize>>)| {
                let context = devices[(device + turn) % devices.len()];
                ranges.into_iter().map(move |range| (range, context))
            };
            let roots = shares.into_iter().enumerate().flat_map(of_device).map(|(range, context)| {
                let part: Vec<Value<T>> = inputs.iter().map(|x| x.part(&range)).collect();
                let types: Vec<Type> = part.iter().map(Value::ty).collect();
                let blocks = on_part.blocks(&types.iter().collect::<Vec<_>>()).expect("a sum");
                assert_eq!((blocks.outer, blocks.unit), (range.len(), unit));
                (range, run(&on_part, &part, context))
            });
            let add = |left: T, right: T| T::narrow(left.widen() + right.widen());
            let add = |left: Vec<T>, right: Vec<T>| left.into_iter().zip(right).map(|(l, r)| add(l, r)).collect();
            let merged = merge(batch, roots, add).expect("samples");
            assert_bits(&merged, &whole, &format!("{on_part:?} over {weights:?}"));
        }
    }
}

fn dot(contract: &[usize]) -> Dot {
    let (batch, contract) = (Dims::new(), Dims::from_slice(contract));
    Dot {
        lhs_batch: batch.clone(),
        rhs_batch: batch,
        lhs_contract: contract.clone(),
        rhs_contract: contract,
        blocking: Blocking::Samples,
    }
}

#[test]
fn products() {
    for n in BATCHES {
        check::<f32>(dot(&[0]), n, &[Value::numbers(&[n, 9], 0), Value::numbers(&[n, 37], 0)]);
        check::<f32>(dot(&[0, 1]), n, &[Value::numbers(&[n, 5, 20], 0), Value::numbers(&[n, 5, 3], 0)]);
        check::<f64>(dot(&[1]), n, &[Value::numbers(&[4, n], 1), Value::numbers(&[7, n], 1)]);
    }
}

#[test]
fn plain_sums() {
    for n in BATCHES {
        let sum = |dims: &[usize]| Reduce::new(ReduceOp::Sum, dims);
        check::<f32>(sum(&[0]), n, &[Value::numbers(&[n], 0)]);
        check::<f32>(sum(&[0]), n, &[Value::numbers(&[n, 70], 0)]);
        check::<f32>(sum(&[0, 2]), n, &[Value::numbers(&[n, 3, 19], 0)]);
        check::<f64>(sum(&[0, 1]), n, &[Value::numbers(&[n, 40], 0)]);
    }
}

#[test]
fn gradients_of_kernels() {
    let s = Spatial::from_slice;
    // Shapes of the input and the weight without samples; stride, padding, dilation, groups.
    let one = (&[3, 9][..], &[4, 3, 3][..], [2, 1, 1, 1]);
    let two = (&[1, 6, 5][..], &[16, 1, 2, 2][..], [1, 0, 1, 1]);
    let groups = (&[4, 5, 6][..], &[6, 2, 3, 2][..], [1, 1, 2, 2]);
    let three = (&[2, 3, 4, 3][..], &[3, 2, 2, 2, 2][..], [1, 0, 1, 1]);
    for n in BATCHES {
        for (x, w, [stride, padding, dilation, groups]) in [one, two, groups, three] {
            let along = |value: usize| s(&vec![value; w.len() - 2]);
            let geometry =
                ConvGeometry { stride: along(stride), padding: along(padding), dilation: along(dilation), groups };
            let y = geometry.output(&x[1..], &w[2..]).expect("a kernel that fits");
            let (x, y) = ([&[n][..], x].concat(), [&[n, w[0]][..], &y].concat());
            let inputs = [Value::numbers(&x, 0), Value::numbers(&y, 0)];
            check::<f32>(ConvWeight::new(geometry, s(&w[2..])), n, &inputs);
        }
    }
}

#[test]
fn sums_at_indices() {
    for n in BATCHES {
        check::<f32>(IndexAdd::new(0, 4), n, &[Value::numbers(&[n, 5], 0), Value::indices(&[n], 4)]);
        check::<f32>(IndexAdd::new(1, 3), n, &[Value::numbers(&[2, n, 3, 2], 1), Value::indices(&[n, 3], 3)]);
        let [base, index] = [Value::zeros(&[3, 4]), Value::indices(&[n, 4], 3)];
        check::<f64>(ScatterAdd::new(0), n, &[base, index, Value::numbers(&[n, 4], 0)]);
    }
}
