//! The order in which the nodes run.

use super::rewrite::Rewrite;
use super::work::takes_little;
use crate::graph::{Graph, NodeId};
use crate::op::Op;

/// Brings every node as close as possible before its first user, keeping the recorded order otherwise: a value
/// that is only needed late (a mask, a transposed copy, an input's cast) does not occupy memory early.
pub fn order(graph: &Graph) -> Graph {
    let mut rewrite = Rewrite::new(graph);
    let mut done = vec![false; graph.nodes.len()];
    for id in graph.ids() {
        // Inputs keep their order, since callers number them.
        if matches!(graph.node(id).op, Op::Input(_)) {
            emit(&mut rewrite, &mut done, id);
        }
    }
    // What is wanted and needs next to nothing: other devices may be waiting for it.
    for (&o, little) in graph.outputs.iter().zip(takes_little(graph, &graph.outputs, 1)) {
        if little {
            emit(&mut rewrite, &mut done, o);
        }
    }
    let mut wanted = vec![false; graph.nodes.len()];
    for o in &graph.outputs {
        wanted[o.index()] = true;
    }
    for id in graph.ids() {
        let moves_data = !matches!(graph.node(id).op, Op::Fused(_) | Op::Part(_)) || wanted[id.index()];
        if moves_data {
            emit(&mut rewrite, &mut done, id);
        }
    }
    rewrite.finish()
}

fn emit(rewrite: &mut Rewrite, done: &mut [bool], id: NodeId) {
    let mut stack = vec![id];
    while let Some(&top) = stack.last() {
        let missing = rewrite.old.node(top).inputs.iter().find(|x| !done[x.index()]);
        match missing {
            Some(&x) => stack.push(x),
            None => {
                stack.pop();
                if !done[top.index()] {
                    let new = rewrite.push(rewrite.moved(top));
                    rewrite.set(top, new);
                    done[top.index()] = true;
                }
            }
        }
    }
}
