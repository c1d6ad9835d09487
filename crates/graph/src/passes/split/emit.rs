//! Writes every node once for each rank, on the part that the rank has.

use super::choose::{Choice, Way};
use super::exchange::{Exchange, bucket_size};
use super::{Sites, Split, enters, is_pointwise, is_view, read, replicated};
use crate::batch::sub_trees;
use crate::canonical::{Blocking, Blocks};
use crate::dtype::DType;
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::mesh::{Mesh, Placement, Placements};
use crate::op::Op;
use crate::ops::{Barrier, Element, Input, PartOf};
use crate::passes::work::takes_little;
use crate::region::Region;
use crate::rule::{Factor, Kind};
use crate::shape::Type;
use rustc_hash::FxHashMap;
use smallvec::{SmallVec, smallvec};
use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::ops::Range;
use std::rc::Rc;

/// Where the value of a node of the old graph is.
#[derive(Clone)]
pub(super) enum Held<'a> {
    /// Nowhere: it is computed wherever it is needed.
    Anywhere,
    /// A number that every device has.
    Number(NodeId),
    /// On one device.
    On(NodeId),
    /// On the ranks of a mesh.
    Spread(Rc<Spread<'a>>),
}

/// A value on a mesh.
pub(super) struct Spread<'a> {
    pub mesh: &'a Mesh,
    pub placements: Placements,
    /// What each rank has.
    pub parts: Vec<Part>,
}

/// What a rank has of a value.
#[derive(Clone)]
pub(super) struct Part {
    pub region: Region,
    /// The value; of a partial one, what the rank has of the sum. Nothing where the rank has nothing to do.
    pub roots: SmallVec<[Root; 1]>,
}

/// The sum of a run of blocks that are the leaves of one sub-tree; 0..1 for a whole value. Of extrema, and of what is read at
/// indices, one block stands for the part that they are of.
#[derive(Clone)]
pub(super) struct Root {
    pub blocks: Range<usize>,
    pub node: NodeId,
}

impl Part {
    pub fn whole(region: Region, node: NodeId) -> Part {
        Part { region, roots: smallvec![Root { blocks: 0..1, node }] }
    }
}

/// A region of a value that a device has, the node that is it, and the bundle of copies that brought it.
type There = (Region, NodeId, u32);

pub(super) struct Emitter<'a> {
    pub graph: &'a Graph,
    pub sites: &'a Sites<'a>,
    pub choices: &'a [Option<Choice>],
    pub new: Graph,
    pub devices: Vec<Option<u32>>,
    /// The microbatch of the rank that each node was written for.
    phases: Vec<usize>,
    /// The microbatch of the rank that is being written.
    phase: usize,
    /// How many nodes there are after each old one.
    ends: Vec<usize>,
    /// The last values of the buckets that are merged.
    pub buckets: Vec<NodeId>,
    /// The value of each old node so far.
    pub held: Vec<Held<'a>>,
    /// Values of old nodes that a device has, merged.
    pub there: FxHashMap<(NodeId, u32), Vec<There>>,
    /// How old nodes are needed by their users.
    pub needs: FxHashMap<NodeId, Vec<Placements>>,
    /// The bundle that copies belong to.
    pub bundle: u32,
    /// Whether copies are those of an input, and may be made again for later users.
    pub is_fleeting: bool,
    pub converted: FxHashMap<(NodeId, Placements), Rc<Spread<'a>>>,
    pub known: FxHashMap<(Node, Option<u32>), NodeId>,
    pub exchanges: Vec<Exchange>,
    /// Bytes that have moved between devices.
    pub moved: usize,
    /// The node whose operands are being brought to it.
    pub user: Option<NodeId>,
}

/// How users need each node.
fn needs(graph: &Graph, choices: &[Option<Choice>]) -> FxHashMap<NodeId, Vec<Placements>> {
    let mut needs: FxHashMap<NodeId, Vec<Placements>> = FxHashMap::default();
    for (node, choice) in graph.nodes.iter().zip(choices) {
        for (x, lies) in read(node).iter().zip(choice.iter().flat_map(|choice| &choice.operands)) {
            let known = needs.entry(*x).or_default();
            if !known.contains(lies) {
                known.push(lies.clone());
            }
        }
    }
    needs
}

/// The microbatch that each node is computed with: its own, unless an operand is of a later one. What takes little work
/// belongs to the first, so that counts of the whole batch are there when its microbatches need them.
fn phases(graph: &Graph, own: Vec<usize>) -> Vec<usize> {
    if own.iter().all(|&phase| phase == 0) {
        return own;
    }
    let count = own.iter().max().map_or(1, |last| last + 1);
    let little = takes_little(graph, &graph.ids().collect::<Vec<_>>(), count as u64);
    let mut phases = own;
    for id in graph.ids().map(NodeId::index) {
        let before = graph.nodes[id].inputs.iter().map(|x| phases[x.index()]).max().unwrap_or(0);
        phases[id] = if little[id] { before } else { before.max(phases[id]) };
    }
    phases
}

impl<'a> Emitter<'a> {
    pub fn new(graph: &'a Graph, sites: &'a Sites<'a>, choices: &'a [Option<Choice>]) -> Self {
        Emitter {
            graph,
            sites,
            choices,
            new: Graph::new(),
            devices: Vec::new(),
            phases: Vec::new(),
            phase: 0,
            ends: Vec::new(),
            buckets: Vec::new(),
            held: Vec::with_capacity(graph.nodes.len()),
            there: FxHashMap::default(),
            needs: needs(graph, choices),
            bundle: 1,
            is_fleeting: false,
            converted: FxHashMap::default(),
            known: FxHashMap::default(),
            exchanges: Vec::new(),
            moved: 0,
            user: None,
        }
    }

    /// Writes the next node of the old graph.
    pub fn node(&mut self, id: NodeId) {
        self.user = Some(id);
        let node = self.graph.node(id);
        let held = match (&node.op, self.sites.mesh(id)) {
            (Op::Input(_), Some(mesh)) => self.leaf(id, mesh),
            (Op::Input(_), None) => {
                let new = self.input(node.ty.clone(), self.sites.of[id.index()]);
                if self.sites.of[id.index()].is_none() { Held::Number(new) } else { Held::On(new) }
            }
            (Op::ToDevice(_), Some(_)) => self.held[node.inputs[0].index()].clone(),
            (Op::Place(place), Some(mesh)) => match &self.held[node.inputs[0].index()] {
                // Brought there when it is needed so; at the end, if the graph gives it away, with all others.
                Held::Spread(spread) if spread.mesh == mesh => Held::Spread(spread.clone()),
                _ => Held::Spread(self.convert(node.inputs[0], mesh, &place.placements)),
            },
            (_, Some(mesh)) => self.on_mesh(id, mesh),
            (_, None) => match self.sites.of[id.index()] {
                None => Held::Anywhere,
                Some(device) => self.on_device(id, device),
            },
        };
        self.held.push(held);
        self.ends.push(self.new.nodes.len());
    }

    pub fn finish(mut self) -> Split {
        self.user = None;
        let graph = self.graph;
        let placed: Vec<Option<(&'a Mesh, Placements)>> =
            graph.outputs.iter().map(|&id| self.output_lies(id)).collect();
        // What must be merged comes first, then all that is only moved, in bundles.
        for (&id, (mesh, lies)) in
            graph.outputs.iter().zip(&placed).filter_map(|(id, placed)| Some((id, placed.as_ref()?)))
        {
            if self.partial(id, mesh, lies).is_some() {
                self.convert(id, mesh, lies);
            }
        }
        let bytes = |id: NodeId| graph.ty(id).bytes();
        let most =
            bucket_size(graph.outputs.iter().zip(&placed).filter(|(_, p)| p.is_some()).map(|(&id, _)| bytes(id)).sum());
        let mut room = 0;
        for (&id, placed) in graph.outputs.iter().zip(&placed) {
            if room == 0 {
                self.bundle += 1;
                room = most;
            }
            room = room.saturating_sub(if placed.is_some() { bytes(id) } else { 0 });
            let Some((mesh, lies)) = placed else {
                let node = match &self.held[id.index()] {
                    Held::On(node) | Held::Number(node) => *node,
                    _ => self.anywhere(id, &Region::whole(&graph.ty(id).shape)),
                };
                self.new.outputs.push(node);
                continue;
            };
            let spread = self.convert_one(id, mesh, lies, 0);
            for rank in mesh.stored(&graph.ty(id).shape, lies) {
                self.new.outputs.push(spread.parts[rank].roots[0].node);
            }
        }
        let outputs = placed.into_iter().map(|placed| Some(placed?.1)).collect();
        let phases = self.all_phases();
        Split { graph: self.new, devices: self.devices, phases, outputs, exchanges: self.exchanges }
    }

    /// The microbatches of the nodes; the last of them in parts that end with the buckets, so that the first buckets are
    /// merged, and need no memory any more, while what the others need is computed.
    fn all_phases(&mut self) -> Vec<usize> {
        let phases = phases(&self.new, std::mem::take(&mut self.phases));
        let last = phases.iter().copied().max().unwrap_or(0);
        let mut cuts: Vec<usize> = self.buckets.iter().map(|id| self.ends[id.index()]).collect();
        cuts.sort_unstable();
        cuts.pop();
        let mut parts = phases;
        for at in (0..parts.len()).filter(|_| !cuts.is_empty()) {
            let node = &self.new.nodes[at];
            if parts[at] == last {
                // Elementwise work (the mask of an activation) belongs to what it works on.
                let before = node.inputs.iter().map(|x| parts[x.index()]).max().unwrap_or(0);
                let follows = self.devices[at].is_none() || is_pointwise(node) || is_view(node);
                let own = if follows { last } else { last + cuts.partition_point(|&cut| cut <= at) };
                parts[at] = own.max(before);
            }
        }
        parts
    }

    /// How an output lies on its mesh, if it is on one.
    fn output_lies(&self, id: NodeId) -> Option<(&'a Mesh, Placements)> {
        let mesh = self.sites.mesh(id)?;
        let placements = match (&self.graph.node(id).op, &self.held[id.index()]) {
            (Op::Place(place), _) => place.placements.clone(),
            (_, Held::Spread(spread)) if spread.mesh == mesh => {
                let merged = |p: &Placement| if p.is_partial() { Placement::Replicated } else { *p };
                spread.placements.iter().map(merged).collect()
            }
            _ => replicated(mesh),
        };
        Some((mesh, placements))
    }

    /// Adds a node on a device, unless it is there already.
    pub fn add(&mut self, op: impl Into<Op>, inputs: &[NodeId], device: Option<u32>) -> NodeId {
        let op = op.into();
        let types: SmallVec<[&Type; 3]> = inputs.iter().map(|&x| self.new.ty(x)).collect();
        let ty = op.operation().infer(&types).unwrap_or_else(|e| panic!("illegal node of a rank: {e}"));
        drop(types);
        let node = Node { op, inputs: Operands::from_slice(inputs), ty };
        match self.known.entry((node, device)) {
            Occupied(same) => *same.get(),
            Vacant(new) => {
                let node = new.key().0.clone();
                new.insert(NodeId(self.new.nodes.len() as u32));
                self.push(node, device)
            }
        }
    }

    fn push(&mut self, node: Node, device: Option<u32>) -> NodeId {
        self.new.nodes.push(node);
        self.devices.push(device);
        self.phases.push(if device.is_some() { self.phase } else { 0 });
        NodeId(self.new.nodes.len() as u32 - 1)
    }

    fn input(&mut self, ty: Type, device: Option<u32>) -> NodeId {
        self.push(Node { op: Input { ty: ty.clone() }.into(), inputs: Operands::new(), ty }, device)
    }

    /// An input on a mesh: one for each part that is stored.
    fn leaf(&mut self, id: NodeId, mesh: &'a Mesh) -> Held<'a> {
        let ty = self.graph.ty(id).clone();
        let placements = self.sites.leaves[&id].clone();
        let stored: Vec<(u32, Region, NodeId)> = mesh
            .stored(&ty.shape, &placements)
            .into_iter()
            .map(|rank| {
                let region = mesh.region(rank, &ty.shape, &placements);
                let device = mesh.devices[rank];
                let node = self.input(Type { dtype: ty.dtype, shape: region.shape() }, Some(device));
                self.there.entry((id, device)).or_default().push((region.clone(), node, 0));
                (device, region, node)
            })
            .collect();
        let part = |rank: usize| {
            let region = mesh.region(rank, &ty.shape, &placements);
            let found = stored.iter().find(|(device, other, _)| *device == mesh.devices[rank] && *other == region);
            match found {
                Some(&(_, _, node)) => Part::whole(region, node),
                None => Part { region, roots: SmallVec::new() },
            }
        };
        let parts = (0..mesh.size()).map(part).collect();
        Held::Spread(Rc::new(Spread { mesh, placements, parts }))
    }

    fn on_device(&mut self, id: NodeId, device: u32) -> Held<'a> {
        let node = self.graph.node(id);
        if enters(self.graph, id) {
            return Held::On(self.fetch_whole(node.inputs[0], device));
        }
        let inputs: Operands = node.inputs.iter().map(|&x| self.fetch_whole(x, device)).collect();
        Held::On(self.add(node.op.clone(), &inputs, Some(device)))
    }

    fn fetch_whole(&mut self, x: NodeId, device: u32) -> NodeId {
        let before = self.moved;
        let node = self.fetch(x, &Region::whole(&self.graph.ty(x).shape), device);
        self.note_gathering(x, before);
        node
    }

    /// A region of a value that is computed wherever it is needed.
    pub fn anywhere(&mut self, id: NodeId, region: &Region) -> NodeId {
        let node = self.graph.node(id);
        if let Held::Number(number) = self.held[id.index()] {
            return number;
        }
        if let Some(operands) = self.operands_of(node, region) {
            let inputs: Operands = node.inputs.iter().zip(&operands).map(|(&x, r)| self.anywhere(x, r)).collect();
            let op = node.op.of_region(&node.ty.shape, region);
            if self.gives(&op, &inputs, region) {
                return self.add(op, &inputs, None);
            }
        }
        let whole = Region::whole(&node.ty.shape);
        let inputs: Operands =
            node.inputs.iter().map(|&x| self.anywhere(x, &Region::whole(&self.graph.ty(x).shape))).collect();
        let value = self.add(node.op.clone(), &inputs, None);
        self.slice(value, &whole, region)
    }

    /// The regions of the operands that a region of a node's value is computed from, if its rule allows that.
    fn operands_of(&self, node: &Node, region: &Region) -> Option<Vec<Region>> {
        let types: SmallVec<[&Type; 3]> = node.inputs.iter().map(|&x| self.graph.ty(x)).collect();
        let rule = node.op.operation().rule(&types, &node.ty);
        let mut operands: Vec<Region> = types.iter().map(|ty| Region::whole(&ty.shape)).collect();
        for dim in (0..node.ty.shape.rank()).filter(|&d| region.sizes[d] != node.ty.shape[d]) {
            let factor = rule.factors.iter().find(|f| f.kind == Kind::Mapped && f.output == Some(dim))?;
            let size = factor.size(&types, &node.ty);
            let step = Factor::step(size, node.ty.shape[dim]);
            let range = region.range(dim);
            if !range.start.is_multiple_of(step) || !range.end.is_multiple_of(step) {
                return None;
            }
            let range = range.start / step..range.end / step;
            for (i, d) in factor.inputs.iter().enumerate() {
                if let Some(d) = *d {
                    let step = Factor::step(size, types[i].shape[d]);
                    operands[i].set(d, range.start * step..range.end * step);
                }
            }
        }
        Some(operands)
    }

    fn on_mesh(&mut self, id: NodeId, mesh: &'a Mesh) -> Held<'a> {
        let choice = self.choices[id.index()].as_ref().expect("a node on a mesh");
        let node = self.graph.node(id);
        let operands: Vec<Rc<Spread<'a>>> =
            read(node).iter().zip(&choice.operands).map(|(&x, lies)| self.convert(x, mesh, lies)).collect();
        let part = |rank: usize| {
            self.phase = mesh.phase(rank);
            self.part(id, choice, mesh, &operands, rank)
        };
        let parts = (0..mesh.size()).map(part).collect();
        self.phase = 0;
        Held::Spread(Rc::new(Spread { mesh, placements: choice.placements.clone(), parts }))
    }

    /// What a rank computes of a node.
    fn part(&mut self, id: NodeId, choice: &Choice, mesh: &Mesh, operands: &[Rc<Spread>], rank: usize) -> Part {
        let node = self.graph.node(id);
        let device = Some(mesh.devices[rank]);
        let region = mesh.region(rank, &node.ty.shape, &choice.placements);
        let types: SmallVec<[&Type; 3]> = node.inputs.iter().map(|&x| self.graph.ty(x)).collect();
        let cut: SmallVec<[usize; 3]> = choice
            .ways
            .iter()
            .filter_map(|way| if let Way::Factor { factor, .. } = way { Some(*factor) } else { None })
            .collect();
        let ranges = |factor: usize| {
            let size = choice.rule.factors[factor].size(&types, &node.ty);
            let cuts = |axis: usize| match choice.ways[axis] {
                Way::Factor { factor: other, unit } if other == factor => Some(unit),
                _ => None,
            };
            mesh.range(rank, size, cuts)
        };
        let is_idle = cut.iter().any(|&factor| ranges(factor).is_empty())
            || operands.iter().any(|operand| operand.parts[rank].roots.is_empty());
        if is_idle {
            return Part { region, roots: SmallVec::new() };
        }
        if let Op::Barrier(_) = node.op {
            let x = operands[0].parts[rank].roots[0].node;
            return Part::whole(region, self.behind(x, node.inputs[1], mesh, rank));
        }
        let op = node.op.of_region(&node.ty.shape, &region);
        if choice.ways.iter().any(|way| matches!(way, Way::Partial(_))) {
            let roots = operands[0].parts[rank].roots.iter();
            let roots = roots.map(|Root { blocks, node }| (blocks.clone(), *node)).collect::<Vec<_>>();
            let mut through = |(blocks, x)| Root { blocks, node: self.add(op.clone(), &[x], device) };
            return Part { region, roots: roots.into_iter().map(&mut through).collect() };
        }
        let inputs: Operands = operands.iter().map(|operand| operand.parts[rank].roots[0].node).collect();
        let merged = cut.iter().copied().find(|&factor| choice.rule.factors[factor].output.is_none());
        let Some(merged) = merged else {
            let new = if self.gives(&op, &inputs, &region) {
                self.add(op, &inputs, device)
            } else {
                let whole = self.add(node.op.clone(), &inputs, device);
                self.slice(whole, &Region::whole(&node.ty.shape), &region)
            };
            return Part::whole(region, new);
        };
        let factor = &choice.rule.factors[merged];
        let size = factor.size(&types, &node.ty);
        let range = ranges(merged);
        if !matches!(factor.kind, Kind::Sum | Kind::Prod) {
            // Extrema are cut along any number of dimensions: ranks with the same part of all of them have the same one. Of
            // what is read at indices one rank has each element.
            let mut op = op;
            if let (Kind::Picked, Some(part_of)) = (factor.kind, op.part_of_mut()) {
                *part_of = Some(PartOf { start: range.start, size });
            }
            let merged = cut.iter().filter(|&&factor| choice.rule.factors[factor].output.is_none());
            let number = merged.fold(0, |number, &factor| {
                number * (choice.rule.factors[factor].size(&types, &node.ty) + 1) + ranges(factor).start
            });
            let node = self.add(op, &inputs, device);
            return Part { region, roots: smallvec![Root { blocks: number..number + 1, node }] };
        }
        let unit = factor.granularity.unwrap_or(1);
        let blocks = Blocks { outer: size, inner: 1, unit };
        let mut roots = SmallVec::new();
        for run in sub_trees(&blocks, range.start / unit..range.end.div_ceil(unit)) {
            let narrowed = inputs.iter().enumerate().map(|(i, &x)| {
                let x = match factor.inputs.get(i).copied().flatten() {
                    Some(dim) => {
                        let step = Factor::step(size, types[i].shape[dim]);
                        let whole = Region::whole(&self.new.ty(x).shape);
                        let mut part = whole.clone();
                        part.set(dim, (run.start - range.start) * step..(run.end - range.start) * step);
                        self.slice(x, &whole, &part)
                    }
                    None => x,
                };
                self.wide(x)
            });
            let inputs: Operands = narrowed.collect();
            let mut op = op.clone();
            if let Some(blocking) = op.blocking_mut() {
                *blocking = Blocking::Every(unit);
            }
            let node = self.add(op, &inputs, device);
            roots.push(Root { blocks: run.start / unit..run.end.div_ceil(unit), node });
        }
        Part { region, roots }
    }

    /// A rank's part of a value, behind what the rank has of another one: nothing of that moves.
    fn behind(&mut self, x: NodeId, waits_for: NodeId, mesh: &Mesh, rank: usize) -> NodeId {
        let last = match &self.held[waits_for.index()] {
            Held::Spread(spread) if spread.mesh == mesh => spread.parts[rank].roots.last().map(|root| root.node),
            _ => None,
        };
        last.map_or(x, |last| self.add(Barrier, &[x, last], Some(mesh.devices[rank])))
    }

    /// Whether the operation gives a value of the region's shape: it can be computed for a region alone.
    fn gives(&self, op: &Op, inputs: &[NodeId], region: &Region) -> bool {
        let types: SmallVec<[&Type; 3]> = inputs.iter().map(|&x| self.new.ty(x)).collect();
        op.operation().infer(&types).is_ok_and(|ty| ty.shape == region.shape())
    }

    /// A summand in the type in which sums are accumulated: they are rounded once, when all parts are added.
    fn wide(&mut self, x: NodeId) -> NodeId {
        match self.new.ty(x).dtype {
            DType::F16 | DType::BF16 => self.add(Element::Cast(DType::F32), &[x], self.devices[x.index()]),
            _ => x,
        }
    }
}
