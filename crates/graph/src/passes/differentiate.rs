//! Reverse-mode differentiation: gradients are more nodes of the same graph.

use crate::graph::{Graph, NodeId, Operands};
use crate::op::{Backward, Op};
use crate::ops::ToDevice;
use crate::passes::recompute::{Checkpoints, Recompute};

/// Adds the gradients of `Σ outputs · seeds` by the values `wrt`; `None` where the outputs do not depend on a value.
///
/// Contributions to one value are added in the reverse order of its uses, so equal graphs give equal gradients. Uses of
/// its copies on other devices count as uses of the value: where it is used does not change the order.
/// Only float values carry gradients. Since the result is an ordinary part of the graph, it can be
/// differentiated again.
pub fn differentiate(graph: &mut Graph, outputs: &[(NodeId, NodeId)], wrt: &[NodeId]) -> Vec<Option<NodeId>> {
    differentiate_with(graph, outputs, wrt, &Checkpoints::default())
}

/// As [`differentiate`]; what gradients need of a segment is computed again from what the segment reads, when the first
/// gradient has come to it.
pub fn differentiate_with(
    graph: &mut Graph,
    outputs: &[(NodeId, NodeId)],
    wrt: &[NodeId],
    checkpoints: &Checkpoints,
) -> Vec<Option<NodeId>> {
    let mut recompute = Recompute::new(checkpoints);
    let count = graph.nodes.len();
    let mut active = vec![false; count];
    for id in wrt {
        active[id.index()] = true;
    }
    for i in 0..count {
        let node = &graph.nodes[i];
        active[i] |= !recompute.stops_at(NodeId(i as u32))
            && node.ty.dtype.is_float()
            && node.inputs.iter().any(|x| active[x.index()]);
    }

    let passages = passages(graph, &active, outputs, wrt);
    let mut gradients: Vec<Option<NodeId>> = vec![None; count];
    let accumulate = |graph: &mut Graph, gradients: &mut [Option<NodeId>], mut to: NodeId, mut part: NodeId| {
        while passages[to.index()] {
            let Op::ToDevice(passage) = &graph.node(to).op else { unreachable!("only these are passages") };
            let back = ToDevice::new(passage.to, passage.from);
            part = graph.add_node(back, &[part]);
            to = graph.node(to).inputs[0];
        }
        gradients[to.index()] = Some(match gradients[to.index()] {
            None => part,
            Some(sum) => graph.add(sum, part),
        });
    };
    for &(output, seed) in outputs {
        accumulate(graph, &mut gradients, output, seed);
    }
    for id in (0..count as u32).rev().map(NodeId) {
        let Some(grad) = gradients[id.index()] else { continue };
        let node = graph.node(id);
        if recompute.stops_at(id) || !node.inputs.iter().any(|x| active[x.index()]) {
            continue;
        }
        let (op, inputs) = (node.op.clone(), node.inputs.clone());
        let values: Operands = inputs.iter().map(|&x| recompute.value(graph, id, x, grad)).collect();
        let output = recompute.value(graph, id, id, grad);
        let parts = op.operation().gradient(graph, &Backward { inputs: &values, output, grad });
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

/// The copies to other devices whose gradients go back one by one, each in its turn among those of the other uses of what
/// is copied. Where there are no other uses, they are added up before, and go back together.
fn passages(graph: &Graph, active: &[bool], outputs: &[(NodeId, NodeId)], wrt: &[NodeId]) -> Vec<bool> {
    let mut uses = vec![0; active.len()];
    outputs.iter().for_each(|(output, _)| uses[output.index()] += 1);
    for node in graph.nodes.iter().zip(active).filter(|(_, active)| **active).map(|(node, _)| node) {
        node.inputs.iter().for_each(|x| uses[x.index()] += 1);
    }
    let passes = |id: NodeId| {
        let node = graph.node(id);
        matches!(node.op, Op::ToDevice(_)) && uses[node.inputs[0].index()] > 1 && !wrt.contains(&id)
    };
    graph.ids().take(active.len()).map(passes).collect()
}
