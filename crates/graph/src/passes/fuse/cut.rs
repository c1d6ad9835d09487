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

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);
    const D: NodeId = NodeId(3);

    /// Values with the costs of computing and keeping them and what they are computed from.
    fn computed(values: &[(NodeId, Option<u64>, u64, &[NodeId])], wanted: &[NodeId]) -> Vec<NodeId> {
        let mut network = Network::default();
        for &(id, computing, keeping, operands) in values {
            network.value(id, computing, keeping);
            operands.iter().for_each(|&x| network.needs(id, x));
        }
        wanted.iter().for_each(|&id| network.want(id));
        network.computed().into_iter().collect()
    }

    #[test]
    fn a_value_is_computed_where_that_costs_less_with_what_it_needs() {
        let chain = |keeping: u64| computed(&[(A, None, 4, &[]), (B, Some(2), keeping, &[A])], &[B]);
        assert_eq!(chain(7), [B]);
        assert!(chain(6).is_empty(), "where it is the same, it is kept");
        assert!(chain(5).is_empty());
    }

    #[test]
    fn what_several_values_need_is_paid_once() {
        let values = |keeping: u64| -> [(NodeId, Option<u64>, u64, &'static [NodeId]); 4] {
            [
                (A, None, 4, &[]),
                (B, Some(1), keeping, &[A]),
                (C, Some(1), keeping, &[A]),
                (D, Some(1), keeping, &[B, C]),
            ]
        };
        assert_eq!(computed(&values(4), &[B, C]), [B, C], "2 + 4 against 8");
        assert!(computed(&values(3), &[B, C]).is_empty(), "2 + 4 against 6");
        assert!(computed(&values(4), &[B]).is_empty(), "1 + 4 against 4");
        assert_eq!(computed(&values(4), &[B, C, D]), [B, C, D]);
    }

    #[test]
    fn a_value_is_computed_from_one_that_is_computed() {
        let values: [(NodeId, Option<u64>, u64, &[NodeId]); 3] =
            [(A, None, 0, &[]), (B, Some(1), 9, &[A]), (C, Some(1), 9, &[B])];
        assert_eq!(computed(&values, &[C]), [B, C]);
    }

    #[test]
    fn what_cannot_be_computed_is_kept_at_any_cost() {
        assert!(computed(&[(A, None, 1 << 40, &[])], &[A]).is_empty());
    }
}
