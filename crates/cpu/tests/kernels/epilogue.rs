//! Products with epilogues give the bits of both kernels one after the other.

use crate::common::programs::{Joined, compiled, input, same_bits};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::*;
use meshwork_graph::program::Donation;
use meshwork_graph::{DType, Dims, Graph, NodeId, Shape};

const ONE: &[&str] = &["dot + fused"];

fn check(graph: &Graph, donated: &[usize], expected: &[&str]) {
    same_bits(graph, donated, Joined::Epilogues, expected);
}

/// A product of matrices; the dimensions are those that are summed.
fn dot(g: &mut Graph, lhs: (NodeId, usize), rhs: (NodeId, usize), blocking: Blocking) -> NodeId {
    let dims = |d: &[usize]| Dims::from_slice(d);
    let dot = Dot {
        lhs_batch: dims(&[]),
        rhs_batch: dims(&[]),
        lhs_contract: dims(&[lhs.1]),
        rhs_contract: dims(&[rhs.1]),
        blocking,
    };
    g.add_node(dot, &[lhs.0, rhs.0])
}

/// `x` for every row of `like`.
fn for_rows(g: &mut Graph, x: NodeId, like: NodeId) -> NodeId {
    let shape = g.ty(like).shape.clone();
    let row = g.reshape(x, Shape::new(&[1, shape[1]]));
    g.expand(row, shape)
}

/// Rows, columns and terms: tiles that are whole and not, few rows (strips), few results of many terms (whose runs are added in
/// the end), no terms.
const SIZES: [[usize; 3]; 14] = [
    [1, 1, 1],
    [1, 70, 20],
    [70, 1, 20],
    [32, 256, 100],
    [33, 70, 17],
    [70, 33, 300],
    [130, 200, 9],
    [5, 100, 64],
    [100, 5, 64],
    [3, 600, 40],
    [600, 3, 40],
    [20, 20, 6000],
    [300, 1100, 7],
    [40, 50, 0],
];

/// Bias, activation, and the mask for its gradient. The weight's rows are those of the terms, or of the columns.
fn layer(dtype: DType, [rows, columns, terms]: [usize; 3], by_terms: bool) {
    let mut g = Graph::new();
    let shape = if by_terms { [terms, columns] } else { [columns, terms] };
    let (x, w) = (input(&mut g, dtype, &[rows, terms]), input(&mut g, dtype, &shape));
    let bias = input(&mut g, dtype, &[columns]);
    let y = dot(&mut g, (x, 1), (w, if by_terms { 0 } else { 1 }), Blocking::Features);
    let bias = for_rows(&mut g, bias, y);
    let y = g.add(y, bias);
    let relu = g.unary(UnaryOp::Relu, y);
    let zero = g.zeros_like(y);
    let mask = g.binary(BinaryOp::Gt, y, zero);
    g.outputs = vec![relu, mask];
    check(&g, &[], ONE);
}

#[test]
fn a_layer() {
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        SIZES.into_iter().for_each(|size| layer(dtype, size, false));
    }
}

#[test]
fn a_layer_of_tall_tiles() {
    // Rows of the weight are a multiple of 4 KB long; several tiles are finished together, and fewer in the end.
    for (dtype, columns) in [(DType::F32, 1024), (DType::F64, 512)] {
        [[16, 65], [20, 130], [67, 300]]
            .into_iter()
            .for_each(|[rows, terms]| layer(dtype, [rows, columns, terms], true));
    }
}

/// The gradient of a weight and a step with momentum, all in place, with a rate that is read.
#[test]
fn a_step_of_an_optimizer() {
    for [rows, columns, terms] in SIZES {
        for blocking in [Blocking::Samples, Blocking::Every(4)] {
            let mut g = Graph::new();
            let (x, dy) = (input(&mut g, DType::F32, &[terms, columns]), input(&mut g, DType::F32, &[terms, rows]));
            let (w, m) = (input(&mut g, DType::F32, &[rows, columns]), input(&mut g, DType::F32, &[rows, columns]));
            let rate = input(&mut g, DType::F32, &[]);
            let grad = dot(&mut g, (dy, 0), (x, 0), blocking);
            let decay = g.scalar_like(m, 0.9);
            let kept = g.mul(m, decay);
            let momentum = g.add(kept, grad);
            let rate = g.spread(rate, g.ty(w).shape.clone());
            let step = g.mul(momentum, rate);
            let new = g.sub(w, step);
            g.outputs = vec![new, momentum];
            check(&g, &[2, 3], ONE);
            let donation = Donation::from_slice(&[false, false, true, true, false]);
            let program = compiled(&g, &donation, 2, Joined::Epilogues);
            assert!(program.outputs.iter().all(|output| output.donated.is_some()), "both in place");
        }
    }
}

/// Products of a batch, and operands that lie in all ways: dense, turned, one for a row, one for a row of each product.
#[test]
fn operands_that_are_views() {
    let dims = |d: &[usize]| Dims::from_slice(d);
    for [rows, columns, terms] in [[40, 48, 33], [7, 100, 12], [64, 30, 130]] {
        for turned in [false, true] {
            for dtype in [DType::F32, DType::BF16] {
                let mut g = Graph::new();
                let x = input(&mut g, dtype, &[3, rows, terms]);
                let y = input(&mut g, dtype, &[3, terms, columns]);
                let dot = Dot {
                    lhs_batch: dims(&[0]),
                    rhs_batch: dims(&[0]),
                    lhs_contract: dims(&[2]),
                    rhs_contract: dims(&[1]),
                    blocking: Blocking::Features,
                };
                let product = g.add_node(dot, &[x, y]);
                let shape = g.ty(product).shape.clone();
                let other = if turned {
                    let other = input(&mut g, dtype, &[3, columns, rows]);
                    g.permute(other, &[0, 2, 1])
                } else {
                    input(&mut g, dtype, &[3, rows, columns])
                };
                let sum = g.add(product, other);
                let factor = input(&mut g, dtype, &[3, rows, 1]);
                let factor = g.expand(factor, shape.clone());
                let sum = g.mul(sum, factor);
                let bias = input(&mut g, dtype, &[3, 1, columns]);
                let bias = g.expand(bias, shape);
                let sum = g.add(bias, sum);
                let wide = g.cast(sum, DType::F32);
                let wide = g.unary(UnaryOp::Neg, wide);
                g.outputs = vec![sum, wide];
                check(&g, &[2], ONE);
            }
        }
    }
}

/// The product reads all of a row for every element of it: the sum may not take the row's place before.
#[test]
fn a_result_does_not_overwrite_what_the_product_reads() {
    for size in [8, 40, 200] {
        let mut g = Graph::new();
        let (x, w) = (input(&mut g, DType::F32, &[size, size]), input(&mut g, DType::F32, &[size, size]));
        let product = dot(&mut g, (x, 1), (w, 0), Blocking::Features);
        let sum = g.add(product, x);
        g.outputs = vec![sum];
        let donation = Donation::from_slice(&[true, true]);
        let program = compiled(&g, &donation, 2, Joined::Epilogues);
        assert_eq!(program.outputs[0].donated, None);
        check(&g, &[], ONE);
    }
}
