//! From a graph whose nodes are on several devices to pieces that run on one each, and the copies between them.
//!
//! A piece starts when all its inputs are there, so nodes that wait for different copies must not share one: a node's
//! piece is its device and the set of all copies that it depends on, directly or not. The sets grow along every edge
//! between pieces. (Inside a device an edge between pieces leads to a larger set by definition of a piece; a copy is
//! in the set of whoever reads it, and not in that of the value that is copied.) So no pieces can wait for each other
//! in a circle, and a copy starts, and what needs it follows, as soon as its value is there. Copies of one
//! [bundle](crate::ops::ToDevice) count as one: what needs them is one piece, as if the last of them was all of them.
//!
//! Nodes without a device (constants, positions, random values of a key) are computed wherever they are needed; views
//! are taken anew in each piece that reads them. Neither costs a copy, and neither changes a bit.

use crate::graph::{Graph, Node, NodeId};
use crate::op::Op;
use crate::ops::Input;
use crate::program::Donation;
use crate::shape::{Layout, Type};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// What runs on one device, or a copy; values are numbered as in [`crate::plan::Plan`].
#[derive(Debug)]
pub enum Piece {
    /// A graph for one device.
    Run {
        /// The device.
        device: u32,
        /// The nodes.
        graph: Graph,
        /// The value of each input of the graph.
        inputs: Vec<usize>,
        /// The inputs that may be overwritten.
        donation: Donation,
        /// The value of each output of the graph.
        outputs: Vec<usize>,
    },
    /// A copy to another device.
    Copy {
        /// What is copied, or a part of it.
        value: usize,
        /// The first element that is copied.
        offset: usize,
        /// Where to.
        to: u32,
        /// The copy.
        result: usize,
        /// Its type.
        ty: Type,
    },
}

/// Pieces in the order of hand-over, each after those that it needs.
#[derive(Debug)]
pub struct Partition {
    /// The pieces.
    pub pieces: Vec<Piece>,
    /// Number of values; the first are the graph's inputs.
    pub values: usize,
    /// The value of each output of the graph.
    pub outputs: Vec<usize>,
}

/// Speeds by which pieces are put in order; only their ratio matters, and only for the order.
const FLOPS_PER_BYTE: u64 = 8;

/// Divides a graph. `devices` says where each node is computed, and each input lies; nodes with `None` are computed
/// wherever they are needed, at `home` if nobody needs them. `donation` says which inputs may be overwritten.
///
/// `phases` are parts of the work that are done one after the other, such as microbatches: pieces are of one of them, and
/// earlier ones are handed over first. A node's phase is at least that of its operands; without any, all is one phase.
pub fn partition(
    graph: &Graph,
    devices: &[Option<u32>],
    phases: &[usize],
    home: u32,
    donation: &Donation,
) -> Partition {
    let mut sites = devices.iter().flatten();
    let first = sites.next().copied().unwrap_or(home);
    let in_one = phases.iter().all(|&phase| phase == 0);
    if in_one
        && sites.all(|&device| device == first)
        && !graph.nodes.iter().any(|node| matches!(node.op, Op::ToDevice(_)))
    {
        return whole(graph, first, donation);
    }
    Division::new(graph, devices, phases, home).divide(donation)
}

/// The only piece of a graph on one device.
fn whole(graph: &Graph, device: u32, donation: &Donation) -> Partition {
    let leaves = graph.nodes.iter().filter(|node| matches!(node.op, Op::Input(_))).count();
    let outputs: Vec<usize> = (leaves..leaves + graph.outputs.len()).collect();
    let piece = Piece::Run {
        device,
        graph: graph.clone(),
        inputs: (0..leaves).collect(),
        donation: donation.clone(),
        outputs: outputs.clone(),
    };
    Partition { pieces: vec![piece], values: leaves + outputs.len(), outputs }
}

/// A set of copies, interned.
type SetId = usize;

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

struct Division<'a> {
    graph: &'a Graph,
    home: u32,
    phases: &'a [usize],
    /// The node that a node merely passes on: the operand of a passage between devices.
    roots: Vec<NodeId>,
    sites: Vec<Site>,
    /// The copies that the node depends on, for nodes that are computed on a device.
    sets: Vec<SetId>,
    copies: Copies,
    /// The bundle that the copy of a root to a device belongs to.
    bundles: HashMap<(NodeId, u32), u32>,
    groups: Vec<Group>,
    by_key: HashMap<(u32, SetId, usize), usize>,
    /// The group of each node that is computed on a device.
    group_of: Vec<usize>,
    /// The value of each root that leaves its group, and of each copy.
    values: usize,
    produced: HashMap<NodeId, usize>,
    leaves: HashMap<NodeId, usize>,
}

/// A copy of a node's value, whose elements follow each other in the value of another node from `offset` on.
#[derive(Clone, Copy)]
struct Copy {
    node: NodeId,
    base: NodeId,
    offset: usize,
    to: u32,
    result: usize,
}

/// The copies between devices and sets of them.
#[derive(Default)]
struct Copies {
    /// What is copied where, and the value of the copy.
    list: Vec<Copy>,
    known: HashMap<(NodeId, u32), usize>,
    /// The member of sets that stands for each copy: one for all of a bundle.
    members: Vec<usize>,
    bundles: HashMap<(u32, u32), usize>,
    count: usize,
    /// A bit for each copy, up to the last one that is in the set.
    sets: Vec<Rc<[u64]>>,
    set_ids: HashMap<Rc<[u64]>, SetId>,
    unions: HashMap<(SetId, SetId), SetId>,
}

impl Copies {
    fn set(&mut self, members: Rc<[u64]>) -> SetId {
        if let Some(&id) = self.set_ids.get(&members) {
            return id;
        }
        let id = self.sets.len();
        self.sets.push(members.clone());
        self.set_ids.insert(members, id);
        id
    }

    fn size(&self, set: SetId) -> u32 {
        self.sets[set].iter().map(|word| word.count_ones()).sum()
    }

    /// A set with one more member.
    fn with(&mut self, set: SetId, member: usize) -> SetId {
        let (word, bit) = (member / 64, 1 << (member % 64));
        let mut members = self.sets[set].to_vec();
        members.resize(members.len().max(word + 1), 0);
        members[word] |= bit;
        self.set(members.into())
    }

    fn union(&mut self, a: SetId, b: SetId) -> SetId {
        if a == b {
            return a;
        }
        let key = (a.min(b), a.max(b));
        if let Some(&id) = self.unions.get(&key) {
            return id;
        }
        let (long, short) = if self.sets[a].len() < self.sets[b].len() { (b, a) } else { (a, b) };
        let mut members = self.sets[long].to_vec();
        members.iter_mut().zip(&*self.sets[short]).for_each(|(word, other)| *word |= other);
        let id = self.set(members.into());
        self.unions.insert(key, id);
        id
    }
}

/// A piece in the making.
#[derive(Default)]
struct Group {
    device: u32,
    set: SetId,
    phase: usize,
    graph: Graph,
    /// Where nodes of the whole graph are in the piece's.
    local: HashMap<NodeId, NodeId>,
    inputs: Vec<usize>,
    /// Nodes of the whole graph whose values leave the piece.
    outputs: Vec<NodeId>,
    cost: u64,
    first: usize,
}

impl<'a> Division<'a> {
    fn new(graph: &'a Graph, devices: &[Option<u32>], phases: &'a [usize], home: u32) -> Self {
        let mut roots: Vec<NodeId> = graph.ids().collect();
        let mut sites = Vec::with_capacity(graph.nodes.len());
        let mut leaves = HashMap::new();
        let mut bundles = HashMap::new();
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
                bundles.entry((roots[id.index()], op.to)).or_insert(op.bundle);
            }
            sites.push(site);
        }
        let mut copies = Copies::default();
        copies.set(Rc::new([]));
        Division {
            graph,
            home,
            phases,
            roots,
            sites,
            sets: vec![0; graph.nodes.len()],
            copies,
            bundles,
            groups: Vec::new(),
            by_key: HashMap::new(),
            group_of: vec![usize::MAX; graph.nodes.len()],
            values: leaves.len(),
            produced: HashMap::new(),
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
        matches!(self.graph.node(id).op, Reshape(_) | Permute(_) | Expand(_) | Slice(_) | Const(_) | Iota(_))
    }

    fn new_value(&mut self) -> usize {
        self.values += 1;
        self.values - 1
    }

    fn divide(mut self, donation: &Donation) -> Partition {
        let nodes: Vec<NodeId> = self.graph.ids().filter(|&id| self.root(id) == id).collect();
        for &id in &nodes {
            if let Site::At(device) = self.site(id) {
                let set = self.set_of(id, device);
                self.sets[id.index()] = set;
                self.group_of[id.index()] = self.group(device, set, self.phase(id));
            }
        }
        self.sink(&nodes);
        // Groups are filled in the order of nodes, so that operands of one group come before their uses.
        for &id in &nodes {
            if let Site::At(_) = self.site(id) {
                let group = self.group_of[id.index()];
                self.add(group, id);
            }
        }
        let outputs = self.graph.outputs.clone().into_iter().map(|id| self.output(id)).collect();
        self.finish(donation, outputs)
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
            if let Users::One(group) = users[id.index()]
                && self.groups[group].device == device
                && of_inputs[id.index()]
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
        let mut seen = HashSet::new();
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
                Site::Leaf(at) => {
                    if at == device {
                        0
                    } else {
                        self.arrival(x, device, 0)
                    }
                }
                Site::At(at) => {
                    let before = self.sets[x.index()];
                    if at == device {
                        before
                    } else {
                        let (base, _) = self.base(x);
                        self.arrival(x, device, self.sets[base.index()])
                    }
                }
            };
            set = self.copies.union(set, own);
        }
        set
    }

    /// The set of who reads the copy of a value on `device`.
    fn arrival(&mut self, x: NodeId, device: u32, before: SetId) -> SetId {
        let copy = self.copy(x, device);
        self.copies.with(before, self.copies.members[copy])
    }

    /// The copy of a value to a device.
    fn copy(&mut self, x: NodeId, device: u32) -> usize {
        if let Some(&copy) = self.copies.known.get(&(x, device)) {
            return copy;
        }
        let value = self.new_value();
        let (base, offset) = self.base(x);
        let copy = self.copies.list.len();
        let copies = &mut self.copies;
        let bundle = self.bundles.get(&(x, device)).copied().unwrap_or(0);
        let member = match copies.bundles.get(&(device, bundle)) {
            Some(&member) if bundle != 0 => member,
            _ => {
                copies.bundles.insert((device, bundle), copies.count);
                copies.count += 1;
                copies.count - 1
            }
        };
        copies.members.push(member);
        copies.list.push(Copy { node: x, base, offset, to: device, result: value });
        self.copies.known.insert((x, device), copy);
        copy
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
            let inputs = inputs.into_iter().map(|x| self.operand(group, x)).collect();
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
                self.group_of[x.index()] == group || (device == self.groups[group].device && self.is_light(x))
            }
            Site::Number | Site::Leaf(_) => false,
        }
    }

    /// The value in a group that needs it: computed there, or an input.
    fn operand(&mut self, group: usize, x: NodeId) -> NodeId {
        if let Some(&local) = self.groups[group].local.get(&x) {
            return local;
        }
        let device = self.groups[group].device;
        let value = self.value_on(x, device);
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
    fn value_on(&mut self, x: NodeId, device: u32) -> usize {
        match self.site(x) {
            Site::Number => self.leaves[&x],
            Site::Leaf(at) if at == device => self.leaves[&x],
            Site::At(at) if at == device => self.produce(x),
            Site::Leaf(_) | Site::At(_) => {
                let copy = self.copy(x, device);
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
        self.value_on(x, device)
    }

    fn finish(mut self, donation: &Donation, outputs: Vec<usize>) -> Partition {
        let order = self.order();
        let position: HashMap<usize, usize> = order.iter().enumerate().map(|(at, &group)| (group, at)).collect();
        // Which piece reads a value last, by position.
        let mut last = vec![None; self.values];
        for &group in &order {
            for &value in &self.groups[group].inputs {
                last[value] = Some(position[&group]);
            }
        }
        let mut kept = vec![false; self.values];
        outputs.iter().for_each(|&value| kept[value] = true);
        let may_donate = |value: usize, at: usize| {
            last[value] == Some(at) && !kept[value] && donation.get(value).copied().unwrap_or(true)
        };
        let mut pieces = Vec::new();
        let mut copies_of: HashMap<NodeId, Vec<Copy>> = HashMap::new();
        for copy in &self.copies.list {
            match self.leaves.get(&copy.base) {
                Some(&value) => pieces.push(self.copy_piece(copy, value)),
                None => copies_of.entry(copy.base).or_default().push(*copy),
            }
        }
        for (at, &group) in order.iter().enumerate() {
            let Group { device, mut graph, local, inputs, outputs, .. } = std::mem::take(&mut self.groups[group]);
            graph.outputs = outputs.iter().map(|x| local[x]).collect();
            let donation = inputs.iter().map(|&value| may_donate(value, at)).collect();
            let values = outputs.iter().map(|x| self.produced[x]).collect();
            pieces.push(Piece::Run { device, graph, inputs, donation, outputs: values });
            for x in outputs {
                let copies = copies_of.get(&x).into_iter().flatten();
                pieces.extend(copies.map(|copy| self.copy_piece(copy, self.produced[&x])));
            }
        }
        Partition { pieces, values: self.values, outputs }
    }

    fn copy_piece(&self, copy: &Copy, value: usize) -> Piece {
        let Copy { node, offset, to, result, .. } = *copy;
        Piece::Copy { value, offset, to, result, ty: self.graph.ty(node).clone() }
    }

    /// The groups, those that the end waits longest for first (the upward rank of list scheduling: Topcuoglu, Hariri and
    /// Wu, 2002). A group comes after those that it needs, for these have more behind them.
    fn order(&self) -> Vec<usize> {
        // A group without results has nothing but views and numbers that others make for themselves.
        let mut by_size: Vec<usize> = (0..self.groups.len()).filter(|&g| !self.groups[g].outputs.is_empty()).collect();
        by_size.sort_by_cached_key(|&g| {
            (self.copies.size(self.groups[g].set), self.groups[g].phase, self.groups[g].first)
        });
        let mut producer: HashMap<usize, (usize, u64)> = HashMap::new();
        for &g in &by_size {
            for x in &self.groups[g].outputs {
                producer.insert(self.produced[x], (g, 0));
            }
        }
        for &Copy { node, base, result, .. } in &self.copies.list {
            if let Some(&value) = self.produced.get(&base) {
                let way = FLOPS_PER_BYTE * self.graph.ty(node).bytes() as u64;
                producer.insert(result, (producer[&value].0, way));
            }
        }
        let mut rank: HashMap<usize, u64> = HashMap::new();
        for &g in by_size.iter().rev() {
            let own = rank.get(&g).copied().unwrap_or(0) + self.groups[g].cost + 1;
            rank.insert(g, own);
            for value in &self.groups[g].inputs {
                if let Some(&(before, way)) = producer.get(value) {
                    let behind = rank.entry(before).or_insert(0);
                    *behind = (*behind).max(own + way);
                }
            }
        }
        let mut order = by_size;
        order.sort_by_key(|&g| (self.groups[g].phase, std::cmp::Reverse(rank[&g]), self.groups[g].first));
        order
    }
}
