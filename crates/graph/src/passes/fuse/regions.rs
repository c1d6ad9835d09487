//! Which operations run together.

use super::constant;
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::passes::rewrite::live;

/// Most instructions of a region: its values must fit into the first-level cache, tile by tile.
const MAX_INSTRUCTIONS: usize = 48;
/// Most inputs of a region.
const MAX_INPUTS: usize = 16;
/// Most results of a region.
const MAX_RESULTS: usize = 8;
/// A region may compute a result so many heavy kernels before it is needed, but not earlier: it would occupy memory.
const EARLY: usize = 4;

/// A partition of the live elementwise nodes such that the regions, each taken as one node, still form a graph
/// without cycles.
pub(super) struct Regions<'a> {
    graph: &'a Graph,
    pub live: Vec<bool>,
    users: Vec<Vec<NodeId>>,
    wanted: Vec<bool>,
    /// For every node the region it is in.
    region: Vec<Option<usize>>,
    regions: Vec<Region>,
}

#[derive(Default)]
struct Region {
    /// Ascending.
    members: Vec<NodeId>,
    /// Number of the heavy kernel before which a result is needed.
    due: usize,
}

impl<'a> Regions<'a> {
    pub fn new(graph: &'a Graph) -> Self {
        let live = live(graph);
        let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes.len()];
        for id in graph.ids().filter(|id| live[id.index()]) {
            for x in &graph.node(id).inputs {
                if !users[x.index()].contains(&id) {
                    users[x.index()].push(id);
                }
            }
        }
        let mut wanted = vec![false; graph.nodes.len()];
        for o in &graph.outputs {
            wanted[o.index()] = true;
        }
        let mut regions =
            Regions { graph, live, users, wanted, region: vec![None; graph.nodes.len()], regions: Vec::new() };
        regions.join_users();
        regions.join_producers();
        regions.join_siblings();
        regions
    }

    /// The region of a node.
    pub fn members(&self, id: NodeId) -> Option<&[NodeId]> {
        self.region[id.index()].map(|r| self.regions[r].members.as_slice())
    }

    /// What a region reads from memory.
    pub fn inputs(&self, members: &[NodeId]) -> Vec<NodeId> {
        let mut inputs: Vec<NodeId> = Vec::new();
        for x in members.iter().flat_map(|&id| &self.graph.node(id).inputs) {
            let inside = members.binary_search(x).is_ok();
            if !inside && !inputs.contains(x) && constant(self.graph, *x).is_none() {
                inputs.push(*x);
            }
        }
        inputs
    }

    /// The members of a region that are needed outside of it, at least one.
    pub fn results(&self, members: &[NodeId]) -> Vec<NodeId> {
        let outside = |user: &NodeId| members.binary_search(user).is_err();
        let needed = |id: &NodeId| self.wanted[id.index()] || self.users[id.index()].iter().any(outside);
        members.iter().copied().filter(needed).collect()
    }

    /// Every elementwise node joins a region of its users, or begins one.
    fn join_users(&mut self) {
        let graph = self.graph;
        let due = self.due();
        for id in graph.ids().rev() {
            if !self.live[id.index()] || !matches!(graph.node(id).op, Op::Element(_)) {
                continue;
            }
            let new = self.regions.len();
            self.regions.push(Region { members: vec![id], due: due[id.index()] });
            self.region[id.index()] = Some(new);
            for user in self.users[id.index()].clone() {
                if self.region[user.index()].is_some_and(|r| self.merge(new, r)) {
                    break;
                }
            }
        }
    }

    /// Regions join the regions that they read.
    fn join_producers(&mut self) {
        for id in self.graph.ids() {
            for &x in &self.graph.node(id).inputs {
                if let (Some(user), Some(producer)) = (self.region[id.index()], self.region[x.index()]) {
                    self.merge(producer, user);
                }
            }
        }
    }

    /// Regions that read the same value join, which saves a pass over it.
    fn join_siblings(&mut self) {
        for id in self.graph.ids() {
            let users = &self.users[id.index()];
            let mut regions: Vec<usize> = users.iter().filter_map(|u| self.region[u.index()]).collect();
            regions.dedup();
            if regions.len() < 2 || constant(self.graph, id).is_some() || is_repeated(self.graph, id) {
                continue;
            }
            let users = users.clone();
            for pair in users.windows(2) {
                if let (Some(a), Some(b)) = (self.region[pair[0].index()], self.region[pair[1].index()]) {
                    self.merge(a, b);
                }
            }
        }
    }

    /// For every node the number of the heavy kernel before which it is needed.
    fn due(&self) -> Vec<usize> {
        let is_heavy = |id: NodeId| is_heavy(&self.graph.node(id).op);
        let mut kernels = 0;
        let mut due = vec![usize::MAX; self.graph.nodes.len()];
        let numbers: Vec<usize> = self
            .graph
            .ids()
            .map(|id| {
                let number = kernels;
                kernels += usize::from(self.live[id.index()] && is_heavy(id));
                number
            })
            .collect();
        for id in self.graph.ids().rev() {
            let i = id.index();
            let by_user = |u: &NodeId| if is_heavy(*u) { numbers[u.index()] } else { due[u.index()] };
            let own = if self.wanted[i] { numbers[i] } else { usize::MAX };
            due[i] = self.users[i].iter().map(by_user).min().unwrap_or(usize::MAX).min(own);
        }
        due
    }

    /// Makes one of two regions if they fit, and says whether it did.
    fn merge(&mut self, a: usize, b: usize) -> bool {
        if a == b {
            return true;
        }
        let (first, second) = (&self.regions[a], &self.regions[b]);
        let shape = |r: &Region| &self.graph.ty(r.members[0]).shape;
        if shape(first) != shape(second) || first.members.len() + second.members.len() > MAX_INSTRUCTIONS {
            return false;
        }
        let mut members = [first.members.as_slice(), &second.members].concat();
        members.sort_unstable();
        if self.inputs(&members).len() > MAX_INPUTS || self.results(&members).len() > MAX_RESULTS {
            return false;
        }
        // Where all results of the first are for the second, it runs no earlier, and nothing can be between them.
        let absorbed = first
            .members
            .iter()
            .all(|id| !self.wanted[id.index()] && self.users[id.index()].iter().all(|u| self.inside(*u, &[a, b])));
        if !absorbed && (first.due.abs_diff(second.due) > EARLY || self.depends(a, b) || self.depends(b, a)) {
            return false;
        }
        let due = first.due.min(second.due);
        for id in &members {
            self.region[id.index()] = Some(b);
        }
        self.regions[a].members.clear();
        self.regions[b] = Region { members, due };
        true
    }

    fn inside(&self, id: NodeId, regions: &[usize]) -> bool {
        self.region[id.index()].is_some_and(|r| regions.contains(&r))
    }

    /// Whether a region needs another one's results by way of third nodes.
    fn depends(&self, producer: usize, user: usize) -> bool {
        let mut seen = vec![false; self.graph.nodes.len()];
        let users = |members: &[NodeId]| -> Vec<NodeId> {
            members.iter().flat_map(|m| &self.users[m.index()]).copied().collect()
        };
        let mut waiting = users(&self.regions[producer].members);
        waiting.retain(|&id| !self.inside(id, &[producer, user]));
        while let Some(id) = waiting.pop() {
            if self.inside(id, &[user]) {
                return true;
            }
            if !seen[id.index()] {
                let members = self.members(id).unwrap_or(std::slice::from_ref(&id));
                members.iter().for_each(|m| seen[m.index()] = true);
                waiting.extend(users(members));
            }
        }
        false
    }
}

/// Whether a node is worth its own place in the order: not a view, and no mere pass over memory.
fn is_heavy(op: &Op) -> bool {
    !matches!(
        op,
        Op::Input(_)
            | Op::Const(_)
            | Op::Iota(_)
            | Op::Element(_)
            | Op::Reduce(_)
            | Op::Gather(_)
            | Op::ScatterAdd(_)
            | Op::Reshape(_)
            | Op::Permute(_)
            | Op::Expand(_)
            | Op::Slice(_)
    )
}

/// Whether a value is spread over more elements than it has.
fn is_repeated(graph: &Graph, id: NodeId) -> bool {
    match &graph.node(id).op {
        Op::Expand(_) => true,
        Op::Reshape(_) | Op::Permute(_) | Op::Slice(_) => is_repeated(graph, graph.node(id).inputs[0]),
        _ => false,
    }
}
