//! Who needs the values of a graph.

use crate::graph::{Graph, NodeId};
use crate::op::Op;
use rustc_hash::FxHashSet;

/// Who needs each value.
pub(super) struct Uses {
    /// The nodes that have it as an operand, once for each time.
    pub readers: Vec<Vec<NodeId>>,
    /// The outputs.
    pub wanted: FxHashSet<NodeId>,
}

impl Uses {
    pub fn new(graph: &Graph) -> Self {
        let mut readers = vec![Vec::new(); graph.nodes.len()];
        for id in graph.ids() {
            graph.node(id).inputs.iter().for_each(|x| readers[x.index()].push(id));
        }
        Uses { readers, wanted: graph.outputs.iter().copied().collect() }
    }
}

/// Nodes whose values lie where their first operand's do.
pub(super) fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Expand(_) | Op::Slice(_) | Op::Part(_) | Op::Barrier(_))
}

/// Nodes that are no kernels of their own, or hardly.
pub(super) fn is_no_kernel(op: &Op) -> bool {
    is_view(op) && !matches!(op, Op::Barrier(_)) || matches!(op, Op::Input(_) | Op::Const(_))
}
