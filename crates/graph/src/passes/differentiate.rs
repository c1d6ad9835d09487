//! Reverse-mode differentiation: gradients are more nodes of the same graph.

use crate::graph::{Graph, NodeId};
use crate::op::Backward;

/// Adds the gradients of `Σ outputs · seeds` by the values `wrt`; `None` where the outputs do not depend on a value.
///
/// Contributions to one value are added in the reverse order of its uses, so equal graphs give equal gradients.
/// Only float values carry gradients. Since the result is an ordinary part of the graph, it can be
/// differentiated again.
pub fn differentiate(graph: &mut Graph, outputs: &[(NodeId, NodeId)], wrt: &[NodeId]) -> Vec<Option<NodeId>> {
    let count = graph.nodes.len();
    let mut active = vec![false; count];
    for id in wrt {
        active[id.index()] = true;
    }
    for i in 0..count {
        let node = &graph.nodes[i];
        active[i] |= node.ty.dtype.is_float() && node.inputs.iter().any(|x| active[x.index()]);
    }

    let mut gradients: Vec<Option<NodeId>> = vec![None; count];
    for &(output, seed) in outputs {
        accumulate(graph, &mut gradients, output, seed);
    }
    for id in (0..count as u32).rev().map(NodeId) {
        let Some(grad) = gradients[id.index()] else { continue };
        let node = graph.node(id);
        if !node.inputs.iter().any(|x| active[x.index()]) {
            continue;
        }
        let (op, inputs) = (node.op.clone(), node.inputs.clone());
        let parts = op.operation().gradient(graph, &Backward { inputs: &inputs, output: id, grad });
        for (x, part) in inputs.into_iter().zip(parts) {
            if let Some(part) = part
                && active[x.index()]
            {
                accumulate(graph, &mut gradients, x, part);
            }
        }
    }
    wrt.iter().map(|id| gradients[id.index()]).collect()
}

fn accumulate(graph: &mut Graph, gradients: &mut [Option<NodeId>], to: NodeId, part: NodeId) {
    gradients[to.index()] = Some(match gradients[to.index()] {
        None => part,
        Some(sum) => graph.add(sum, part),
    });
}
