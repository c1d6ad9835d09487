//! How much work a value takes, roughly.

use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::shape::Type;
use rustc_hash::FxHashSet;

/// The part of a graph's work, one in so many, that is little.
const LITTLE: u64 = 256;

/// Which of these values take little of the work of one of `parts` equal parts of a graph, with all that they are computed
/// from. Operands of such a value take little, too.
pub(super) fn takes_little(graph: &Graph, values: &[NodeId], parts: u64) -> Vec<bool> {
    let own: Vec<u64> = graph.ids().map(|id| work(graph, id)).collect();
    let most = own.iter().sum::<u64>() / (LITTLE * parts);
    let mut search = Search { graph, takes_much: own.iter().map(|&work| work > most).collect(), own, most };
    values.iter().map(|&value| search.takes_little(value)).collect()
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

/// Adds up the work behind values, as far as that is little.
struct Search<'a> {
    graph: &'a Graph,
    /// The work of each node alone.
    own: Vec<u64>,
    most: u64,
    /// The nodes that are known to take more: so does whatever is computed from them.
    takes_much: Vec<bool>,
}

impl Search<'_> {
    fn takes_little(&mut self, id: NodeId) -> bool {
        let (mut total, mut seen, mut stack) = (0, FxHashSet::from_iter([id]), vec![id]);
        while let Some(top) = stack.pop() {
            total += self.own[top.index()];
            if total > self.most || self.takes_much[top.index()] {
                self.takes_much[id.index()] = true;
                return false;
            }
            stack.extend(self.graph.node(top).inputs.iter().filter(|x| seen.insert(**x)));
        }
        true
    }
}
