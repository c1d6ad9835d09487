//! Which values are computed again: a minimum cut.
//!
//! Every value is an edge from *computed* to *there* with the cost of keeping it. It is there if it is kept, which cuts the
//! edge, or if it is computed, which costs the edge from the source and needs its operands to be there. The sink needs what is
//! wanted (Picard, 1976, "Maximal Closure of a Graph and Applications to Combinatorial Problems", with costs on both sides).

use crate::graph::NodeId;
use petgraph::Direction::{Incoming, Outgoing};
use petgraph::algo::dinics;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;
use std::collections::{BTreeMap, BTreeSet};

/// What is never cut.
const NEVER: u64 = 1 << 60;

/// Costs of values.
pub(super) struct Network {
    graph: DiGraph<(), u64>,
    source: NodeIndex,
    sink: NodeIndex,
    /// For each value *computed* and *there*.
    values: BTreeMap<NodeId, [NodeIndex; 2]>,
}

impl Default for Network {
    fn default() -> Self {
        let mut graph = DiGraph::new();
        let (source, sink) = (graph.add_node(()), graph.add_node(()));
        Network { graph, source, sink, values: BTreeMap::new() }
    }
}

impl Network {
    fn places(&mut self, id: NodeId) -> [NodeIndex; 2] {
        let graph = &mut self.graph;
        *self.values.entry(id).or_insert_with(|| [graph.add_node(()), graph.add_node(())])
    }

    /// Adds a value with the costs of computing it, if that is possible, and of keeping it.
    pub fn value(&mut self, id: NodeId, computing: Option<u64>, keeping: u64) {
        let [computed, there] = self.places(id);
        self.graph.add_edge(self.source, computed, computing.unwrap_or(NEVER));
        self.graph.add_edge(computed, there, keeping);
    }

    /// A value is computed from this operand.
    pub fn needs(&mut self, id: NodeId, operand: NodeId) {
        let ([computed, _], [_, there]) = (self.places(id), self.places(operand));
        self.graph.add_edge(there, computed, NEVER);
    }

    /// A value must be there.
    pub fn want(&mut self, id: NodeId) {
        let [_, there] = self.places(id);
        self.graph.add_edge(there, self.sink, NEVER);
    }

    /// The values that are computed where all costs together are least, and as few as possible.
    pub fn computed(&self) -> BTreeSet<NodeId> {
        let (_, flows) = dinics(&self.graph, self.source, self.sink);
        // What has a way to the sink along which more could flow.
        let mut reaches = vec![false; self.graph.node_count()];
        reaches[self.sink.index()] = true;
        let mut waiting = vec![self.sink];
        while let Some(node) = waiting.pop() {
            let more = self.graph.edges_directed(node, Incoming).filter(|e| flows[e.id().index()] < *e.weight());
            let back = self.graph.edges_directed(node, Outgoing).filter(|e| flows[e.id().index()] > 0);
            for other in more.map(|e| e.source()).chain(back.map(|e| e.target())) {
                if !std::mem::replace(&mut reaches[other.index()], true) {
                    waiting.push(other);
                }
            }
        }
        let values = self.values.iter().filter(|(_, [computed, _])| reaches[computed.index()]);
        values.map(|(&id, _)| id).collect()
    }
}
