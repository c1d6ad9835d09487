//! Removes what nobody needs and what is computed twice, and joins views.
//!
//! No rewrite here changes a value: constants are not folded and sums not reordered.

use super::fuse::constant;
use super::rewrite::{Rewrite, live};
use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use crate::ops::{BinaryOp, Element, Permute, Reshape};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry::{Occupied, Vacant};

/// Dead code elimination, common subexpressions, and joining of consecutive reshapes and permutations.
pub fn simplify(graph: &Graph) -> Graph {
    let shortened = pass(graph);
    // Joining views can leave the inner one without users.
    pass(&shortened)
}

fn pass(graph: &Graph) -> Graph {
    let live = live(graph);
    let mut rewrite = Rewrite::new(graph);
    let mut seen: FxHashMap<Node, NodeId> = FxHashMap::default();
    for id in graph.ids().filter(|id| live[id.index()]) {
        let mut node = rewrite.moved(id);
        join_views(&rewrite.new, &mut node);
        let new = match trivial(&rewrite.new, &node) {
            Some(same) => same,
            None if matches!(node.op, Op::Input(_)) => rewrite.push(node),
            None => match seen.entry(node) {
                Occupied(same) => *same.get(),
                Vacant(new) => {
                    let node = new.key().clone();
                    *new.insert(rewrite.push(node))
                }
            },
        };
        rewrite.set(id, new);
    }
    rewrite.finish()
}

/// Replaces a view of a view by one view.
fn join_views(graph: &Graph, node: &mut Node) {
    let Some(&x) = node.inputs.first() else { return };
    let inner = graph.node(x);
    match (&mut node.op, &inner.op) {
        (Op::Reshape(_), Op::Reshape(_)) => node.inputs[0] = inner.inputs[0],
        (Op::Permute(outer), Op::Permute(first)) => {
            outer.dims = outer.dims.iter().map(|&d| first.dims[d]).collect();
            node.inputs[0] = inner.inputs[0];
        }
        _ => {}
    }
}

/// The operand that a node merely repeats.
fn trivial(graph: &Graph, node: &Node) -> Option<NodeId> {
    let x = *node.inputs.first()?;
    let identity = match &node.op {
        Op::Reshape(Reshape { shape }) => graph.ty(x).shape == *shape,
        Op::Permute(Permute { dims }) => dims.iter().copied().eq(0..dims.len()),
        Op::Expand(expand) => graph.ty(x).shape == expand.shape,
        Op::Element(Element::Cast(dtype)) => graph.ty(x).dtype == *dtype,
        // x · 1 = x for every x.
        Op::Element(Element::Binary(BinaryOp::Mul)) => {
            let one = |id| constant(graph, id).is_some_and(|value| value.as_f64() == 1.0);
            if one(x) {
                return Some(node.inputs[1]);
            }
            one(node.inputs[1])
        }
        _ => false,
    };
    identity.then_some(x)
}
