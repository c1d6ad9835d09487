//! The order in which groups are handed over.

use super::FLOPS_PER_BYTE;
use super::copies::Copy;
use super::division::Division;
use crate::graph::Node;
use crate::op::Op;
use rustc_hash::FxHashMap;

impl Division<'_> {
    /// The groups, those that the end waits longest for first (the upward rank of list scheduling: Topcuoglu, Hariri and
    /// Wu, 2002). A group comes after those that it needs, for these have more behind them.
    pub(super) fn order(&self) -> Vec<usize> {
        // A group without results has nothing but views and numbers that others make for themselves.
        let mut by_size: Vec<usize> = (0..self.groups.len()).filter(|&g| !self.groups[g].outputs.is_empty()).collect();
        by_size.sort_by_cached_key(|&g| {
            (self.copies.size(self.groups[g].set), self.groups[g].phase, self.groups[g].first)
        });
        // The groups that must have ended for a value to be there, with the cost of the way from there.
        let mut needed: FxHashMap<usize, Vec<(usize, u64)>> = FxHashMap::default();
        for &g in &by_size {
            for x in &self.groups[g].outputs {
                needed.insert(self.produced[x], vec![(g, 0)]);
            }
        }
        for &Copy { node, base, result, after, .. } in &self.copies.list {
            let way = FLOPS_PER_BYTE * self.graph.ty(node).bytes() as u64;
            let made = self.produced.get(&base).map(|value| (needed[value][0].0, way));
            let after = after.filter(|&group| !self.groups[group].outputs.is_empty()).map(|group| (group, way));
            needed.insert(result, made.into_iter().chain(after).collect());
        }
        let mut rank: FxHashMap<usize, u64> = FxHashMap::default();
        for &g in by_size.iter().rev() {
            let own = rank.get(&g).copied().unwrap_or(0) + self.groups[g].cost + 1;
            rank.insert(g, own);
            for &(before, way) in self.groups[g].inputs.iter().filter_map(|value| needed.get(value)).flatten() {
                let behind = rank.entry(before).or_insert(0);
                *behind = (*behind).max(own + way);
            }
        }
        let mut order = by_size;
        order.sort_by_key(|&g| (self.groups[g].phase, std::cmp::Reverse(rank[&g]), self.groups[g].first));
        let needed = |g: usize| {
            let values = self.groups[g].inputs.iter().filter_map(|value| needed.get(value));
            values.flatten().map(|&(before, _)| before).collect::<Vec<usize>>()
        };
        self.ends_early(order, needed)
    }

    /// Moves what ends the graph, and takes little work (gradients that are merged, parameters that are updated), to where
    /// all that it needs has been handed over: it needs memory until then, and gives some back.
    fn ends_early(&self, order: Vec<usize>, needed: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
        let mut is_end: FxHashMap<usize, bool> = FxHashMap::default();
        for &g in order.iter().rev() {
            let ends =
                is_end.get(&g).copied().unwrap_or(true) && !self.groups[g].graph.nodes.iter().any(is_contraction);
            is_end.insert(g, ends);
            for before in needed(g) {
                *is_end.entry(before).or_insert(true) &= ends;
            }
        }
        // After which of the others a group comes, and how many ends that need each other lie between.
        let mut place: FxHashMap<usize, (usize, usize)> = FxHashMap::default();
        for (at, &g) in order.iter().enumerate() {
            let latest = needed(g).iter().map(|before| place[before]).max();
            let own = match latest {
                Some((after, ends)) if is_end[&g] => (after, ends + 1),
                _ => (at, 0),
            };
            place.insert(g, own);
        }
        let mut order = order;
        order.sort_by_key(|g| place[g]);
        order
    }
}

fn is_contraction(node: &Node) -> bool {
    matches!(node.op, Op::Dot(_) | Op::Conv(_) | Op::ConvInput(_) | Op::ConvWeight(_))
}
