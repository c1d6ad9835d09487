//! Every operation with operands whose sizes make several blocks, and runs of several elements.

use super::cut::{Case, case};
use super::numbered::Numbered;
use crate::common::numbers::Numbers;
use meshwork::graph::canonical::Blocking;
use meshwork::graph::ops::*;
use meshwork::graph::{Dims, Shape};
use meshwork::tensor::{manual_seed, randn};
use meshwork::{DType, Scalar, Tensor};
use smallvec::{SmallVec, smallvec};

fn dims(d: &[usize]) -> Dims {
    Dims::from_slice(d)
}

fn randoms(shape: &[usize]) -> Tensor {
    randn(shape)
}

fn indices(below: usize, shape: &[usize]) -> Tensor {
    Numbers::new(shape.len() as u64).indices(below, shape)
}

fn dot(lhs: [&[usize]; 2], rhs: [&[usize]; 2], blocking: Blocking) -> Dot {
    Dot {
        lhs_batch: dims(lhs[0]),
        rhs_batch: dims(rhs[0]),
        lhs_contract: dims(lhs[1]),
        rhs_contract: dims(rhs[1]),
        blocking,
    }
}

/// Windows that overlap along the first spatial dimension, with gaps along the second.
fn overlapping(groups: usize) -> ConvGeometry {
    ConvGeometry { stride: smallvec![2, 1], padding: smallvec![1, 0], dilation: smallvec![1, 2], groups }
}

/// Windows side by side, `stride` apart.
fn side_by_side(stride: [usize; 2], groups: usize) -> ConvGeometry {
    let spatial = Spatial::from_slice;
    ConvGeometry { stride: spatial(&stride), padding: spatial(&[0, 0]), dilation: spatial(&[1, 1]), groups }
}

/// A convolution of `x` by a weight, and its two gradients.
fn convolutions(geometry: &ConvGeometry, x: &[usize], w: &[usize]) -> [Case; 3] {
    let (x, w) = (randoms(x), randoms(w));
    let forward = case(Conv::new(geometry.clone()), &[x.clone(), w.clone()]);
    let dy = randoms(forward.whole().shape());
    let size = Spatial::from_slice(&x.shape()[2..]);
    let kernel = Spatial::from_slice(&w.shape()[2..]);
    let input = case(ConvInput::new(geometry.clone(), size), &[dy.clone(), w]);
    [forward, input, case(ConvWeight::new(geometry.clone(), kernel), &[x, dy])]
}

/// The poolings with such windows, and their gradients.
fn pools(windows: [Window; 2], x: &[usize]) -> [Case; 4] {
    let (windows, x) = (Windows::from_slice(&windows), randoms(x));
    let size = Spatial::from_slice(&x.shape()[2..]);
    let avg = AvgPool { windows: windows.clone(), count_include_pad: true };
    let mean = case(avg.clone(), std::slice::from_ref(&x));
    let dy = randoms(mean.whole().shape());
    [
        mean,
        case(AvgPoolInput { pool: avg, size }, std::slice::from_ref(&dy)),
        case(MaxPool { windows: windows.clone() }, &[x.clone(), x.clone()]),
        case(MaxPoolInput { windows }, &[x, dy]),
    ]
}

fn slice(starts: &[usize], sizes: &[usize], steps: &[isize]) -> Slice {
    Slice { starts: dims(starts), sizes: dims(sizes), steps: SmallVec::from_slice(steps) }
}

fn pad(low: &[usize], high: &[usize], interior: &[usize]) -> Pad {
    Pad { low: dims(low), high: dims(high), interior: dims(interior), value: Scalar::Float(1.0) }
}

fn reshape(from: &[usize], to: &[usize]) -> Case {
    case(Reshape { shape: to.into() }, &[randoms(from)])
}

fn reductions() -> Vec<Case> {
    let r = randoms;
    let rates = || r(&[100, 3]) * 0.1 + 1.0;
    vec![
        case(Reduce::new(ReduceOp::Sum, &[0]), &[r(&[100, 7])]),
        case(Reduce::new(ReduceOp::Sum, &[0, 2]), &[r(&[33, 5, 9])]),
        case(Reduce::new(ReduceOp::Sum, &[1]), &[r(&[5, 700])]),
        case(Reduce::new(ReduceOp::Sum, &[0, 1]), &[r(&[6, 7, 5])]),
        case(Reduce::new(ReduceOp::Max, &[0, 1]), &[r(&[6, 7])]),
        case(Reduce::new(ReduceOp::Min, &[1]), &[r(&[6, 7])]),
        case(Reduce::new(ReduceOp::Prod, &[0]), &[rates()]),
        case(Reduce::new(ReduceOp::Prod, &[0, 1]), &[rates()]),
        case(ArgReduce { largest: true, dim: 1 }, &[r(&[6, 7, 3])]),
        case(ArgReduce { largest: false, dim: 0 }, &[r(&[6, 7])]),
        case(CumSum { dim: 1, reverse: false }, &[r(&[6, 7, 3])]),
        case(CumSum { dim: 0, reverse: true }, &[r(&[6, 7])]),
    ]
}

fn products() -> Vec<Case> {
    let r = randoms;
    vec![
        case(dot([&[], &[1]], [&[], &[1]], Blocking::Features), &[r(&[9, 700]), r(&[11, 700])]),
        case(dot([&[], &[0]], [&[], &[0]], Blocking::Samples), &[r(&[100, 9]), r(&[100, 11])]),
        case(dot([&[0], &[2]], [&[0], &[1]], Blocking::Features), &[r(&[3, 5, 300]), r(&[3, 300, 4])]),
        case(dot([&[], &[0, 1]], [&[], &[0, 1]], Blocking::Samples), &[r(&[40, 3, 9]), r(&[40, 3, 5])]),
        case(dot([&[], &[1, 0]], [&[], &[2, 1]], Blocking::Features), &[r(&[6, 90, 4]), r(&[5, 6, 90])]),
    ]
}

/// All results of attention: samples, queries, keys, query heads, key heads, features of keys, of values.
fn attentions([b, t, s, h, g, d, e]: [usize; 7], mask: AttentionMask) -> Vec<Case> {
    let op = Attention::new(0.4, mask);
    let all = |input| match input {
        AttentionInput::Query => randoms(&[b, t, h, d]),
        AttentionInput::Key => randoms(&[b, s, g, d]),
        AttentionInput::Value => randoms(&[b, s, g, e]),
        AttentionInput::Gradient => randoms(&[b, t, h, e]),
        AttentionInput::Normalizer => randoms(&[b, t, h]) * 0.1 + 4.0,
        AttentionInput::Delta => randoms(&[b, t, h]),
        AttentionInput::Lengths => indices(s / 2, &[b]) + Tensor::from_slice(&[s as i64 / 2], &[1]),
    };
    use AttentionResult::{Key, Normalizer, Output, Query, Value};
    let of_result = |result| {
        let op = op.with(result);
        let inputs: Vec<Tensor> = op.inputs().into_iter().map(all).collect();
        case(op, &inputs)
    };
    [Output, Normalizer, Query, Key, Value].map(of_result).into()
}

fn attention() -> Vec<Case> {
    let part = AttentionMask { first_query: 30, first_key: 7, ..AttentionMask::causal(9, 9) };
    let masks = [
        ([2, 70, 66, 4, 2, 3, 4], AttentionMask::causal(70, 66)),
        ([3, 34, 40, 3, 1, 4, 2], AttentionMask { padded: true, ..part }),
    ];
    let narrow = [[2, 40, 4, 6], [2, 70, 2, 6], [2, 70, 2, 5]].map(|shape| randoms(&shape).to_dtype(DType::BF16));
    let narrow = case(Attention::new(0.5, AttentionMask::causal(40, 70)), &narrow);
    masks.into_iter().flat_map(|(sizes, mask)| attentions(sizes, mask)).chain([narrow]).collect()
}

fn windows() -> Vec<Case> {
    let fixed = |kernel, stride, padding| Window::Fixed { kernel, stride, padding, dilation: 1, ceil: false };
    let ceil = Window::Fixed { kernel: 2, stride: 3, padding: 0, dilation: 2, ceil: true };
    let adaptive = |output| Window::Adaptive { output };
    let mut cases: Vec<Case> = vec![];
    cases.extend(convolutions(&overlapping(1), &[9, 4, 8, 7], &[6, 4, 3, 2]));
    cases.extend(convolutions(&overlapping(2), &[9, 4, 8, 7], &[6, 2, 3, 2]));
    cases.extend(convolutions(&overlapping(3), &[5, 6, 8, 7], &[9, 2, 3, 2]));
    cases.extend(convolutions(&side_by_side([1, 1], 1), &[2, 100, 4, 3], &[70, 100, 1, 1]));
    cases.extend(convolutions(&side_by_side([3, 2], 1), &[3, 40, 9, 6], &[5, 40, 2, 2]));
    cases.extend(convolutions(&side_by_side([2, 2], 4), &[3, 4, 6, 7], &[8, 1, 2, 2]));
    cases.extend(pools([fixed(2, 2, 0), adaptive(3)], &[4, 5, 8, 7]));
    cases.extend(pools([fixed(3, 2, 1), adaptive(3)], &[4, 5, 8, 6]));
    cases.extend(pools([ceil, fixed(3, 2, 0)], &[4, 5, 9, 8]));
    cases
}

fn views() -> Vec<Case> {
    let r = randoms;
    vec![
        reshape(&[5, 3, 7, 2], &[5, 21, 2]),
        reshape(&[6, 50, 4, 4], &[6, 800]),
        reshape(&[6, 800], &[6, 50, 4, 4]),
        reshape(&[4, 6, 5], &[24, 5]),
        reshape(&[24, 5], &[4, 6, 5]),
        reshape(&[4, 1, 6, 1], &[1, 4, 1, 6]),
        reshape(&[4, 6], &[6, 4]),
        reshape(&[8, 9], &[12, 6]),
        reshape(&[3, 3, 4], &[9, 2, 2]),
        case(Permute { dims: dims(&[2, 0, 1]) }, &[r(&[5, 3, 7])]),
        case(Expand { shape: [5, 3, 7].into() }, &[r(&[5, 1, 7])]),
        case(Expand { shape: [5, 3, 7].into() }, &[r(&[1, 7])]),
        case(Expand { shape: [5, 3, 7].into() }, &[r(&[])]),
        case(slice(&[0, 6], &[5, 3], &[1, -2]), &[r(&[5, 7])]),
        case(slice(&[1, 0], &[3, 3], &[2, 2]), &[r(&[6, 5])]),
        case(slice(&[1, 2], &[4, 5], &[1, 1]), &[r(&[5, 7])]),
        case(pad(&[0, 2], &[0, 1], &[0, 1]), &[r(&[5, 7])]),
        case(pad(&[1, 0], &[1, 1], &[2, 1]), &[r(&[5, 7])]),
        case(Concat { dim: 1 }, &[r(&[5, 2]), r(&[5, 3])]),
        case(Concat { dim: 0 }, &[r(&[3, 4]), r(&[3, 4]), r(&[3, 4])]),
    ]
}

/// +0 and −0, which are told apart by their bits.
fn signed_zeros(shape: &[usize]) -> Tensor {
    randoms(shape) * 0.0
}

fn looked_up() -> Vec<Case> {
    let r = randoms;
    vec![
        case(Gather::new(0), &[r(&[9, 5]), indices(9, &[7, 5])]),
        case(Gather::new(1), &[r(&[4, 9, 3]), indices(9, &[4, 7, 3])]),
        case(ScatterAdd::new(0), &[r(&[9, 5]), indices(9, &[70, 5]), r(&[70, 5])]),
        case(ScatterAdd::new(1), &[r(&[6, 4]), indices(4, &[6, 20]), r(&[6, 20])]),
        case(IndexSelect::new(1), &[r(&[3, 9, 4]), indices(9, &[7])]),
        case(IndexSelect::new(0), &[r(&[9, 4]), indices(9, &[5, 3])]),
        case(IndexSelect::new(0), &[signed_zeros(&[9, 4]), indices(9, &[5, 3])]),
        case(Gather::new(1), &[signed_zeros(&[4, 9]), indices(9, &[4, 7])]),
        case(IndexAdd::new(1, 9), &[r(&[3, 70, 4]), indices(9, &[70])]),
        case(IndexAdd::new(0, 9), &[r(&[40, 6, 5]), indices(9, &[40, 6])]),
    ]
}

/// All operations on f32, and those that make values of nothing.
pub fn cases() -> Vec<Case> {
    manual_seed(3);
    let r = randoms;
    let key = Tensor::from_slice(&[77i64], &[]);
    let random = |distribution, dtype| case(Random::new(distribution, [6, 5, 7], dtype), std::slice::from_ref(&key));
    let mut cases = vec![
        case(Element::Unary(UnaryOp::Tanh), &[r(&[5, 7])]),
        case(Element::Binary(BinaryOp::Mul), &[r(&[5, 7]), r(&[5, 7])]),
        case(Element::Select, &[r(&[5, 7]).gt(0.0), r(&[5, 7]), r(&[5, 7])]),
        case(Element::Cast(DType::BF16), &[r(&[5, 7])]),
        case(Const { value: Scalar::Float(2.0), dtype: DType::F32 }, &[]),
        case(Iota::new([5, 4, 3], 0, DType::I64), &[]),
        case(Iota::new([5, 4, 3], 2, DType::F32), &[]),
        random(Distribution::Uniform, DType::F32),
        random(Distribution::Normal, DType::F16),
        case(Random::new(Distribution::Permutation, Shape::new(&[50]), DType::I64), std::slice::from_ref(&key)),
        case(Numbered { first: 4 }, &[r(&[6, 5])]),
    ];
    cases.extend(reductions());
    cases.extend(products());
    cases.extend(attention());
    cases.extend(windows());
    cases.extend(views());
    cases.extend(looked_up());
    cases
}

/// Sums of integers.
pub fn integer_cases() -> Vec<Case> {
    manual_seed(4);
    let ints = |shape: &[usize], dtype| (randoms(shape) * 100.0).to_dtype(dtype);
    vec![
        case(Reduce::new(ReduceOp::Sum, &[0, 2]), &[ints(&[33, 5, 9], DType::I64)]),
        case(Reduce::new(ReduceOp::Prod, &[0]), &[ints(&[100, 3], DType::I32)]),
        case(Reduce::new(ReduceOp::Max, &[0, 1]), &[ints(&[6, 7], DType::I32)]),
        case(
            dot([&[], &[0]], [&[], &[0]], Blocking::Samples),
            &[ints(&[100, 9], DType::I64), ints(&[100, 11], DType::I64)],
        ),
        case(IndexAdd::new(0, 9), &[ints(&[40, 5], DType::I32), indices(9, &[40])]),
    ]
}

/// Sums of f16 or bf16 with many blocks.
pub fn narrow_cases(dtype: DType) -> Vec<Case> {
    manual_seed(5);
    let r = |shape: &[usize]| randoms(shape).to_dtype(dtype);
    let index = Tensor::from_slice(&(0..70).map(|i| i * i % 9).collect::<Vec<i64>>(), &[70]);
    let patches = side_by_side([2, 2], 1);
    vec![
        case(dot([&[], &[1]], [&[], &[1]], Blocking::Features), &[r(&[9, 700]), r(&[11, 700])]),
        case(dot([&[], &[0, 1]], [&[], &[0, 1]], Blocking::Samples), &[r(&[40, 3, 9]), r(&[40, 3, 5])]),
        case(Reduce::new(ReduceOp::Sum, &[0]), &[r(&[100, 70])]),
        case(Reduce::new(ReduceOp::Sum, &[1, 2]), &[r(&[5, 90, 9])]),
        case(Reduce::new(ReduceOp::Prod, &[0]), &[(randoms(&[100, 70]) * 0.1 + 1.0).to_dtype(dtype)]),
        case(Conv::new(patches.clone()), &[r(&[3, 60, 6, 6]), r(&[5, 60, 2, 2])]),
        case(ConvInput::new(side_by_side([1, 1], 1), smallvec![3, 3]), &[r(&[3, 150, 3, 3]), r(&[150, 8, 1, 1])]),
        case(ConvWeight::new(patches, smallvec![2, 2]), &[r(&[40, 4, 6, 6]), r(&[40, 5, 3, 3])]),
        case(IndexAdd::new(0, 9), &[r(&[70, 30]), index]),
    ]
}
