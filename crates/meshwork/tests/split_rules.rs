//! The declared split rules are true: an operation cut along a factor and merged gives the bits of the whole.
//!
//! Mapped factors are merged by concatenation, sums by addition at an aligned cut of their blocks, maxima and minima
//! by maximum and minimum.

use meshwork::Tensor;
use meshwork::graph::canonical::{Blocking, Blocks};
use meshwork::graph::ops::*;
use meshwork::graph::{Dims, Factor, Kind, Op, Type};
use meshwork::tensor::{concat, manual_seed, permutation, randn};
use smallvec::smallvec;

/// An operation with operands, and the same operation for a part whose output has another shape.
struct Case {
    op: Op,
    inputs: Vec<Tensor>,
    part: fn(&Op, &[usize]) -> Op,
}

fn case(op: impl Into<Op>, inputs: &[Tensor]) -> Case {
    Case { op: op.into(), inputs: inputs.to_vec(), part: |op, _| op.clone() }
}

fn shaped(op: impl Into<Op>, inputs: &[Tensor], part: fn(&Op, &[usize]) -> Op) -> Case {
    Case { op: op.into(), inputs: inputs.to_vec(), part }
}

fn ty(t: &Tensor) -> Type {
    Type::new(t.dtype(), t.shape())
}

fn part(case: &Case, whole: &Tensor, factor: &Factor, start: usize, size: usize) -> Tensor {
    let inputs: Vec<Tensor> = case
        .inputs
        .iter()
        .zip(&factor.inputs)
        .map(|(x, dim)| dim.map_or(x.clone(), |d| x.narrow(d as isize, start, size)))
        .collect();
    let refs: Vec<&Tensor> = inputs.iter().collect();
    let mut shape = whole.shape().to_vec();
    if let Some(d) = factor.output {
        shape[d] = size;
    }
    let mut op = (case.part)(&case.op, &shape);
    if let Some(unit) = factor.granularity {
        // A part of a sum has the blocks of the whole.
        if let Some(blocking) = op.blocking_mut() {
            *blocking = Blocking::Every(unit);
        }
        let types: Vec<Type> = inputs.iter().map(ty).collect();
        let types: Vec<&Type> = types.iter().collect();
        let factors = op.operation().rule(&types, &ty(whole)).factors;
        assert!(factors.contains(factor), "{}: {factor:?} is none of {factors:?}", op.operation().name());
    }
    Tensor::record(op, &refs)
}

/// Checks every factor of a case and returns how many were cut.
fn check(case: &Case) -> usize {
    let refs: Vec<&Tensor> = case.inputs.iter().collect();
    let whole = Tensor::record(case.op.clone(), &refs);
    let types: Vec<Type> = case.inputs.iter().map(ty).collect();
    let types: Vec<&Type> = types.iter().collect();
    let operation = case.op.operation();
    let mut cut = 0;
    for factor in operation.rule(&types, &ty(&whole)).factors {
        let carried = factor.inputs.iter().enumerate().find_map(|(i, d)| d.map(|d| case.inputs[i].shape()[d]));
        let size = carried.or(factor.output.map(|d| whole.shape()[d])).expect("a factor is somewhere");
        for (i, dim) in factor.inputs.iter().enumerate() {
            if let Some(d) = dim {
                assert_eq!(case.inputs[i].shape()[*d], size, "{}: {factor:?}", operation.name());
            }
        }
        let at = match factor.granularity {
            None => size / 3 + 1,
            Some(unit) => {
                // The left sub-tree of the root: the largest power of two of blocks below all of them.
                let blocks = size.div_ceil(unit);
                if blocks < 2 { continue } else { unit * (1 << (blocks - 1).ilog2()) }
            }
        };
        if at >= size || factor.kind == Kind::Whole {
            continue;
        }
        let (left, right) = (part(case, &whole, &factor, 0, at), part(case, &whole, &factor, at, size - at));
        let merged = match factor.kind {
            Kind::Mapped => concat(&[&left, &right], factor.output.expect("mapped to the output") as isize),
            Kind::Sum => &left + &right,
            Kind::Max => left.maximum(&right),
            Kind::Min => left.minimum(&right),
            Kind::Whole | Kind::Halo => unreachable!(),
        };
        assert_eq!(merged.to_bytes(), whole.to_bytes(), "{} cut along {factor:?}", operation.name());
        cut += 1;
    }
    cut
}

fn dims(d: &[usize]) -> Dims {
    Dims::from_slice(d)
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

fn geometry(groups: usize) -> ConvGeometry {
    ConvGeometry { stride: smallvec![2, 1], padding: smallvec![1, 0], dilation: smallvec![1, 2], groups }
}

#[test]
fn every_rule_holds() {
    manual_seed(3);
    let r = |shape: &[usize]| randn(shape);
    let windows: Windows = smallvec![
        Window::Fixed { kernel: 2, stride: 2, padding: 0, dilation: 1, ceil: false },
        Window::Adaptive { output: 3 }
    ];
    let avg = AvgPool { windows: windows.clone(), count_include_pad: true };
    let index = permutation(7);
    let rows = index.reshape(&[7, 1]).expand(&[7, 5]);
    let dy = |x: &[usize]| Tensor::record(Conv(geometry(1)), &[&r(x), &r(&[6, x[1], 3, 2])]);
    let (x, y) = (r(&[9, 4, 8, 7]), dy(&[9, 4, 8, 7]));
    let cases = vec![
        case(Element::Unary(UnaryOp::Tanh), &[r(&[5, 7])]),
        case(Element::Binary(BinaryOp::Mul), &[r(&[5, 7]), r(&[5, 7])]),
        case(Element::Select, &[r(&[5, 7]).gt(0.0), r(&[5, 7]), r(&[5, 7])]),
        case(Reduce::new(ReduceOp::Sum, &[0]), &[r(&[100, 7])]),
        case(Reduce::new(ReduceOp::Sum, &[0, 2]), &[r(&[33, 5, 9])]),
        case(Reduce::new(ReduceOp::Sum, &[1]), &[r(&[5, 700])]),
        case(Reduce::new(ReduceOp::Max, &[0, 1]), &[r(&[6, 7])]),
        case(Reduce::new(ReduceOp::Min, &[1]), &[r(&[6, 7])]),
        case(Reduce::new(ReduceOp::Prod, &[0]), &[r(&[6, 7])]),
        case(ArgReduce { largest: true, dim: 1 }, &[r(&[6, 7, 3])]),
        case(CumSum { dim: 1, reverse: false }, &[r(&[6, 7, 3])]),
        case(dot([&[], &[1]], [&[], &[1]], Blocking::Features), &[r(&[9, 700]), r(&[11, 700])]),
        case(dot([&[], &[0]], [&[], &[0]], Blocking::Samples), &[r(&[100, 9]), r(&[100, 11])]),
        case(dot([&[0], &[2]], [&[0], &[1]], Blocking::Features), &[r(&[3, 5, 300]), r(&[3, 300, 4])]),
        case(dot([&[], &[0, 1]], [&[], &[0, 1]], Blocking::Samples), &[r(&[40, 3, 9]), r(&[40, 3, 5])]),
        case(Conv(geometry(1)), &[x.clone(), r(&[6, 4, 3, 2])]),
        case(Conv(geometry(2)), &[x.clone(), r(&[6, 2, 3, 2])]),
        case(Conv(geometry(1)), &[r(&[2, 64, 4, 3]), r(&[5, 64, 1, 1])]),
        case(ConvInput { geometry: geometry(1), size: smallvec![8, 7] }, &[y.clone(), r(&[6, 4, 3, 2])]),
        case(ConvWeight::new(geometry(1), smallvec![3, 2]), &[x.clone(), y]),
        case(avg.clone(), std::slice::from_ref(&x)),
        case(AvgPoolInput { pool: avg.clone(), size: smallvec![8, 7] }, &[Tensor::record(avg, &[&x])]),
        case(MaxPool { windows: windows.clone() }, &[x.clone(), x.clone()]),
        case(MaxPoolInput { windows: windows.clone() }, &[x.clone(), Tensor::record(MaxPool { windows }, &[&x, &x])]),
        shaped(Reshape { shape: [5, 21, 2].into() }, &[r(&[5, 3, 7, 2])], |_, s| Reshape { shape: s.into() }.into()),
        case(Permute { dims: dims(&[2, 0, 1]) }, &[r(&[5, 3, 7])]),
        shaped(Expand { shape: [5, 3, 7].into() }, &[r(&[5, 1, 7])], |_, s| Expand { shape: s.into() }.into()),
        shaped(
            Slice { starts: dims(&[0, 6]), sizes: dims(&[5, 3]), steps: smallvec![1, -2] },
            &[r(&[5, 7])],
            |_, s| Slice { starts: dims(&[0, 6]), sizes: dims(s), steps: smallvec![1, -2] }.into(),
        ),
        case(
            Pad {
                low: dims(&[0, 2]),
                high: dims(&[0, 1]),
                interior: dims(&[0, 1]),
                value: meshwork::Scalar::Float(1.0),
            },
            &[r(&[5, 7])],
        ),
        case(Concat { dim: 1 }, &[r(&[5, 2]), r(&[5, 3])]),
        case(Gather { dim: 0 }, &[r(&[9, 5]), rows.clone()]),
        case(ScatterAdd::new(0), &[r(&[9, 5]), rows.clone(), r(&[7, 5])]),
        case(IndexSelect { dim: 1 }, &[r(&[3, 9, 4]), index.clone()]),
        case(IndexAdd::new(1, 9), &[r(&[3, 7, 4]), index]),
    ];
    let mut cut = 0;
    for case in &cases {
        cut += check(case);
    }
    assert!(cut >= 73, "only {cut} factors were cut");
}

#[test]
fn a_part_with_the_blocks_of_the_whole_continues_its_tree() {
    let whole = Blocks::contraction(Blocking::Samples, 100, 1);
    for blocking in [Blocking::Every(whole.unit), Blocking::SamplesOf(100)] {
        let part = Blocks::contraction(blocking, 64, 1);
        assert_eq!((whole.unit, part.unit), (4, 4));
        assert_eq!(part.count(), 16);
    }
}
