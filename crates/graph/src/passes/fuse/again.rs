//! Cheap values are computed again where they are needed, instead of being kept: what a gradient reads of a GELU is a few
//! operations on the GELU's operand, which is one value in memory and not five.
//!
//! For each region it is a minimum cut which of them these are (as in PyTorch's partitioner of forward and backward passes; see
//! [`cut`](super::cut)). Regions that could share a value are asked again in turn, until none of them has anything to change.
//! Every value is computed again by the operations that computed it, so nothing changes but where it comes from.

use super::constant;
use super::copies::copied;
use super::cost::{self, is_view, stored};
use super::cut::Network;
use super::regions::{LEAST, Region, Regions};
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// How often all regions are asked, at most.
const ROUNDS: usize = 4;

/// A graph in which regions compute again what is cheaper so, and for each of its nodes the number of its region; `None`
/// if there is no such value.
pub(super) fn compute_again(regions: &Regions) -> Option<(Graph, Vec<Option<usize>>)> {
    let mut barred = vec![false; regions.all().len()];
    loop {
        let again = Choice::new(regions, &barred).made();
        if again.iter().all(BTreeSet::is_empty) {
            return None;
        }
        let (graph, of) = copied(regions, &again);
        let large: Vec<usize> = {
            let result = Regions::again(&graph, regions, &of);
            (0..barred.len()).filter(|&number| !result.fits(&result.all()[number])).collect()
        };
        if large.is_empty() {
            return Some((graph, of));
        }
        // Neither do these compute anything again, nor is anything of theirs computed again.
        large.into_iter().for_each(|number| barred[number] = true);
    }
}

/// Which regions compute what again.
struct Choice<'a> {
    regions: &'a Regions<'a>,
    /// Regions that compute nothing again, and of which nothing is computed again.
    barred: &'a [bool],
    /// For each region what it reads from memory.
    read: Vec<BTreeSet<NodeId>>,
    /// For each value the regions that read it.
    readers: FxHashMap<NodeId, BTreeSet<usize>>,
    /// And those that read it or could compute something from it.
    possible: FxHashMap<NodeId, usize>,
    /// What each region computes again.
    again: Vec<BTreeSet<NodeId>>,
}

impl<'a> Choice<'a> {
    /// No region reads what it could compute, and none has decided what it computes.
    fn new(regions: &'a Regions<'a>, barred: &'a [bool]) -> Self {
        let count = regions.all().len();
        let (read, again) = (vec![BTreeSet::new(); count], vec![BTreeSet::new(); count]);
        let mut choice =
            Choice { regions, barred, read, readers: FxHashMap::default(), possible: FxHashMap::default(), again };
        for number in 0..count {
            let kept = choice.own_reads(number).into_iter().filter(|&id| !choice.may_compute(number, id));
            choice.set_read(number, kept.collect());
            for id in choice.reach(number).into_keys() {
                *choice.possible.entry(id).or_default() += 1;
            }
        }
        choice
    }

    /// What each region computes again in the end.
    fn made(mut self) -> Vec<BTreeSet<NodeId>> {
        let asked = |number: &usize| self.own_reads(*number).iter().any(|&id| self.may_compute(*number, id));
        let asked: Vec<usize> = (0..self.again.len()).filter(asked).collect();
        let first: Vec<BTreeSet<NodeId>> = asked.iter().map(|&number| self.cheapest(number, true)).collect();
        for (&number, again) in asked.iter().zip(first) {
            self.decide(number, again);
        }
        for _ in 1..ROUNDS {
            let mut changes = false;
            for &number in &asked {
                let again = self.cheapest(number, false);
                changes |= again != self.again[number];
                self.decide(number, again);
            }
            if !changes {
                break;
            }
        }
        self.again
    }

    /// What some nodes read as members of a region, without constants and the region's own values.
    fn reads(&self, number: usize, nodes: &[NodeId]) -> BTreeSet<NodeId> {
        let (graph, region) = (self.regions.graph, &self.regions.all()[number]);
        let operands = nodes.iter().flat_map(|&id| Region::reads(graph, id));
        let operands = operands.filter(|&&x| constant(graph, x).is_none());
        operands.map(|&x| region.read(graph, x).value).filter(|&x| !region.contains(x)).collect()
    }

    /// What the members of a region read.
    fn own_reads(&self, number: usize) -> BTreeSet<NodeId> {
        self.reads(number, &self.regions.all()[number].members)
    }

    /// Whether a region may compute a value of another one.
    fn may_compute(&self, number: usize, id: NodeId) -> bool {
        let (node, space) = (self.regions.graph.node(id), &self.regions.all()[number].space);
        matches!(node.op, Op::Element(_))
            && node.ty.bytes() >= LEAST
            && !self.barred[number]
            && self.regions.number(id).is_some_and(|of| !self.barred[of])
            && (node.ty.shape == space.shape || space.is_of_rows(&node.ty.shape))
    }

    /// What a region reads or could compute, and what it would need for that.
    fn reach(&self, number: usize) -> BTreeMap<NodeId, BTreeSet<NodeId>> {
        let mut reach = BTreeMap::new();
        let mut waiting: Vec<NodeId> = self.own_reads(number).into_iter().collect();
        while let Some(id) = waiting.pop() {
            if reach.contains_key(&id) {
                continue;
            }
            let operands = if self.may_compute(number, id) { self.reads(number, &[id]) } else { BTreeSet::new() };
            waiting.extend(&operands);
            reach.insert(id, operands);
        }
        reach
    }

    /// What a region computes where that is cheapest, as long as the others do what they do now. At first the costs of keeping
    /// a value are `shared` by all that may read it.
    fn cheapest(&self, number: usize, shared: bool) -> BTreeSet<NodeId> {
        let (regions, own) = (self.regions, self.own_reads(number));
        let until = regions.all()[number].due;
        let mut network = Network::default();
        for (&id, operands) in &self.reach(number) {
            let may_compute = self.may_compute(number, id);
            let keeping = if !may_compute && own.contains(&id) {
                0
            } else {
                let sharing = if shared { self.possible[&id] } else { 1 };
                cost::of_keeping(regions, id, until, self.last_use_by_others(number, id), sharing)
            };
            network.value(id, may_compute.then(|| cost::of_computing(regions.graph, id)), keeping);
            operands.iter().for_each(|&x| network.needs(id, x));
            if own.contains(&id) {
                network.want(id);
            }
        }
        network.computed()
    }

    /// Lets a region compute these values, where it needs them.
    fn decide(&mut self, number: usize, computed: BTreeSet<NodeId>) {
        let (mut again, mut read) = (BTreeSet::new(), BTreeSet::new());
        let mut waiting: Vec<NodeId> = self.own_reads(number).into_iter().collect();
        while let Some(id) = waiting.pop() {
            if !computed.contains(&id) {
                read.insert(id);
            } else if again.insert(id) {
                waiting.extend(self.reads(number, &[id]));
            }
        }
        self.again[number] = again;
        self.set_read(number, read);
    }

    fn set_read(&mut self, number: usize, read: BTreeSet<NodeId>) {
        for id in std::mem::replace(&mut self.read[number], read) {
            self.readers.get_mut(&id).expect("it has been read").remove(&number);
        }
        for &id in &self.read[number] {
            self.readers.entry(id).or_default().insert(number);
        }
    }

    /// The number of the heavy kernel before which a value, or a view of it, is used last outside of its own region and of the one
    /// that asks.
    fn last_use_by_others(&self, number: usize, id: NodeId) -> Option<usize> {
        let (regions, graph) = (self.regions, self.regions.graph);
        let stored = stored(graph, id);
        if matches!(graph.node(stored).op, Op::Input(_)) {
            return Some(usize::MAX);
        }
        let mut last = None;
        let mut waiting = vec![stored];
        while let Some(x) = waiting.pop() {
            if regions.wanted[x.index()] {
                return Some(usize::MAX);
            }
            let others = self.readers.get(&x).into_iter().flatten();
            let others = others.filter(|&&other| other != number && regions.number(stored) != Some(other));
            last = last.max(others.map(|&other| regions.all()[other].due).max());
            for &user in &regions.users[x.index()] {
                let node = graph.node(user);
                if is_view(&node.op) {
                    if node.inputs[0] == x {
                        waiting.push(user);
                    }
                } else if regions.number(user).is_none() {
                    last = last.max(Some(regions.numbers[user.index()]));
                }
            }
        }
        last
    }
}
