//! Brings values to where they are needed: the collectives, as copies between devices and additions.

use super::describe::CutReduction;
use super::emit::{Emitter, Held, Part, Root, Spread};
use crate::canonical::TreeSum;
use crate::graph::NodeId;
use crate::mesh::{Merge, Mesh, Placement, Placements};
use crate::op::Op;
use crate::ops::{BinaryOp, Concat, Element, Slice, ToDevice};
use crate::region::Region;
use crate::shape::{Dims, Type};
use smallvec::SmallVec;
use std::fmt;
use std::rc::Rc;

/// What moves a value along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Collective {
    /// Everyone gets everyone's sum, maximum or minimum.
    AllReduce,
    /// Everyone gets a part of it.
    ReduceScatter,
    /// Everyone gets everyone's part.
    AllGather,
    /// Everyone gets other parts.
    AllToAll,
    /// Parts of a value that is elsewhere.
    Scatter,
    /// All of a value that is elsewhere.
    Broadcast,
    /// The parts leave the mesh.
    Gather,
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Collective::AllReduce => "all_reduce",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::AllGather => "all_gather",
            Collective::AllToAll => "all_to_all",
            Collective::Scatter => "scatter",
            Collective::Broadcast => "broadcast",
            Collective::Gather => "gather",
        })
    }
}

/// A value that moves between devices.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The value, in the graph that was split.
    pub value: NodeId,
    /// Its type.
    pub ty: Type,
    /// The operation that made it.
    pub made_by: &'static str,
    /// The reductions whose parts it is.
    pub reductions: Vec<CutReduction>,
    /// The node that needs it so; none for outputs of the graph.
    pub user: Option<NodeId>,
    /// The operation of that node.
    pub used_by: Option<&'static str>,
    /// What moves it, with the axes.
    pub moves: Vec<(Collective, String)>,
    /// How it lies before, if it is on the mesh.
    pub from: Option<Placements>,
    /// How it lies afterwards, if it stays there.
    pub to: Option<Placements>,
    /// Bytes that devices receive from others, all together.
    pub bytes: usize,
}

/// Elements below which a sum is made by one rank for all: fewer messages count for more than fewer bytes.
const SMALL: usize = 4096;

/// Values are merged in buckets, so that the first of them are merged, and their memory is free, while the last are
/// computed: a part of all that is there, at least enough to make messages worth sending, and at most what PyTorch's
/// DistributedDataParallel takes.
const BUCKETS: usize = 8;
const SMALLEST_BUCKET: usize = 1 << 20;
const LARGEST_BUCKET: usize = 25 << 20;

/// How many of so many bytes make a bucket, which ends with the value that reaches them.
pub(super) fn bucket_size(all: usize) -> usize {
    (all / BUCKETS).clamp(SMALLEST_BUCKET, LARGEST_BUCKET)
}

/// A partial value that will be merged, and how it will lie.
type Merging<'a> = (NodeId, Rc<Spread<'a>>, Placements);

impl<'a> Emitter<'a> {
    /// A value as `to` says. Partial values that are there by now, and that will be needed in the same way, are merged with
    /// it: they wait for each other's messages instead of each for its own.
    pub fn convert(&mut self, x: NodeId, mesh: &'a Mesh, to: &Placements) -> Rc<Spread<'a>> {
        if let Some(known) = self.known_conversion(x, mesh, to) {
            return known;
        }
        let bucket = self.bucket(x, mesh, to);
        self.buckets.extend(bucket.last().map(|(last, ..)| *last));
        self.bundle += 1;
        let mut prepared = Vec::new();
        for (x, from, to) in &bucket {
            let before = self.moved;
            self.prepare(*x, from, to);
            prepared.push(self.moved - before);
        }
        self.bundle += 1;
        for ((x, _, to), prepared) in bucket.iter().zip(prepared) {
            self.convert_one(*x, mesh, to, prepared);
        }
        self.convert_one(x, mesh, to, 0)
    }

    fn known_conversion(&self, x: NodeId, mesh: &Mesh, to: &Placements) -> Option<Rc<Spread<'a>>> {
        let known = self.converted.get(&(x, to.clone()))?;
        (known.mesh == mesh).then(|| known.clone())
    }

    /// The partial values that are merged together with `x`, which is one of them; none if it is not partial.
    fn bucket(&self, x: NodeId, mesh: &'a Mesh, to: &Placements) -> Vec<Merging<'a>> {
        let Some(from) = self.partial(x, mesh, to) else { return Vec::new() };
        let mut bucket = vec![(x, from.clone(), to.clone())];
        let alike = |a: &Placements, b: &Placements| {
            a.iter()
                .zip(b)
                .zip(&from.placements)
                .all(|((a, b), from)| !from.is_partial() || a.cut().is_some() == b.cut().is_some())
        };
        for id in (0..self.held.len() as u32).map(NodeId).filter(|&id| id != x) {
            for need in self.needs.get(&id).into_iter().flatten() {
                if let Some(other) = self.partial(id, mesh, need)
                    && other
                        .placements
                        .iter()
                        .map(|p| p.is_partial())
                        .eq(from.placements.iter().map(|p| p.is_partial()))
                    && alike(need, to)
                    && self.known_conversion(id, mesh, need).is_none()
                {
                    bucket.push((id, other, need.clone()));
                }
            }
        }
        self.limited(bucket)
    }

    /// The part of a bucket that its first value belongs to, when it is filled in the order in which values are made.
    fn limited(&self, bucket: Vec<Merging<'a>>) -> Vec<Merging<'a>> {
        let bytes = |merging: &Merging| self.graph.ty(merging.0).bytes();
        let all: usize = bucket.iter().map(bytes).sum();
        let most = bucket_size(all);
        let first = bucket[0].0;
        let mut bucket = bucket;
        bucket.sort_by_key(|(id, ..)| *id);
        let mut part: Vec<Merging<'a>> = Vec::new();
        let mut size = 0;
        for merging in bucket {
            if size >= most {
                if part.iter().any(|(id, ..)| *id == first) {
                    break;
                }
                part.clear();
                size = 0;
            }
            size += bytes(&merging);
            part.push(merging);
        }
        part
    }

    /// A value that must be merged to lie as `to` says.
    pub fn partial(&self, x: NodeId, mesh: &Mesh, to: &Placements) -> Option<Rc<Spread<'a>>> {
        let Held::Spread(spread) = &self.held[x.index()] else { return None };
        let merges = spread.placements.iter().zip(to).any(|(from, to)| from.is_partial() && !to.is_partial());
        (spread.mesh == mesh && merges).then(|| spread.clone())
    }

    /// A value as `to` says, by the copies of the bundle that is being made; so many bytes have moved for it already.
    pub fn convert_one(&mut self, x: NodeId, mesh: &'a Mesh, to: &Placements, prepared: usize) -> Rc<Spread<'a>> {
        if let Some(known) = self.known_conversion(x, mesh, to) {
            return known;
        }
        let key = (x, to.clone());
        let before = self.moved - prepared;
        let shape = &self.graph.ty(x).shape;
        let spread = match self.held[x.index()].clone() {
            Held::Spread(from) if from.mesh == mesh && lies_so(&from, to, shape) => {
                Rc::new(Spread { mesh, placements: to.clone(), parts: from.parts.clone() })
            }
            held => {
                let part = |rank: usize| {
                    let region = mesh.region(rank, shape, to);
                    if region.is_empty() && shape.numel() > 0 {
                        return Part { region, roots: SmallVec::new() };
                    }
                    let node = self.fetch(x, &region, mesh.devices[rank]);
                    Part::whole(region, node)
                };
                let parts: Vec<Part> = (0..mesh.size()).map(part).collect();
                let from = match &held {
                    Held::Spread(from) if from.mesh == mesh => Some(&from.placements),
                    _ => None,
                };
                self.note(x, from, Some(to), mesh, before);
                Rc::new(Spread { mesh, placements: to.clone(), parts })
            }
        };
        self.converted.insert(key, spread.clone());
        spread
    }

    /// Merges a partial value that all ranks shall have: each rank a part of it, or one rank all of it if it is small. Two
    /// ranks do best to send each other everything.
    fn prepare(&mut self, x: NodeId, from: &Rc<Spread<'a>>, to: &Placements) {
        let mesh = from.mesh;
        let shape = &self.graph.ty(x).shape;
        let axes = 0..mesh.axes.len();
        let merged: Vec<usize> = axes
            .filter(|&a| from.placements[a].is_partial() && to[a] == Placement::Replicated && mesh.spans(a))
            .collect();
        let peers: usize = merged.iter().map(|&axis| mesh.axes[axis].1).product();
        if merged.is_empty() || peers <= 2 {
            return;
        }
        let parts: usize = mesh.axes.iter().zip(to).filter(|(_, p)| p.cut().is_some()).map(|((_, n), _)| n).product();
        let is_free = |dim: &usize| !to.iter().any(|p| p.cut().is_some_and(|cut| cut.0 == *dim));
        let widest = (0..shape.rank()).filter(is_free).max_by_key(|&dim| (shape[dim], std::cmp::Reverse(dim)));
        match widest {
            Some(dim) if shape.numel() / parts >= SMALL && shape[dim] >= peers => {
                let mut between = to.clone();
                merged.iter().for_each(|&axis| between[axis] = Placement::Split { dim, unit: 1 });
                for rank in 0..mesh.size() {
                    let region = mesh.region(rank, shape, &between);
                    if !region.is_empty() {
                        self.fetch(x, &region, mesh.devices[rank]);
                    }
                }
            }
            _ => {
                for rank in (0..mesh.size()).filter(|&rank| merged.iter().all(|&a| mesh.coordinate(rank, a) == 0)) {
                    let region = mesh.region(rank, shape, to);
                    if !region.is_empty() {
                        self.fetch(x, &region, mesh.devices[rank]);
                    }
                }
            }
        }
    }

    /// A region of a value on a device, merged.
    pub fn fetch(&mut self, x: NodeId, region: &Region, device: u32) -> NodeId {
        match self.held[x.index()].clone() {
            Held::Number(node) => node,
            Held::Anywhere => self.anywhere(x, region),
            Held::On(node) => {
                let part = self.slice(node, &Region::whole(&self.graph.ty(x).shape), region);
                self.send(part, device)
            }
            Held::Spread(spread) => {
                let near = self.there.get(&(x, device)).into_iter().flatten();
                let near = near.filter(|(have, ..)| have.intersection(region).as_ref() == Some(region));
                if let Some((have, node, _)) = near.min_by_key(|(have, ..)| have.numel()).cloned() {
                    return self.slice(node, &have, region);
                }
                // Parameters that are stored in parts are gathered for each use, and not kept.
                self.is_fleeting = match &self.graph.node(x).op {
                    Op::Input(_) => true,
                    op if op.is_cast() => matches!(self.graph.node(self.graph.node(x).inputs[0]).op, Op::Input(_)),
                    _ => false,
                };
                let node = self.collect(x, &spread, region, device);
                self.is_fleeting = false;
                self.remember(x, device, region, node);
                node
            }
        }
    }

    fn remember(&mut self, x: NodeId, device: u32, region: &Region, node: NodeId) {
        let list = self.there.entry((x, device)).or_default();
        if !list.iter().any(|(have, ..)| have == region) {
            list.push((region.clone(), node, self.bundle));
        }
    }

    /// A region put together from what the ranks have.
    fn collect(&mut self, x: NodeId, spread: &Spread<'a>, region: &Region, device: u32) -> NodeId {
        if region.is_empty() {
            let Part { region: have, roots } = spread.parts[0].clone();
            let part = self.slice(roots[0].node, &have, region);
            return self.send(part, device);
        }
        let is_partial = spread.placements.iter().any(|p| p.is_partial());
        let pieces = match tiles(&self.sources(x, spread, device, is_partial), region) {
            Some(tiles) => {
                let send = |(have, node, piece): (Region, NodeId, Region)| {
                    let part = self.slice(node, &have, &piece);
                    (piece, self.send(part, device))
                };
                tiles.into_iter().map(send).collect()
            }
            None => {
                let mut regions: Vec<&Region> = Vec::new();
                for part in spread.parts.iter().filter(|part| !part.roots.is_empty()) {
                    if !regions.contains(&&part.region) {
                        regions.push(&part.region);
                    }
                }
                let piece = |have: &Region| {
                    let piece = have.intersection(region)?;
                    let merged = self.merge(x, spread, have, &piece, device);
                    Some((piece, merged))
                };
                regions.into_iter().filter_map(piece).collect()
            }
        };
        self.assemble(region, pieces, device)
    }

    /// Merged parts of a value and their regions, those of the device first, then beginning behind it, so that not
    /// everybody asks the same one. What is brought by the copies that are being made is not there yet.
    fn sources(&self, x: NodeId, spread: &Spread, device: u32, is_partial: bool) -> Vec<(Region, NodeId)> {
        let mesh = spread.mesh;
        let first = mesh.devices.iter().position(|&d| d == device).unwrap_or(0);
        let mut sources = Vec::new();
        for rank in (first..mesh.size()).chain(0..first) {
            if is_partial {
                let there = self.there.get(&(x, mesh.devices[rank])).into_iter().flatten();
                let there = there.filter(|(_, _, bundle)| *bundle < self.bundle);
                sources.extend(there.map(|(have, node, _)| (have.clone(), *node)));
            } else if let Some(root) = spread.parts[rank].roots.first() {
                sources.push((spread.parts[rank].region.clone(), root.node));
            }
        }
        sources
    }

    /// The sum (or maximum, or minimum) of what the ranks have of a region, by the tree of the whole sum. What lies on one
    /// device is added there.
    fn merge(&mut self, x: NodeId, spread: &Spread<'a>, have: &Region, piece: &Region, device: u32) -> NodeId {
        let holders = |this: &Self, root: &Root| this.devices[root.node.index()];
        let mut roots: Vec<Root> = Vec::new();
        for part in spread.parts.iter().filter(|part| part.region == *have) {
            for root in &part.roots {
                match roots.iter_mut().find(|known| known.blocks == root.blocks) {
                    // The same sum on several ranks: one on the device itself is nearest.
                    Some(known) if holders(self, root) == Some(device) => *known = root.clone(),
                    Some(_) => {}
                    None => roots.push(root.clone()),
                }
            }
        }
        roots.sort_by_key(|root| root.blocks.start);
        let op = spread.placements.iter().find_map(|p| match p {
            Placement::Partial(Merge::Sum) => Some(BinaryOp::Add),
            Placement::Partial(Merge::Prod) => Some(BinaryOp::Mul),
            Placement::Partial(Merge::Max) => Some(BinaryOp::Max),
            Placement::Partial(Merge::Min) => Some(BinaryOp::Min),
            _ => None,
        });
        let op = op.expect("a partial value");
        let parts: Vec<(u32, NodeId)> = roots
            .into_iter()
            .map(|root| {
                let level = root.blocks.len().next_power_of_two().ilog2();
                (level, self.slice(root.node, have, piece))
            })
            .collect();
        let merged = if matches!(op, BinaryOp::Add | BinaryOp::Mul) {
            let mut tree = TreeSum::new();
            parts.into_iter().for_each(|(level, node)| tree.push_tree(level, node, |a, b| self.join(op, a, b, device)));
            tree.finish(|a, b| self.join(op, a, b, device))
        } else {
            parts.into_iter().map(|(_, node)| node).reduce(|a, b| self.join(op, a, b, device))
        };
        let merged = self.send(merged.expect("a value has parts"), device);
        let dtype = self.graph.ty(x).dtype;
        if self.new.ty(merged).dtype == dtype {
            merged
        } else {
            self.add(Element::Cast(dtype), &[merged], Some(device))
        }
    }

    fn join(&mut self, op: BinaryOp, a: NodeId, b: NodeId, device: u32) -> NodeId {
        let (at, other) = (self.devices[a.index()], self.devices[b.index()]);
        let at = if at == other { at } else { Some(device) };
        let (a, b) = match at {
            Some(at) => (self.send(a, at), self.send(b, at)),
            None => (a, b),
        };
        self.add(Element::Binary(op), &[a, b], at)
    }

    /// A region of a value from regions that tile it.
    fn assemble(&mut self, region: &Region, mut pieces: Vec<(Region, NodeId)>, device: u32) -> NodeId {
        if let [(only, node)] = &pieces[..]
            && only == region
        {
            return *node;
        }
        // Along some dimension all pieces lie between the same cuts.
        for dim in 0..region.sizes.len() {
            let mut starts: Vec<usize> = pieces.iter().map(|(piece, _)| piece.starts[dim]).collect();
            starts.sort_unstable();
            starts.dedup();
            let is_clean = |&start: &usize| {
                pieces.iter().all(|(piece, _)| piece.range(dim).end <= start || piece.starts[dim] >= start)
            };
            let cuts: Vec<usize> = starts.into_iter().skip(1).filter(is_clean).collect();
            if cuts.is_empty() {
                continue;
            }
            let (mut slabs, mut start) = (Vec::new(), region.starts[dim]);
            for end in cuts.into_iter().chain([region.range(dim).end]) {
                let mut slab = region.clone();
                slab.set(dim, start..end);
                let (inside, rest) = pieces.into_iter().partition(|(piece, _)| piece.starts[dim] < end);
                pieces = rest;
                slabs.push(self.assemble(&slab, inside, device));
                start = end;
            }
            return self.add(Concat { dim }, &slabs, Some(device));
        }
        unreachable!("the parts of a value on a mesh tile it")
    }

    /// A region of what a node has of region `have`.
    pub fn slice(&mut self, node: NodeId, have: &Region, region: &Region) -> NodeId {
        if have == region {
            return node;
        }
        let Region { starts, sizes } = region.within(have);
        let steps = Dims::from_elem(1, sizes.len()).into_iter().map(|step| step as isize).collect();
        self.add(Slice { starts, sizes, steps }, &[node], self.devices[node.index()])
    }

    /// The value of a node on a device.
    fn send(&mut self, node: NodeId, device: u32) -> NodeId {
        match self.devices[node.index()] {
            Some(from) if from != device => {
                let count = self.new.nodes.len();
                let copy = self.add(
                    ToDevice { from, to: device, bundle: self.bundle, is_fleeting: self.is_fleeting },
                    &[node],
                    Some(device),
                );
                if self.new.nodes.len() > count {
                    self.moved += self.new.ty(copy).bytes();
                }
                copy
            }
            _ => node,
        }
    }

    /// Notes what has moved since `before`.
    fn note(&mut self, x: NodeId, from: Option<&Placements>, to: Option<&Placements>, mesh: &Mesh, before: usize) {
        let bytes = self.moved - before;
        if bytes == 0 {
            return;
        }
        let mut moves = Vec::new();
        for (axis, (name, _)) in mesh.axes.iter().enumerate().filter(|(axis, _)| mesh.spans(*axis)) {
            let to = to.map(|to| to[axis]);
            let collective = match (from.map(|from| from[axis]), to) {
                (Some(from), Some(to)) if from == to => continue,
                (Some(Placement::Replicated), _) => continue,
                (Some(Placement::Partial(_)), Some(Placement::Replicated)) => Collective::AllReduce,
                (Some(Placement::Partial(_)), Some(_)) => Collective::ReduceScatter,
                (Some(_), Some(Placement::Replicated)) => Collective::AllGather,
                (Some(_), Some(_)) => Collective::AllToAll,
                (Some(_), None) => Collective::Gather,
                (None, Some(Placement::Replicated)) => Collective::Broadcast,
                (None, _) => Collective::Scatter,
            };
            moves.push((collective, name.clone()));
        }
        if moves.is_empty() {
            // One axis has cut anew what another one had cut.
            let cutting = mesh.axes.iter().enumerate().rfind(|(axis, _)| mesh.spans(*axis));
            moves.extend(cutting.map(|(_, (name, _))| (Collective::AllToAll, name.clone())));
        }
        // What is merged together with a value that is needed now will be needed later.
        let is_used = |user: &NodeId| self.graph.node(*user).inputs.contains(&x);
        let user = self.user.filter(is_used).or_else(|| self.first_user(x, to?));
        let (from, to) = (from.cloned(), to.cloned());
        self.exchanges.push(Exchange {
            value: x,
            ty: self.graph.ty(x).clone(),
            made_by: self.name(x),
            reductions: self.cut_reductions(x),
            user,
            used_by: user.map(|user| self.name(user)),
            moves,
            from,
            to,
            bytes,
        });
    }

    /// Notes that a value has left its mesh, if it was on one.
    pub fn note_gathering(&mut self, x: NodeId, before: usize) {
        if let Held::Spread(spread) = &self.held[x.index()] {
            let spread = spread.clone();
            self.note(x, Some(&spread.placements), None, spread.mesh, before);
        }
    }
}

/// The first of these regions that tile `region` between them, each with what it has of it.
fn tiles(sources: &[(Region, NodeId)], region: &Region) -> Option<Vec<(Region, NodeId, Region)>> {
    let mut tiles: Vec<(Region, NodeId, Region)> = Vec::new();
    for (have, node) in sources {
        if let Some(piece) = have.intersection(region)
            && !tiles.iter().any(|(_, _, known)| known.intersection(&piece).is_some())
        {
            tiles.push((have.clone(), *node, piece));
        }
    }
    let covered: usize = tiles.iter().map(|(_, _, piece)| piece.numel()).sum();
    (covered == region.numel()).then_some(tiles)
}

/// Whether every rank has what `to` gives it.
fn lies_so(from: &Spread, to: &Placements, shape: &crate::shape::Shape) -> bool {
    let partial = |placements: &Placements| placements.iter().map(|p| p.is_partial()).collect::<Vec<_>>();
    partial(&from.placements) == partial(to)
        && (0..from.mesh.size()).all(|rank| from.parts[rank].region == from.mesh.region(rank, shape, to))
}
