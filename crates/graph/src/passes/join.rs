//! Makes one kernel of results of attention that share most of their work.

use super::rewrite::Rewrite;
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::op::Op;
use crate::ops::{Attention, AttentionInput, AttentionResult, Part};
use crate::shape::Type;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Results of one forward or backward pass of attention.
struct Group<'a> {
    op: &'a Attention,
    operands: BTreeMap<AttentionInput, NodeId>,
    members: BTreeMap<AttentionResult, NodeId>,
}

impl<'a> Group<'a> {
    fn new(op: &'a Attention, node: &Node, id: NodeId) -> Group<'a> {
        let operands = op.inputs().into_iter().zip(node.inputs.iter().copied()).collect();
        Group { op, operands, members: BTreeMap::from([(op.results[0], id)]) }
    }

    /// Whether another group has other results of the same, and its operands are there when this one is computed.
    fn takes(&self, other: &Group, first: NodeId) -> bool {
        let is_same = |(name, x): (&AttentionInput, &NodeId)| self.operands.get(name).is_none_or(|own| own == x);
        (self.op.scale, self.op.mask) == (other.op.scale, other.op.mask)
            && self.op.results[0].is_gradient() == other.op.results[0].is_gradient()
            && other.operands.iter().all(is_same)
            && other.operands.values().all(|x| *x < first)
            && other.members.keys().all(|result| !self.members.contains_key(result))
    }
}

/// Joins attention's output and normalizer, and its gradients by queries, keys and values, where they have the same
/// operands: the weights are computed once for all of them. No value changes.
pub fn join(graph: &Graph) -> Graph {
    let groups = groups(graph);
    if groups.values().all(|group| group.members.len() == 1) {
        return graph.clone();
    }
    let mut rewrite = Rewrite::new(graph);
    let mut joined = BTreeSet::new();
    for id in graph.ids() {
        if joined.contains(&id) {
            continue;
        }
        match groups.get(&id) {
            Some(group) if group.members.len() > 1 => {
                push_group(&mut rewrite, group);
                joined.extend(group.members.values().copied());
            }
            _ => {
                let new = rewrite.push(rewrite.moved(id));
                rewrite.set(id, new);
            }
        }
    }
    rewrite.finish()
}

/// The groups, by their first members.
fn groups(graph: &Graph) -> FxHashMap<NodeId, Group<'_>> {
    let mut groups: FxHashMap<NodeId, Group> = FxHashMap::default();
    let mut order: Vec<NodeId> = Vec::new();
    for id in graph.ids() {
        let node = graph.node(id);
        let Op::Attention(op) = &node.op else { continue };
        let group = Group::new(op, node, id);
        match order.iter().find(|first| groups[first].takes(&group, **first)) {
            Some(first) => {
                let joined = groups.get_mut(first).expect("listed");
                joined.operands.extend(group.operands);
                joined.members.extend(group.members);
            }
            None => {
                order.push(id);
                groups.insert(id, group);
            }
        }
    }
    groups
}

/// Adds a node for all members of a group.
fn push_group(rewrite: &mut Rewrite, group: &Group) {
    let old = rewrite.old;
    let op = Attention { results: group.members.keys().copied().collect(), ..group.op.clone() };
    let inputs: Operands = group.operands.values().map(|&x| rewrite.get(x)).collect();
    let ty = |id: &NodeId| -> Type { old.ty(*id).clone() };
    let mut members = group.members.values();
    let first = members.next().expect("at least two members");
    let whole = rewrite.push(Node { op: op.into(), inputs, ty: ty(first) });
    rewrite.set(*first, whole);
    for (index, id) in (1..).zip(members) {
        let part = Part { index, ty: ty(id) };
        let part = rewrite.push(Node { op: part.into(), inputs: Operands::from_slice(&[whole]), ty: ty(id) });
        rewrite.set(*id, part);
    }
}
