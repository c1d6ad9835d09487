//! How much work a value takes, roughly.

use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::shape::Type;
use std::collections::HashSet;

/// The part of a graph's work, one in so many, that is little.
const LITTLE: u64 = 256;

/// Which of these values take little of the work of one of `parts` equal parts of a graph, with all that they are computed
/// from. Operands of such a value take little, too.
pub(super) fn takes_little(graph: &Graph, values: &[NodeId], parts: u64) -> Vec<bool> {
    let most = graph.ids().map(|id| work(graph, id)).sum::<u64>() / (LITTLE * parts);
    values.iter().map(|&value| takes_at_most(graph, value, most)).collect()
}

/// Elements read and written, and floating-point operations.
fn work(graph: &Graph, id: NodeId) -> u64 {
    let node = graph.node(id);
    match node.op {
        Op::Input(_)
        | Op::Const(_)
        | Op::Reshape(_)
        | Op::Permute(_)
        | Op::Expand(_)
        | Op::Slice(_)
        | Op::Barrier(_) => 0,
        _ => {
            let types: Vec<&Type> = node.inputs.iter().map(|&x| graph.ty(x)).collect();
            let elements = types.iter().map(|ty| ty.shape.numel()).sum::<usize>() + node.ty.shape.numel();
            node.op.operation().flops(&types, &node.ty) + elements as u64
        }
    }
}

fn takes_at_most(graph: &Graph, id: NodeId, most: u64) -> bool {
    let (mut total, mut seen, mut stack) = (0, HashSet::from([id]), vec![id]);
    while let Some(top) = stack.pop() {
        total += work(graph, top);
        if total > most {
            return false;
        }
        stack.extend(graph.node(top).inputs.iter().filter(|x| seen.insert(**x)));
    }
    true
}
