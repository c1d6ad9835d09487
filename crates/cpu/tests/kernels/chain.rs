//! Chains give the bits of their kernels one after the other.

use crate::common::programs::{Joined, compiled, input, same_bits};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::*;
use meshwork_graph::program::Donation;
use meshwork_graph::{DType, Dims, Graph, NodeId, Shape};

/// Compares the graph in chains with the graph without; its kernels must be these.
fn check(graph: &Graph, donated: &[usize], expected: &[&str]) {
    same_bits(graph, donated, Joined::Chains, expected);
}

fn conv(padding: usize) -> Conv {
    let s = Spatial::from_slice;
    Conv::new(ConvGeometry { stride: s(&[1, 1]), padding: s(&[padding; 2]), dilation: s(&[1, 1]), groups: 1 })
}

fn windows(kernel: usize, stride: usize) -> Windows {
    std::iter::repeat_n(Window::Fixed { kernel, stride, padding: 0, dilation: 1, ceil: false }, 2).collect()
}

fn mean(kernel: usize, stride: usize) -> AvgPool {
    AvgPool { windows: windows(kernel, stride), count_include_pad: true }
}

/// A value for each channel, at each position of `like`.
fn by_channel(g: &mut Graph, x: NodeId, like: NodeId) -> NodeId {
    let shape = g.ty(like).shape.clone();
    let column = g.reshape(x, Shape::new(&[1, shape[1], 1, 1]));
    g.expand(column, shape)
}

const BATCHES: [usize; 6] = [1, 2, 3, 7, 33, 40];

/// Convolution, bias, relu, its mask, pooling; two of the inner values are wanted, too.
#[test]
fn the_forward_pass_of_a_layer() {
    for batch in BATCHES {
        for (dtype, size, padding) in [(DType::F32, 10, 0), (DType::F32, 7, 1), (DType::F64, 5, 1), (DType::F16, 6, 0)]
        {
            let mut g = Graph::new();
            let (x, w) = (input(&mut g, dtype, &[batch, 2, size, size]), input(&mut g, dtype, &[5, 2, 3, 3]));
            let bias = input(&mut g, dtype, &[5]);
            let y = g.add_node(conv(padding), &[x, w]);
            let bias = by_channel(&mut g, bias, y);
            let y = g.add(y, bias);
            let relu = g.unary(UnaryOp::Relu, y);
            let zero = g.zeros_like(y);
            let mask = g.binary(BinaryOp::Gt, y, zero);
            let pooled = g.add_node(mean(2, 2), &[relu]);
            g.outputs = vec![relu, mask, pooled];
            check(&g, &[], &["conv + fused + avg_pool"]);
        }
    }
}

/// Gradients by a bias, a kernel of 3 × 3, and the values in front of relu and pooling, of that by the pool's result.
fn gradients(g: &mut Graph, [dy, y, x]: [NodeId; 3]) -> (NodeId, NodeId, NodeId) {
    let size = Spatial::from_slice(&[9, 9]);
    let back = g.add_node(AvgPoolInput { pool: mean(2, 2), size }, &[dy]);
    let zero = g.zeros_like(y);
    let mask = g.binary(BinaryOp::Gt, y, zero);
    let back = g.select(mask, back, zero);
    let mut sum = Reduce::new(ReduceOp::Sum, &[0, 2, 3]);
    sum.blocking = Blocking::Samples;
    let bias = g.reduce(sum, back);
    let Conv { geometry, .. } = conv(0);
    let weight = ConvWeight { geometry, kernel: Spatial::from_slice(&[3, 3]), blocking: Blocking::Samples };
    (bias, g.add_node(weight, &[x, back]), back)
}

/// The gradient of pooling and relu, and its sums over the samples: by the bias and by the kernel.
#[test]
fn the_backward_pass_of_a_layer() {
    for batch in BATCHES {
        for (dtype, wanted, expected) in [
            (DType::F32, false, "avg_pool_input + fused + sum + conv_weight"),
            (DType::F64, true, "avg_pool_input + fused + sum + conv_weight"),
        ] {
            let mut g = Graph::new();
            let (dy, relu) = (input(&mut g, dtype, &[batch, 3, 4, 4]), input(&mut g, dtype, &[batch, 3, 9, 9]));
            let x = input(&mut g, dtype, &[batch, 1, 11, 11]);
            let (bias, weight, back) = gradients(&mut g, [dy, relu, x]);
            g.outputs = if wanted { vec![bias, weight, back] } else { vec![bias, weight] };
            check(&g, &[1], &[expected]);
        }
    }
}

/// The same where the convolution is computed again: its result and the pool's gradient have nothing to do with each other.
#[test]
fn the_backward_pass_of_a_layer_that_is_computed_again() {
    for (batch, dtype) in BATCHES.into_iter().flat_map(|batch| [(batch, DType::F32), (batch, DType::F64)]) {
        let mut g = Graph::new();
        let (x, w) = (input(&mut g, dtype, &[batch, 1, 11, 11]), input(&mut g, dtype, &[3, 1, 3, 3]));
        let dy = input(&mut g, dtype, &[batch, 3, 4, 4]);
        let y = g.add_node(conv(0), &[x, w]);
        let (bias, weight, _) = gradients(&mut g, [dy, y, x]);
        g.outputs = vec![bias, weight];
        check(&g, &[], &["conv + avg_pool_input + fused + sum + conv_weight"]);
    }
}

#[test]
fn pooling_by_maximum_and_its_gradient() {
    for batch in BATCHES {
        let mut g = Graph::new();
        let x = input(&mut g, DType::F32, &[batch, 3, 7, 8]);
        let twice = g.add(x, x);
        let y = g.add_node(MaxPool { windows: windows(3, 2) }, &[twice, twice]);
        let dy = g.unary(UnaryOp::Tanh, y);
        let back = g.add_node(MaxPoolInput { windows: windows(3, 2) }, &[twice, dy]);
        let end = g.mul(back, x);
        g.outputs = vec![end];
        check(&g, &[0], &["fused + max_pool + fused + max_pool_input + fused"]);
    }
}

/// Products by rows, a softmax of the rows, and a weight gradient in blocks of samples.
#[test]
fn products_and_rows() {
    let dims = |d: &[usize]| Dims::from_slice(d);
    let dot = |lhs: usize, rhs: usize, blocking: Blocking| Dot {
        lhs_batch: dims(&[]),
        rhs_batch: dims(&[]),
        lhs_contract: dims(&[lhs]),
        rhs_contract: dims(&[rhs]),
        blocking,
    };
    for batch in BATCHES {
        let mut g = Graph::new();
        let (x, w) = (input(&mut g, DType::F32, &[batch, 50]), input(&mut g, DType::F32, &[6, 50]));
        let y = g.add_node(dot(1, 1, Blocking::Features), &[x, w]);
        let shape = g.ty(y).shape.clone();
        let max = g.reduce(Reduce::new(ReduceOp::Max, &[1]), y);
        let max = g.restore(max, &[1], &shape);
        let shifted = g.sub(y, max);
        let exp = g.unary(UnaryOp::Exp, shifted);
        let grad = g.add_node(dot(0, 0, Blocking::Samples), &[exp, x]);
        let rows = g.reduce(Reduce::new(ReduceOp::Sum, &[1]), exp);
        g.outputs = vec![grad, rows];
        check(&g, &[], &["dot + fused + dot"]);
    }
}

/// Inputs that are turned, flipped and repeated along the samples.
#[test]
fn inputs_that_are_views() {
    for batch in BATCHES {
        let mut g = Graph::new();
        let (a, b) = (input(&mut g, DType::F32, &[3, 4, 4, batch]), input(&mut g, DType::F32, &[batch, 3, 4, 4]));
        let c = input(&mut g, DType::F32, &[1, 3, 4, 4]);
        let turned = g.permute(a, &[3, 0, 1, 2]);
        let mut flip = Slice { starts: dims4(0), sizes: Dims::from_slice(&[batch, 3, 4, 4]), steps: [1; 4][..].into() };
        (flip.starts[0], flip.steps[0]) = (batch - 1, -1);
        let flipped = g.add_node(flip, &[b]);
        let repeated = g.expand(c, Shape::new(&[batch, 3, 4, 4]));
        let sum = g.add(turned, flipped);
        let sum = g.mul(sum, repeated);
        let pooled = g.add_node(mean(2, 2), &[sum]);
        g.outputs = vec![pooled];
        check(&g, &[], &["fused + avg_pool"]);
    }
}

fn dims4(x: usize) -> Dims {
    Dims::from_elem(x, 4)
}

/// A result takes the memory of an input where no later kernel reads that, and only there.
#[test]
fn results_in_the_memory_of_inputs() {
    for batch in BATCHES {
        for read_later in [false, true] {
            let mut g = Graph::new();
            let x = input(&mut g, DType::F32, &[batch, 3, 8, 8]);
            let dy = input(&mut g, DType::F32, &[batch, 3, 4, 4]);
            let size = Spatial::from_slice(&[8, 8]);
            let back = g.add_node(AvgPoolInput { pool: mean(2, 2), size }, &[dy]);
            let y = g.mul(back, x);
            let max = g.add_node(MaxPool { windows: windows(2, 2) }, &[if read_later { x } else { y }, y]);
            g.outputs = vec![y, max];
            check(&g, &[0], &["avg_pool_input + fused + max_pool"]);
            let donation = Donation::from_slice(&[true, false]);
            let program = compiled(&g, &donation, 2, Joined::Chains);
            assert_eq!(program.outputs[0].donated, (!read_later).then_some(0));
        }
    }
}

/// Sums of half precision are rounded once, after all blocks.
#[test]
fn sums_of_half_precision_are_not_cut() {
    let mut g = Graph::new();
    let x = input(&mut g, DType::F16, &[40, 3, 4, 4]);
    let y = g.unary(UnaryOp::Exp, x);
    let pooled = g.add_node(mean(2, 2), &[y]);
    let mut sum = Reduce::new(ReduceOp::Sum, &[0, 2, 3]);
    sum.blocking = Blocking::Samples;
    let sum = g.reduce(sum, pooled);
    g.outputs = vec![sum];
    check(&g, &[], &["fused + avg_pool", "sum"]);
}
