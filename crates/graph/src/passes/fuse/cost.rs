//! What it costs to compute a value again, and to keep it.

use super::constant;
use super::regions::{EARLY, Regions};
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::ops::Element;

/// What a moved byte costs, in the unit of [`Element::cost`].
const BYTE: u64 = 2;
/// What it costs to compute an elementwise value in a region that is there anyway.
pub(super) fn of_computing(graph: &Graph, id: NodeId) -> u64 {
    let node = graph.node(id);
    let Op::Element(op) = node.op else { unreachable!("only elementwise operations are computed again") };
    // Values of rows, and numbers, are spread over a tile before they are used.
    let is_spread = |x: &&NodeId| matches!(graph.node(**x).op, Op::Expand(_)) && constant(graph, **x).is_none();
    let spread = node.inputs.iter().filter(is_spread).count() as u64;
    node.ty.shape.numel() as u64 * (op.cost(graph.ty(node.inputs[0]).dtype) + spread * Element::SIMPLE)
}

/// What it costs that a region which runs before heavy kernel number `until` reads a value from memory: reading it; writing it,
/// unless others need it too; and keeping it, unless they need it as late. `others` are the numbers of the kernels before which
/// others need it; so many regions share the costs of writing and keeping.
pub(super) fn of_keeping(regions: &Regions, id: NodeId, until: usize, others: Option<usize>, sharing: usize) -> u64 {
    let graph = regions.graph;
    let stored = stored(graph, id);
    let bytes = BYTE * graph.ty(id).bytes().min(graph.ty(stored).bytes()) as u64;
    let is_written = others.is_some() || regions.number(stored).is_none();
    let is_kept = others.is_some_and(|last| last.saturating_add(EARLY) >= until);
    bytes + bytes * (u64::from(!is_written) + u64::from(!is_kept)) / sharing as u64
}

/// The value whose memory a value is in.
pub(super) fn stored(graph: &Graph, mut id: NodeId) -> NodeId {
    while is_view(&graph.node(id).op) {
        id = graph.node(id).inputs[0];
    }
    id
}

/// Whether an operation gives its first operand in another form, without a kernel.
pub(super) fn is_view(op: &Op) -> bool {
    matches!(op, Op::Reshape(_) | Op::Permute(_) | Op::Expand(_) | Op::Slice(_) | Op::Barrier(_))
}
