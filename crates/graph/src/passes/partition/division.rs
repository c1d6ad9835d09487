//! The division of a graph's nodes into groups, each of which becomes a piece.

use super::copies::{Copies, Copy, SetId};
use super::window::{Use, Window};
use super::{FLOPS_PER_BYTE, Partition, Piece};
use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use crate::ops::Input;
use crate::program::Donation;
use crate::shape::{Layout, Type};
use rustc_hash::{FxHashMap, FxHashSet};

/// Where the value of a node comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Site {
    /// An input that is there on every device: a number.
    Number,
    /// An input on a device.
    Leaf(u32),
    /// Computed wherever it is needed.
    Free,
    /// Computed on a device.
    At(u32),
}

pub(super) struct Division<'a> {
    pub(super) graph: &'a Graph,
    home: u32,
    phases: &'a [usize],
    /// The node that a node merely passes on: the operand of a passage between devices.
    roots: Vec<NodeId>,
    sites: Vec<Site>,
    /// The copies that the node depends on, for nodes that are computed on a device.
    sets: Vec<SetId>,
    pub(super) copies: Copies,
    /// The bundle that the copy of a root to a device belongs to.
    bundles: FxHashMap<(NodeId, u32), u32>,
    /// The roots that are copied again for later users, and where to.
    fleeting: FxHashSet<(NodeId, u32)>,
    /// Whether a node is put together from nothing but such copies and inputs, and is nowhere else needed: it is put
    /// together again by whoever reads it.
    is_assembled: Vec<bool>,
    window: Window,
    pub(super) groups: Vec<Group>,
    by_key: FxHashMap<(u32, SetId, usize), usize>,
    /// The group of each node that is computed on a device.
    group_of: Vec<usize>,
    /// The value of each root that leaves its group, and of each copy.
    values: usize,
    pub(super) produced: FxHashMap<NodeId, usize>,
    leaves: FxHashMap<NodeId, usize>,
}

/// A piece in the making.
#[derive(Default)]
pub(super) struct Group {
    device: u32,
    pub(super) set: SetId,
    pub(super) phase: usize,
    pub(super) graph: Graph,
    /// Where nodes of the whole graph are in the piece's.
    local: FxHashMap<NodeId, NodeId>,
    pub(super) inputs: Vec<usize>,
    /// Nodes of the whole graph whose values leave the piece.
    pub(super) outputs: Vec<NodeId>,
    pub(super) cost: u64,
    pub(super) first: usize,
}

impl<'a> Division<'a> {
    pub(super) fn new(graph: &'a Graph, devices: &[Option<u32>], phases: &'a [usize], home: u32) -> Self {
        let mut roots: Vec<NodeId> = graph.ids().collect();
        let mut sites = Vec::with_capacity(graph.nodes.len());
        let mut leaves = FxHashMap::default();
        let mut bundles = FxHashMap::default();
        let mut fleeting = FxHashSet::default();
        for id in graph.ids() {
            let node = graph.node(id);
            let site = match (&node.op, devices[id.index()]) {
                (Op::Input(_), None) => Site::Number,
                (Op::Input(_), Some(device)) => Site::Leaf(device),
                (_, None) => Site::Free,
                (_, Some(device)) => Site::At(device),
            };
            if matches!(node.op, Op::Input(_)) {
                leaves.insert(id, leaves.len());
            }
            if let Op::ToDevice(op) = &node.op {
                roots[id.index()] = roots[node.inputs[0].index()];
                let passage = (roots[id.index()], op.to);
                bundles.entry(passage).or_insert(op.bundle);
                if op.is_fleeting {
                    fleeting.insert(passage);
                }
            }
            sites.push(site);
        }
        Division {
            graph,
            home,
            phases,
            roots,
            sites,
            sets: vec![0; graph.nodes.len()],
            copies: Copies::new(),
            bundles,
            fleeting,
            is_assembled: vec![false; graph.nodes.len()],
            window: Window::default(),
            groups: Vec::new(),
            by_key: FxHashMap::default(),
            group_of: vec![usize::MAX; graph.nodes.len()],
            values: leaves.len(),
            produced: FxHashMap::default(),
            leaves,
        }
    }

    fn root(&self, id: NodeId) -> NodeId {
        self.roots[id.index()]
    }

    fn site(&self, id: NodeId) -> Site {
        self.sites[id.index()]
    }

    /// Whether the node is no more than another look at its operand, or a number.
    fn is_light(&self, id: NodeId) -> bool {
        use Op::*;
        matches!(
            self.graph.node(id).op,
            Reshape(_) | Permute(_) | Expand(_) | Slice(_) | Barrier(_) | Const(_) | Iota(_)
        )
    }

    fn new_value(&mut self) -> usize {
        self.values += 1;
        self.values - 1
    }

    pub(super) fn divide(mut self, donation: &Donation) -> Partition {
        let nodes: Vec<NodeId> = self.graph.ids().filter(|&id| self.root(id) == id).collect();
        let mut in_time = nodes.clone();
        in_time.sort_by_key(|&id| (self.phase(id), id));
        self.find_assembled(&nodes);
        self.window = Window::new(&self.uses(&in_time));
        for id in in_time {
            if let Site::At(device) = self.site(id)
                && !self.is_assembled[id.index()]
            {
                let set = self.set_of(id, device);
                self.sets[id.index()] = set;
                self.group_of[id.index()] = self.group(device, set, self.phase(id));
            }
        }
        self.sink(&nodes);
        // Groups are filled in the order of nodes, so that operands of one group come before their uses.
        for &id in &nodes {
            if let Site::At(_) = self.site(id)
                && !self.is_assembled[id.index()]
                && !self.is_light(id)
            {
                let group = self.group_of[id.index()];
                self.add(group, id);
            }
        }
        let outputs = self.graph.outputs.clone().into_iter().map(|id| self.output(id)).collect();
        self.finish(donation, outputs)
    }

    /// Finds what is put together from fleeting copies and inputs alone.
    fn find_assembled(&mut self, nodes: &[NodeId]) {
        if self.fleeting.is_empty() {
            return;
        }
        let mut is_kept = vec![false; self.graph.nodes.len()];
        self.graph.outputs.iter().for_each(|&o| is_kept[self.root(o).index()] = true);
        for (id, node) in self.graph.ids().zip(&self.graph.nodes) {
            if let Op::ToDevice(_) = node.op {
                let root = self.root(id);
                is_kept[root.index()] = true;
                is_kept[self.base(root).0.index()] = true;
            }
        }
        for &id in nodes {
            let Site::At(device) = self.site(id) else { continue };
            let puts_together = self.is_light(id) || matches!(self.graph.node(id).op, Op::Concat(_));
            // Or a device's own part in a narrower type, which stays.
            let is_own = |x: NodeId| {
                let node = self.graph.node(x);
                self.site(x) == Site::At(device)
                    && node.op.is_cast()
                    && self.site(self.root(node.inputs[0])) == Site::Leaf(device)
            };
            let is_brought = |x: NodeId| {
                self.is_assembled[x.index()]
                    || self.site(x) == Site::Leaf(device)
                    || self.fleeting.contains(&(x, device))
                    || is_own(x)
            };
            let mut operands = self.graph.node(id).inputs.iter().map(|&x| self.root(x)).peekable();
            self.is_assembled[id.index()] =
                puts_together && !is_kept[id.index()] && operands.peek().is_some() && operands.all(is_brought);
        }
    }

    /// The fleeting copies that nodes need, in the order of time.
    fn uses(&self, in_time: &[NodeId]) -> Vec<Use> {
        let mut uses = Vec::new();
        for &id in in_time {
            let Site::At(device) = self.site(id) else { continue };
            if self.fleeting.is_empty() || self.is_assembled[id.index()] {
                continue;
            }
            let mut copies = Vec::new();
            let mut stack: Vec<NodeId> = self.graph.node(id).inputs.to_vec();
            let mut seen = FxHashSet::default();
            while let Some(x) = stack.pop() {
                let x = self.root(x);
                if !seen.insert(x) {
                } else if self.fleeting.contains(&(x, device)) && self.site(x) != Site::At(device) {
                    copies.push((x, self.graph.ty(x).bytes()));
                } else if self.site(x) == Site::Free || self.is_assembled[x.index()] {
                    stack.extend(&self.graph.node(x).inputs);
                }
            }
            if !copies.is_empty() {
                uses.push(Use { device, user: id, copies });
            }
        }
        uses
    }

    /// Moves elementwise work on inputs to the only group that needs it: it is fused with what is there, and its result,
    /// which might have been there early, is not kept until then.
    fn sink(&mut self, nodes: &[NodeId]) {
        /// The groups that need a node.
        #[derive(Clone, Copy, PartialEq)]
        enum Users {
            None,
            One(usize),
            Several,
        }
        let mut of_inputs = vec![false; self.graph.nodes.len()];
        for id in self.graph.ids() {
            let node = self.graph.node(id);
            of_inputs[id.index()] = match self.site(id) {
                Site::Number | Site::Leaf(_) | Site::Free => true,
                Site::At(_) => {
                    let inputs = node.inputs.iter().all(|x| of_inputs[self.root(*x).index()]);
                    inputs && (matches!(node.op, Op::Element(_)) || self.is_light(id))
                }
            };
        }
        let mut users = vec![Users::None; self.graph.nodes.len()];
        self.graph.outputs.iter().for_each(|&o| users[self.root(o).index()] = Users::Several);
        for &id in nodes.iter().rev() {
            let Site::At(device) = self.site(id) else { continue };
            if self.is_assembled[id.index()] {
                // Whoever puts it together needs its operands, of other devices too, when they are there.
                self.graph.node(id).inputs.iter().for_each(|&x| users[self.root(x).index()] = Users::Several);
                continue;
            }
            if let Users::One(group) = users[id.index()]
                && self.groups[group].device == device
                && of_inputs[id.index()]
                && !self.window.has_user(id)
            {
                self.group_of[id.index()] = group;
            }
            let own = self.group_of[id.index()];
            for x in self.graph.node(id).inputs.iter().map(|&x| self.root(x)) {
                let known = &mut users[x.index()];
                *known = match *known {
                    Users::None => Users::One(own),
                    same if same == Users::One(own) => same,
                    _ => Users::Several,
                };
            }
        }
    }

    fn phase(&self, id: NodeId) -> usize {
        self.phases.get(id.index()).copied().unwrap_or(0)
    }

    /// The group of a device, a set and a phase, begun if it is new.
    fn group(&mut self, device: u32, set: SetId, phase: usize) -> usize {
        if let Some(&group) = self.by_key.get(&(device, set, phase)) {
            return group;
        }
        self.by_key.insert((device, set, phase), self.groups.len());
        self.groups.push(Group { device, set, phase, first: usize::MAX, ..Group::default() });
        self.groups.len() - 1
    }

    /// The copies that a node depends on when it is computed on `device`.
    fn set_of(&mut self, id: NodeId, device: u32) -> SetId {
        let mut set = 0;
        let mut stack: Vec<NodeId> = self.graph.node(id).inputs.to_vec();
        let mut seen = FxHashSet::default();
        while let Some(x) = stack.pop() {
            let x = self.root(x);
            let own = match self.site(x) {
                Site::Number => 0,
                Site::Free => {
                    if seen.insert(x) {
                        stack.extend(&self.graph.node(x).inputs);
                    }
                    0
                }
                Site::Leaf(at) if at == device => 0,
                Site::At(at) if at == device && self.is_assembled[x.index()] => {
                    if seen.insert(x) {
                        stack.extend(&self.graph.node(x).inputs);
                    }
                    0
                }
                Site::At(at) if at == device => self.sets[x.index()],
                Site::Leaf(_) | Site::At(_) => {
                    let (base, _) = self.base(x);
                    self.arrival(x, device, self.window.version(id, x), self.sets[base.index()])
                }
            };
            set = self.copies.union(set, own);
        }
        set
    }

    /// The set of who reads the copy of a value on `device`; `before` is that of the value.
    fn arrival(&mut self, x: NodeId, device: u32, version: u32, before: SetId) -> SetId {
        let copy = self.copy(x, device, version);
        let before = match self.copies.list[copy].after {
            Some(group) => self.copies.union(before, self.groups[group].set),
            None => before,
        };
        self.copies.with(before, self.copies.members[copy])
    }

    /// The copy of a value to a device.
    fn copy(&mut self, x: NodeId, device: u32, version: u32) -> usize {
        if let Some(&copy) = self.copies.known.get(&(x, device, version)) {
            return copy;
        }
        let result = self.new_value();
        let (base, offset) = self.base(x);
        let after = self.window.after(x, device, version).map(|user| self.group_of[user.index()]);
        // Copies of one bundle start by themselves; one that waits for a piece would have the others wait, too.
        let bundle = if after.is_some() { 0 } else { self.bundles.get(&(x, device)).copied().unwrap_or(0) };
        // Where copies wait for pieces, what a later phase brings may wait for who reads what an earlier one has brought.
        let phase = if self.window.has_waiting() { self.phase(base) } else { 0 };
        self.copies.add(Copy { node: x, base, offset, to: device, result, after }, version, (bundle, phase))
    }

    /// Adds a node, and what it needs that is computed wherever it is needed, to a group.
    fn add(&mut self, group: usize, id: NodeId) {
        let mut stack = vec![id];
        while let Some(&top) = stack.last() {
            if self.groups[group].local.contains_key(&top) {
                stack.pop();
                continue;
            }
            let inputs: Vec<NodeId> = self.graph.node(top).inputs.iter().map(|&x| self.root(x)).collect();
            let depth = stack.len();
            for x in inputs.iter().rev().filter(|x| !self.groups[group].local.contains_key(x)) {
                if self.is_made_here(group, *x) {
                    stack.push(*x);
                }
            }
            if stack.len() > depth {
                continue;
            }
            stack.pop();
            let inputs = inputs.into_iter().map(|x| self.operand(group, x, [top, id])).collect();
            let Node { op, ty, .. } = self.graph.node(top);
            let types: Vec<&Type> = self.graph.node(top).inputs.iter().map(|&x| self.graph.ty(x)).collect();
            let bytes = types.iter().map(|ty| ty.bytes()).sum::<usize>() + ty.bytes();
            let place = &mut self.groups[group];
            place.cost += op.operation().flops(&types, ty) + FLOPS_PER_BYTE * bytes as u64;
            place.first = place.first.min(top.index());
            place.graph.nodes.push(Node { op: op.clone(), inputs, ty: ty.clone() });
            place.local.insert(top, NodeId(place.graph.nodes.len() as u32 - 1));
        }
    }

    /// Whether a group that needs the value computes it itself.
    fn is_made_here(&self, group: usize, x: NodeId) -> bool {
        match self.site(x) {
            Site::Free => true,
            Site::At(device) => {
                self.group_of[x.index()] == group
                    || (device == self.groups[group].device && (self.is_light(x) || self.is_assembled[x.index()]))
            }
            Site::Number | Site::Leaf(_) => false,
        }
    }

    /// The value in a group that needs it: computed there, or an input. `users` are the node that needs it and the one for
    /// which that is put together there.
    fn operand(&mut self, group: usize, x: NodeId, users: [NodeId; 2]) -> NodeId {
        if let Some(&local) = self.groups[group].local.get(&x) {
            return local;
        }
        let device = self.groups[group].device;
        let version = users.into_iter().map(|user| self.window.version(user, x)).find(|&v| v != 0).unwrap_or(0);
        let value = self.value_on(x, device, version);
        let ty = self.graph.ty(x).clone();
        let place = &mut self.groups[group];
        place.inputs.push(value);
        let node = Node { op: Input { ty: ty.clone() }.into(), inputs: Default::default(), ty };
        place.graph.nodes.push(node);
        let local = NodeId(place.graph.nodes.len() as u32 - 1);
        place.local.insert(x, local);
        local
    }

    /// The value of a root on a device: an input of the graph, what a group computes, or a copy of one of these.
    fn value_on(&mut self, x: NodeId, device: u32, version: u32) -> usize {
        match self.site(x) {
            Site::Number => self.leaves[&x],
            Site::Leaf(at) if at == device => self.leaves[&x],
            Site::At(at) if at == device => self.produce(x),
            Site::Leaf(_) | Site::At(_) => {
                let copy = self.copy(x, device, version);
                let Copy { base, result, .. } = self.copies.list[copy];
                if let Site::At(_) = self.site(base) {
                    self.produce(base);
                }
                result
            }
            Site::Free => unreachable!("values without a device are computed where they are needed"),
        }
    }

    /// The node whose value contains the value of `x` without gaps, and where: `x` itself unless it is a view.
    fn base(&self, x: NodeId) -> (NodeId, usize) {
        let mut views = Vec::new();
        let mut base = x;
        loop {
            let node = self.graph.node(base);
            if !matches!(node.op, Op::Reshape(_) | Op::Permute(_) | Op::Slice(_)) {
                break;
            }
            views.push(node);
            base = self.root(node.inputs[0]);
        }
        let same_place = match (self.site(base), self.site(x)) {
            (Site::Leaf(at) | Site::At(at), Site::At(here)) => at == here,
            _ => false,
        };
        let layout = views.iter().rev().try_fold(Layout::contiguous(&self.graph.ty(base).shape), |layout, view| {
            match &view.op {
                Op::Reshape(op) => layout.reshape(&op.shape),
                Op::Permute(op) => Some(layout.permute(&op.dims)),
                Op::Slice(op) => Some(layout.slice(&op.starts, &op.sizes, &op.steps)),
                _ => unreachable!("only these are views"),
            }
        });
        match layout {
            Some(layout) if same_place && layout.is_contiguous() => (base, layout.offset),
            _ => (x, 0),
        }
    }

    /// Has the value of a node leave its group.
    fn produce(&mut self, x: NodeId) -> usize {
        if let Some(&value) = self.produced.get(&x) {
            return value;
        }
        let value = self.new_value();
        self.produced.insert(x, value);
        let group = self.group_of[x.index()];
        self.add(group, x);
        self.groups[group].outputs.push(x);
        value
    }

    /// The value of an output of the graph.
    fn output(&mut self, id: NodeId) -> usize {
        let x = self.root(id);
        let device = match self.site(id) {
            Site::At(device) | Site::Leaf(device) => device,
            Site::Free | Site::Number => self.home,
        };
        if self.site(x) == Site::Free {
            let group = self.group(device, 0, 0);
            self.sites[x.index()] = Site::At(device);
            self.group_of[x.index()] = group;
            self.add(group, x);
        }
        self.value_on(x, device, 0)
    }

    fn finish(mut self, donation: &Donation, outputs: Vec<usize>) -> Partition {
        let order = self.order();
        let position: FxHashMap<usize, usize> = order.iter().enumerate().map(|(at, &group)| (group, at)).collect();
        // Which piece reads a value last, by position.
        let mut last = vec![None; self.values];
        for &group in &order {
            for &value in &self.groups[group].inputs {
                last[value] = Some(position[&group]);
            }
        }
        let mut kept = vec![false; self.values];
        outputs.iter().for_each(|&value| kept[value] = true);
        let copies: Vec<Copy> =
            self.copies.list.iter().filter(|c| last[c.result].is_some() || kept[c.result]).copied().collect();
        // The position of the piece that a copy comes after, if it needs one, and the value that is copied.
        let mut copies_at: Vec<Vec<(Copy, usize)>> = vec![Vec::new(); order.len() + 1];
        for copy in copies {
            let (value, made) = match self.leaves.get(&copy.base) {
                Some(&leaf) => (leaf, None),
                None => (self.produced[&copy.base], Some(position[&self.group_of[copy.base.index()]])),
            };
            let after = copy.after.and_then(|group| position.get(&group).copied());
            let at = made.max(after);
            // Whoever overwrites the value must have been handed over later.
            if at.is_some_and(|at| last[value].is_some_and(|last| last <= at)) {
                last[value] = None;
            }
            copies_at[at.map_or(0, |at| at + 1)].push((copy, value));
        }
        let may_donate = |value: usize, at: usize| {
            last[value] == Some(at) && !kept[value] && donation.get(value).copied().unwrap_or(true)
        };
        // A value that is there when the piece of a group has ended.
        let ends: Vec<Option<usize>> =
            self.groups.iter().map(|group| group.outputs.first().map(|x| self.produced[x])).collect();
        let mut pieces = Vec::new();
        let mut copy_pieces = |at: usize, pieces: &mut Vec<Piece>| {
            for (copy, value) in std::mem::take(&mut copies_at[at]) {
                let Copy { node, offset, to, result, after, .. } = copy;
                let (after, ty) = (after.and_then(|group| ends[group]), self.graph.ty(node).clone());
                pieces.push(Piece::Copy { value, offset, to, result, ty, after });
            }
        };
        copy_pieces(0, &mut pieces);
        for (at, &group) in order.iter().enumerate() {
            let Group { device, mut graph, local, inputs, outputs, .. } = std::mem::take(&mut self.groups[group]);
            graph.outputs = outputs.iter().map(|x| local[x]).collect();
            let donation = inputs.iter().map(|&value| may_donate(value, at)).collect();
            let outputs = outputs.iter().map(|x| self.produced[x]).collect();
            pieces.push(Piece::Run { device, graph, inputs, donation, outputs });
            copy_pieces(at + 1, &mut pieces);
        }
        Partition { pieces, values: self.values, outputs }
    }
}
