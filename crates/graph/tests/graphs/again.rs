//! Which values a region computes again instead of reading them from memory.

use crate::passes::{input, linear};
use meshwork_graph::ops::*;
use meshwork_graph::passes::{differentiate, fuse, simplify};
use meshwork_graph::{DType, Graph, NodeId, Op, Shape};

/// `tanh`'s approximation of the GELU (Hendrycks and Gimpel, 2016).
fn gelu(g: &mut Graph, x: NodeId) -> NodeId {
    let [cubic, scale, one, half] = [0.044715, 0.797, 1.0, 0.5].map(|c| g.scalar_like(x, c));
    let square = g.mul(x, x);
    let cube = g.mul(square, x);
    let cube = g.mul(cube, cubic);
    let inner = g.add(x, cube);
    let inner = g.mul(inner, scale);
    let tanh = g.unary(UnaryOp::Tanh, inner);
    let gate = g.add(tanh, one);
    let x = g.mul(x, half);
    g.mul(x, gate)
}

/// The weights' gradients of half the sum of the squares of `f(x · wᵀ + b) · vᵀ`, fused.
fn layer(f: impl Fn(&mut Graph, NodeId) -> NodeId) -> Graph {
    let mut g = Graph::new();
    let (x, w, v) = (input(&mut g, &[128, 64]), input(&mut g, &[256, 64]), input(&mut g, &[64, 256]));
    let b = input(&mut g, &[256]);
    let y = linear(&mut g, x, w);
    let b = g.reshape(b, Shape::new(&[1, 256]));
    let b = g.expand(b, Shape::new(&[128, 256]));
    let y = g.add(y, b);
    let y = f(&mut g, y);
    let y = linear(&mut g, y, v);
    g.outputs = differentiate(&mut g, &[(y, y)], &[w, v]).into_iter().flatten().collect();
    let fused = fuse(&simplify(&g));
    fused.verify().unwrap();
    fused
}

/// The regions, with the names of what they read and the number of their results.
fn regions(g: &Graph) -> Vec<(&Fused, Vec<&'static str>)> {
    let name = |&x: &NodeId| g.node(x).op.operation().name();
    let regions = g.nodes.iter().filter_map(|node| match &node.op {
        Op::Fused(fused) => Some((fused, node.inputs.iter().map(name).collect())),
        _ => None,
    });
    regions.collect()
}

fn count(fused: &Fused, op: Element) -> usize {
    fused.code.iter().filter(|instr| instr.op == Code::Element(op)).count()
}

const TANH: Element = Element::Unary(UnaryOp::Tanh);

#[test]
fn the_gradient_of_a_gelu_reads_the_product_and_what_is_dear() {
    let fused = layer(gelu);
    let [(forward, read), (backward, read_again)] = &regions(&fused)[..] else { panic!("{fused}") };
    // The hyperbolic tangent, and the value that the next product reads.
    assert_eq!((forward.outputs.len(), count(forward, TANH)), (2, 1), "{fused}");
    assert_eq!(read[..], ["dot", "expand"]);
    // The same product and bias, the tangent, and the gradient: of six values of the first region only one.
    assert_eq!((backward.outputs.len(), count(backward, TANH)), (1, 0), "{fused}");
    let mut read_again = read_again.clone();
    read_again.sort();
    assert_eq!(read_again, ["dot", "dot", "expand", "fused"], "{fused}");
    insta::assert_snapshot!("gelu", fused);
}

#[test]
fn the_gradient_of_a_relu_reads_what_is_kept_anyway() {
    let fused = layer(|g, x| g.unary(UnaryOp::Relu, x));
    let [(forward, _), (backward, read_again)] = &regions(&fused)[..] else { panic!("{fused}") };
    assert_eq!(forward.outputs.len(), 1);
    assert_eq!(count(backward, Element::Unary(UnaryOp::Relu)), 0);
    assert!(read_again.contains(&"fused") && !read_again.contains(&"expand"), "{fused}");
}

#[test]
fn a_function_that_takes_longer_than_memory_is_kept() {
    for (op, again) in [(UnaryOp::Abs, 1), (UnaryOp::Recip, 1), (UnaryOp::Erf, 1), (UnaryOp::Log, 0)] {
        // Squared, so that the gradient needs what the function gives.
        let fused = layer(|g, x| {
            let y = g.unary(op, x);
            let z = g.mul(y, y);
            g.unary(UnaryOp::Sin, z)
        });
        let all = regions(&fused);
        let (backward, _) = all.last().expect("a region");
        assert_eq!(count(backward, Element::Unary(op)), again, "{op:?}: {fused}");
    }
}

/// A value of half the size, of which the product reads another one.
#[test]
fn a_narrow_value_is_kept_in_place_of_a_wide_one() {
    let mut g = Graph::new();
    let (x, w) = (input(&mut g, &[512, 64]), input(&mut g, &[64, 64]));
    let wide = linear(&mut g, x, w);
    let narrow = g.cast(wide, DType::BF16);
    let soon = g.mul(narrow, narrow);
    let mut y = g.cast(soon, DType::F32);
    for _ in 0..8 {
        y = linear(&mut g, y, w);
    }
    let late = g.cast(narrow, DType::F32);
    let end = g.mul(late, y);
    g.outputs = vec![end];
    let fused = fuse(&simplify(&g));
    let all = regions(&fused);
    let (last, read) = all.last().expect("a region");
    assert_eq!(count(last, Element::Cast(DType::BF16)), 0, "{fused}");
    assert_eq!(read.iter().filter(|name| **name == "dot").count(), 1, "only the last product is read: {fused}");
    // From a wide value that is there anyway the narrow one is computed again.
    let also = linear(&mut g, wide, y);
    g.outputs.push(also);
    let fused = fuse(&simplify(&g));
    assert!(regions(&fused).iter().all(|(region, _)| region.outputs.len() == 1), "{fused}");
}

#[test]
fn what_is_computed_again_does_not_make_a_region_too_large() {
    for length in [8, 30, 44, 46, 47, 48, 60] {
        let mut g = Graph::new();
        let (x, w) = (input(&mut g, &[128, 64]), input(&mut g, &[64, 64]));
        let y = linear(&mut g, x, w);
        let (a, b) = (g.unary(UnaryOp::Neg, y), g.unary(UnaryOp::Abs, y));
        let soon = g.mul(a, b);
        let mut late = soon;
        for _ in 0..8 {
            late = linear(&mut g, late, w);
        }
        for i in 0..length {
            let kept = if i % 2 == 0 { a } else { b };
            late = g.mul(late, kept);
        }
        g.outputs = vec![late];
        let fused = fuse(&simplify(&g));
        fused.verify().unwrap();
        for (region, _) in regions(&fused) {
            assert!(region.code.len() <= 48, "{length}: {} instructions", region.code.len());
        }
        let is_twice =
            regions(&fused).iter().filter(|(region, _)| count(region, Element::Unary(UnaryOp::Abs)) > 0).count() > 1;
        assert_eq!(is_twice, length <= 46, "{length}: {fused}");
    }
}

/// A normalised value is wanted by one late region and what it is made of by another one: both come to the product that is kept once.
#[test]
fn late_regions_share_what_is_kept() {
    let mut g = Graph::new();
    let (x, w) = (input(&mut g, &[256, 64]), input(&mut g, &[64, 64]));
    let y = linear(&mut g, x, w);
    let shape = Shape::new(&[256, 64]);
    let mean = g.reduce(Reduce::new(ReduceOp::Sum, &[1]), y);
    let mean = g.restore(mean, &[1], &shape);
    let centred = g.sub(y, mean);
    let square = g.mul(centred, centred);
    let variance = g.reduce(Reduce::new(ReduceOp::Sum, &[1]), square);
    let scale = g.unary(UnaryOp::Rsqrt, variance);
    let scale = g.restore(scale, &[1], &shape);
    let normal = g.mul(centred, scale);
    let z = g.unary(UnaryOp::Tanh, normal);
    let z = linear(&mut g, z, w);
    let z = linear(&mut g, z, w);
    let first = g.mul(z, normal);
    let first = g.reduce(Reduce::new(ReduceOp::Sum, &[0]), first);
    let z = linear(&mut g, z, w);
    let second = g.mul(z, centred);
    let second = linear(&mut g, second, w);
    g.outputs = vec![first, second];
    let fused = fuse(&simplify(&g));
    let (forward, _) = regions(&fused)[0];
    let wide = forward.outputs.iter().filter(|&&register| !forward.of_rows(register)).count();
    // The next product's operand, but neither the normalised value nor the centred one.
    assert_eq!(wide, 1, "{fused}");
}

#[test]
fn small_values_are_kept() {
    let regions_with_abs = |rows: usize| {
        let mut g = Graph::new();
        let (x, w) = (input(&mut g, &[rows, 64]), input(&mut g, &[64, 64]));
        let kept = g.unary(UnaryOp::Abs, x);
        let soon = g.mul(kept, x);
        let mut late = linear(&mut g, soon, w);
        late = g.mul(late, kept);
        g.outputs = vec![late];
        let fused = fuse(&simplify(&g));
        regions(&fused).iter().filter(|(region, _)| count(region, Element::Unary(UnaryOp::Abs)) > 0).count()
    };
    assert_eq!([127, 128].map(regions_with_abs), [1, 2]);
}
