//! Makes chains of kernels that follow each other on the same samples.

use super::rewrite::Rewrite;
use super::uses::{Uses, is_no_kernel};
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::op::Op;
use crate::ops::{BySamples, Chain, ChainInput, Link, Part};
use crate::program::Target;
use crate::shape::Type;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

/// Kernels of a chain, at most: so that long graphs of short kernels are looked through in time.
const MOST: usize = 8;

/// Joins kernels that stand one after the other in the order of the graph and compute with the same samples, where the
/// target is faster so.
pub fn chain(graph: &Graph, target: &dyn Target) -> Graph {
    let uses = Uses::new(graph);
    let mut rewrite = Rewrite::new(graph);
    let mut next = 0;
    while next < graph.nodes.len() {
        let head = NodeId(next as u32);
        if rewrite.is_done(head) {
            next += 1;
            continue;
        }
        match Draft::grow(graph, &uses, target, head) {
            Some(draft) => {
                draft.emit(&uses, &mut rewrite);
                next = draft.end;
            }
            None => {
                copy(&mut rewrite, head);
                next += 1;
            }
        }
    }
    rewrite.finish()
}

fn copy(rewrite: &mut Rewrite, id: NodeId) {
    let new = rewrite.push(rewrite.moved(id));
    rewrite.set(id, new);
}

/// A chain that grows, of nodes `head..end` of the graph.
#[derive(Clone)]
struct Draft<'a> {
    graph: &'a Graph,
    head: usize,
    end: usize,
    samples: usize,
    members: Vec<NodeId>,
    /// The inputs, and whether they are cut.
    inputs: Vec<(NodeId, bool)>,
    /// The members, which are their first results, and the parts that are others.
    registers: FxHashMap<NodeId, Register>,
    links: Vec<Link>,
    /// Members that have nothing to do with the others yet, but with each other: a later one may read both.
    apart: SmallVec<[usize; MOST]>,
    /// Nodes between the members that depend on them.
    after: FxHashSet<NodeId>,
}

/// A result of a member.
#[derive(Clone, Copy)]
struct Register {
    member: usize,
    result: usize,
    /// Not a sum over the samples.
    cut: bool,
}

impl<'a> Draft<'a> {
    /// The longest chain from `head` on that the target wants.
    fn grow(graph: &'a Graph, uses: &Uses, target: &dyn Target, head: NodeId) -> Option<Self> {
        let mut draft = Draft {
            graph,
            head: head.index(),
            end: head.index(),
            samples: 0,
            members: Vec::new(),
            inputs: Vec::new(),
            registers: FxHashMap::default(),
            links: Vec::new(),
            apart: SmallVec::new(),
            after: FxHashSet::default(),
        };
        draft.join(uses, head)?;
        let mut best = None;
        for id in graph.ids().skip(head.index() + 1) {
            let node = graph.node(id);
            if is_no_kernel(&node.op) {
                draft.pass(id);
                continue;
            }
            if draft.members.len() == MOST || draft.join(uses, id).is_none() {
                break;
            }
            if draft.apart.is_empty() && target.chains(&draft.chain(uses).0) {
                best = Some(draft.clone());
            }
        }
        best
    }

    /// A node that is no kernel comes between the members.
    fn pass(&mut self, id: NodeId) {
        let depends = |x: &NodeId| self.registers.contains_key(x) || self.after.contains(x);
        if !self.registers.contains_key(&id) && self.graph.node(id).inputs.iter().any(depends) {
            self.after.insert(id);
        }
    }

    /// Makes the node the last member, if it computes with the samples of the others, waits for nothing but them and follows one
    /// of them, or is the first of those that stand apart.
    fn join(&mut self, uses: &Uses, id: NodeId) -> Option<()> {
        let node = self.graph.node(id);
        let types: Vec<&Type> = node.inputs.iter().map(|&x| self.graph.ty(x)).collect();
        let way = BySamples::new(&node.op, &types, &node.ty)?;
        let (mut follows, mut follows_apart) = (self.members.is_empty(), false);
        for (x, &cut) in node.inputs.iter().zip(&way.cut) {
            if let Some(register) = self.registers.get(x) {
                if !(register.cut && cut) {
                    return None;
                }
                let is_apart = self.apart.contains(&register.member);
                (follows, follows_apart) = (follows || !is_apart, follows_apart || is_apart);
            }
        }
        let waits = node.inputs.iter().any(|x| self.after.contains(x));
        if waits || !(self.members.is_empty() || self.samples == way.samples) {
            return None;
        }
        match (follows, follows_apart) {
            (true, true) => self.apart.clear(),
            (true, false) => {}
            (false, false) if !self.apart.is_empty() => return None,
            (false, _) => self.apart.push(self.members.len()),
        }
        self.samples = way.samples;
        for (&x, &cut) in node.inputs.iter().zip(&way.cut) {
            if !self.registers.contains_key(&x) && !self.inputs.contains(&(x, cut)) {
                self.inputs.push((x, cut));
            }
        }
        let results = node.op.results(&types).expect("a legal node").into_iter().collect();
        let register = Register { member: self.members.len(), result: 0, cut: way.block.is_none() };
        self.registers.insert(id, register);
        for &reader in &uses.readers[id.index()] {
            if let Op::Part(part) = &self.graph.node(reader).op {
                self.registers.insert(reader, Register { result: part.index, ..register });
            }
        }
        self.members.push(id);
        self.links.push(Link { op: node.op.clone(), args: SmallVec::new(), results, block: way.block });
        self.end = id.index() + 1;
        Some(())
    }

    /// The chain, and the nodes whose values are its results.
    fn chain(&self, uses: &Uses) -> (Chain, Vec<NodeId>) {
        let mut firsts = Vec::new();
        let mut next = self.inputs.len();
        for link in &self.links {
            firsts.push(next);
            next += link.results.len();
        }
        let number = |register: &Register| (firsts[register.member] + register.result) as u16;
        let mut links = self.links.clone();
        for (link, &id) in links.iter_mut().zip(&self.members) {
            let node = self.graph.node(id);
            let types: Vec<&Type> = node.inputs.iter().map(|&x| self.graph.ty(x)).collect();
            let way = BySamples::new(&node.op, &types, &node.ty).expect("a member runs by samples");
            let input =
                |x: NodeId, cut: bool| self.inputs.iter().position(|input| *input == (x, cut)).expect("an input");
            let arg = |(&x, &cut)| self.registers.get(&x).map_or_else(|| input(x, cut) as u16, number);
            link.args = node.inputs.iter().zip(&way.cut).map(arg).collect();
        }
        let mut results: Vec<NodeId> = self.registers.keys().copied().filter(|&id| self.escapes(uses, id)).collect();
        results.sort();
        let outputs = results.iter().map(|id| number(&self.registers[id])).collect();
        let input = |&(x, cut): &(NodeId, bool)| ChainInput { ty: self.graph.ty(x).clone(), cut };
        let inputs = self.inputs.iter().map(input).collect();
        (Chain { samples: self.samples, inputs, links, outputs }, results)
    }

    /// Whether somebody else than the members needs a result.
    fn escapes(&self, uses: &Uses, id: NodeId) -> bool {
        let inside = |reader: &NodeId| self.registers.contains_key(reader);
        uses.wanted.contains(&id) || !uses.readers[id.index()].iter().all(inside)
    }

    /// Adds what stands between the members and is needed before, the chain with its results, and the rest.
    fn emit(&self, uses: &Uses, rewrite: &mut Rewrite) {
        let between = (self.head..self.end).map(|i| NodeId(i as u32));
        let between = between.filter(|&id| !self.registers.contains_key(&id) && !rewrite.is_done(id));
        let (after, before): (Vec<_>, Vec<_>) = between.partition(|id| self.after.contains(id));
        before.into_iter().for_each(|id| copy(rewrite, id));
        let (chain, results) = self.chain(uses);
        let inputs: Operands = self.inputs.iter().map(|&(x, _)| rewrite.get(x)).collect();
        let ty = |id: &NodeId| self.graph.ty(*id).clone();
        let whole = rewrite.push(Node { op: Op::Chain(chain), inputs, ty: ty(&results[0]) });
        for (index, id) in results.iter().enumerate() {
            let mut value = whole;
            if index > 0 {
                let part = Part { index, ty: ty(id) };
                value = rewrite.push(Node { op: Op::Part(part), inputs: Operands::from_slice(&[whole]), ty: ty(id) });
            }
            rewrite.set(*id, value);
        }
        after.into_iter().for_each(|id| copy(rewrite, id));
    }
}
