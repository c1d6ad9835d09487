//! A graph in which regions have computations of their own.

use super::regions::Regions;
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::passes::rewrite::Rewrite;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// The graph in which every region computes these values itself, and for each of its nodes the number of its region.
pub(super) fn copied(regions: &Regions, again: &[BTreeSet<NodeId>]) -> (Graph, Vec<Option<usize>>) {
    let mut regions_of: FxHashMap<NodeId, Vec<usize>> = FxHashMap::default();
    for (number, ids) in again.iter().enumerate() {
        ids.iter().for_each(|&id| regions_of.entry(id).or_default().push(number));
    }
    let mut copies =
        Copies { regions, rewrite: Rewrite::new(regions.graph), of: Vec::new(), made: FxHashMap::default() };
    for id in regions.graph.ids() {
        let new = copies.push(id, regions.number(id));
        copies.rewrite.set(id, new);
        for &number in regions_of.get(&id).into_iter().flatten() {
            let copy = copies.push(id, Some(number));
            copies.made.insert((number, id), copy);
        }
    }
    (copies.rewrite.finish(), copies.of)
}

/// A graph under construction.
struct Copies<'a> {
    regions: &'a Regions<'a>,
    rewrite: Rewrite<'a>,
    /// For each new node the number of its region.
    of: Vec<Option<usize>>,
    /// What a region computes for itself.
    made: FxHashMap<(usize, NodeId), NodeId>,
}

impl Copies<'_> {
    /// Adds a node as one of a region.
    fn push(&mut self, id: NodeId, region: Option<usize>) -> NodeId {
        let Node { op, inputs, ty } = self.regions.graph.node(id);
        let inputs: Operands = match region {
            Some(number) => inputs.iter().map(|&x| self.operand(number, x)).collect(),
            None => inputs.iter().map(|&x| self.rewrite.get(x)).collect(),
        };
        self.add(Node { op: op.clone(), inputs, ty: ty.clone() }, region)
    }

    fn add(&mut self, node: Node, region: Option<usize>) -> NodeId {
        self.of.push(region);
        self.rewrite.push(node)
    }

    /// An operand of a member of a region: what the region has computed for itself, or a view of it, or the value that was there.
    fn operand(&mut self, number: usize, x: NodeId) -> NodeId {
        if let Some(&copy) = self.made.get(&(number, x)) {
            return copy;
        }
        let graph = self.regions.graph;
        let read = self.regions.all()[number].read(graph, x).value;
        if read == x || !self.made.contains_key(&(number, read)) {
            return self.rewrite.get(x);
        }
        let Node { op, inputs, ty } = graph.node(x);
        let inner = self.operand(number, inputs[0]);
        let copy = self.add(Node { op: op.clone(), inputs: Operands::from_slice(&[inner]), ty: ty.clone() }, None);
        self.made.insert((number, x), copy);
        copy
    }
}
