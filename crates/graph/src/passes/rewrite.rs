//! Building a new graph from an old one, node by node.

use crate::graph::{Graph, Node, NodeId, Operands};

/// A graph under construction and where the old nodes have gone.
pub(super) struct Rewrite<'a> {
    pub old: &'a Graph,
    pub new: Graph,
    map: Vec<Option<NodeId>>,
}

impl<'a> Rewrite<'a> {
    pub fn new(old: &'a Graph) -> Self {
        Rewrite { old, new: Graph::new(), map: vec![None; old.nodes.len()] }
    }

    /// Where an old node has gone.
    pub fn get(&self, id: NodeId) -> NodeId {
        self.map[id.index()].expect("operands are rewritten before their uses")
    }

    /// Whether an old node has been rewritten.
    pub fn is_done(&self, id: NodeId) -> bool {
        self.map[id.index()].is_some()
    }

    /// An old node with its operands replaced by the new ones.
    pub fn moved(&self, id: NodeId) -> Node {
        let node = self.old.node(id);
        let inputs: Operands = node.inputs.iter().map(|&x| self.get(x)).collect();
        Node { op: node.op.clone(), inputs, ty: node.ty.clone() }
    }

    /// Adds a node that is known to be legal.
    pub fn push(&mut self, node: Node) -> NodeId {
        self.new.nodes.push(node);
        NodeId(self.new.nodes.len() as u32 - 1)
    }

    /// Says where an old node has gone.
    pub fn set(&mut self, id: NodeId, new: NodeId) {
        self.map[id.index()] = Some(new);
    }

    pub fn finish(mut self) -> Graph {
        self.new.outputs = self.old.outputs.iter().map(|&o| self.get(o)).collect();
        self.new
    }
}

/// For every node whether an output needs it. Inputs always stay, since callers number them.
pub(super) fn live(graph: &Graph) -> Vec<bool> {
    let mut live = vec![false; graph.nodes.len()];
    for o in &graph.outputs {
        live[o.index()] = true;
    }
    for id in graph.ids().rev() {
        if live[id.index()] {
            for x in &graph.node(id).inputs {
                live[x.index()] = true;
            }
        }
        live[id.index()] |= matches!(graph.node(id).op, crate::op::Op::Input(_));
    }
    live
}
