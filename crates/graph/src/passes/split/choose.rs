//! Which factor of each node is cut along each axis of its mesh.
//!
//! Axes are taken one after the other. Along an axis, cuts of leaves and of placed values are carried forward and backward
//! through the factors as wishes. Then every node, in order, takes the cut that is nearest to what is there: one that moves
//! no operand if there is any, otherwise the one that moves the fewest bytes, its way to the wish included.

use super::{Sites, enters, is_pointwise, is_view, passes_partial, read, replicated};
use crate::canonical::samples_unit;
use crate::graph::{Graph, NodeId};
use crate::mesh::{Merge, Mesh, Placement, Placements};
use crate::op::Op;
use crate::ops::Element;
use crate::rule::{Factor, Kind, SplitRule};
use crate::shape::Type;
use smallvec::SmallVec;

/// How a node is computed along one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Every rank computes all of it.
    Whole,
    /// Each rank computes with a part of the indices of a factor, cut at multiples of `unit`.
    Factor { factor: usize, unit: usize },
    /// Parts of a sum stay such parts.
    Partial(Merge),
}

/// How a node on a mesh is computed.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// For each axis.
    pub ways: SmallVec<[Way; 3]>,
    /// How the result lies.
    pub placements: Placements,
    /// How each operand must lie.
    pub operands: Vec<Placements>,
    pub rule: SplitRule,
}

/// The choices for all nodes that are on a mesh.
pub(super) fn choose(graph: &Graph, sites: &Sites) -> Vec<Option<Choice>> {
    let mut choices: Vec<Option<Choice>> = graph.ids().map(|id| begin(graph, sites, id)).collect();
    for (&number, mesh) in sites.meshes {
        let on: Vec<NodeId> = graph.ids().filter(|id| sites.of[id.index()] == Some(number)).collect();
        for axis in 0..mesh.axes.len() {
            Axis { graph, sites, mesh, axis, on: &on, choices: &mut choices }.choose();
        }
    }
    choices
}

/// A node that no axis cuts.
fn begin(graph: &Graph, sites: &Sites, id: NodeId) -> Option<Choice> {
    let mesh = sites.mesh(id)?;
    let node = graph.node(id);
    let whole = replicated(mesh);
    let types: SmallVec<[&Type; 3]> = node.inputs.iter().map(|&x| graph.ty(x)).collect();
    Some(Choice {
        ways: SmallVec::from_elem(Way::Whole, mesh.axes.len()),
        placements: sites.leaves.get(&id).cloned().unwrap_or_else(|| whole.clone()),
        operands: vec![whole; node.inputs.len()],
        rule: node.op.operation().rule(&types, &node.ty),
    })
}

/// How an operand can be had along an axis.
#[derive(Clone, Copy)]
enum Source {
    /// Computed wherever it is needed.
    Anywhere,
    /// From another device.
    Elsewhere,
    /// It lies so.
    At(Placement),
}

struct Axis<'a> {
    graph: &'a Graph,
    sites: &'a Sites<'a>,
    mesh: &'a Mesh,
    axis: usize,
    /// The nodes on the mesh.
    on: &'a [NodeId],
    choices: &'a mut Vec<Option<Choice>>,
}

impl Axis<'_> {
    fn size(&self) -> usize {
        self.mesh.axes[self.axis].1
    }

    fn choice(&self, id: NodeId) -> &Choice {
        self.choices[id.index()].as_ref().expect("a node on the mesh")
    }

    fn choose(mut self) {
        if self.size() == 1 {
            return;
        }
        let natural = self.carry_forward();
        let wishes = self.carry_backward(&natural);
        for &id in self.on {
            self.decide(id, &wishes);
        }
    }

    /// The placement that is not ours to choose.
    fn given(&self, id: NodeId) -> Option<Placement> {
        match &self.graph.node(id).op {
            Op::Input(_) => self.sites.leaves.get(&id).map(|placements| placements[self.axis]),
            Op::Place(place) => Some(place.placements[self.axis]),
            _ => None,
        }
    }

    fn factors(&self, id: NodeId) -> impl Iterator<Item = (usize, Resolved<'_>)> {
        let node = self.graph.node(id);
        let types: SmallVec<[&Type; 3]> = node.inputs.iter().map(|&x| self.graph.ty(x)).collect();
        let factors = self.choice(id).rule.factors.iter().enumerate();
        factors.filter_map(move |(i, factor)| {
            let size = factor.size(&types, &node.ty);
            let can_be_cut = match factor.kind {
                Kind::Whole | Kind::Halo => false,
                // A user's operation does not say how to cut its sums as the whole.
                Kind::Sum | Kind::Prod => node.op.clone().blocking_mut().is_some(),
                Kind::Picked => node.op.clone().part_of_mut().is_some(),
                Kind::Mapped | Kind::Max | Kind::Min => true,
            };
            let usable = size > 1 && can_be_cut;
            let carriers = factor.inputs.iter().copied().chain(std::iter::repeat(None)).zip(&types);
            let inputs = carriers.map(|(d, ty)| d.map(|d| (d, Factor::step(size, ty.shape[d]))));
            let output = factor.output.map(|d| (d, Factor::step(size, node.ty.shape[d])));
            usable.then(|| (i, Resolved { factor, inputs: inputs.collect(), output }))
        })
    }

    /// Cuts of leaves and placed values, carried to what is computed from them.
    fn carry_forward(&self) -> Vec<Option<Placement>> {
        let mut natural: Vec<Option<Placement>> = vec![None; self.graph.nodes.len()];
        for &id in self.on {
            let node = self.graph.node(id);
            natural[id.index()] = match self.given(id) {
                Some(given) => given.cut().map(|_| given),
                None => {
                    let cuts = node.inputs.iter().enumerate().filter_map(|(i, x)| Some((i, natural[x.index()]?)));
                    let mut cuts =
                        cuts.filter(|(_, cut)| is_pointwise(node) || !matches!(cut, Placement::Sharded { .. }));
                    cuts.find_map(|(i, cut)| self.factors(id).find_map(|(_, factor)| factor.forward(i, cut)))
                }
            };
        }
        natural
    }

    /// How users would like to have what they use: elementwise updates, and what looks at values in another shape.
    fn carry_backward(&self, natural: &[Option<Placement>]) -> Vec<Option<Placement>> {
        let mut wishes: Vec<Option<Placement>> = vec![None; self.graph.nodes.len()];
        for &id in self.on.iter().rev() {
            let node = self.graph.node(id);
            let Some(wish) = self.given(id).or(wishes[id.index()]).or(natural[id.index()]) else { continue };
            if !is_pointwise(node) && !is_view(node) {
                continue;
            }
            for (i, x) in read(node).iter().enumerate().filter(|(_, x)| self.sites.mesh(**x).is_some()) {
                let carried = match wish.cut() {
                    Some(_) => self.factors(id).find_map(|(_, factor)| factor.backward(i, wish)),
                    None => Some(Placement::Replicated),
                };
                wishes[x.index()] = wishes[x.index()].or(carried);
            }
        }
        wishes
    }

    fn source(&self, id: NodeId) -> Source {
        match self.sites.mesh(id) {
            None if self.sites.of[id.index()].is_none() => Source::Anywhere,
            None => Source::Elsewhere,
            Some(mesh) if mesh != self.mesh => Source::Elsewhere,
            Some(_) if enters(self.graph, id) => Source::Elsewhere,
            Some(_) => Source::At(self.choice(id).placements[self.axis]),
        }
    }

    fn decide(&mut self, id: NodeId, wishes: &[Option<Placement>]) {
        let wish = wishes[id.index()];
        if matches!(self.graph.node(id).op, Op::Input(_)) || enters(self.graph, id) {
            return;
        }
        if let Some(given) = self.given(id) {
            let axis = self.axis;
            let choice = self.choices[id.index()].as_mut().expect("a node on the mesh");
            choice.placements[axis] = given;
            choice.operands[0][axis] = given;
            return;
        }
        // Where both cost the same, what everyone shall have is computed by everyone: that takes fewer messages.
        let by_all = wish == Some(Placement::Replicated);
        let price = |candidate: &Candidate| (self.price(id, candidate, wishes), by_all && candidate.way != Way::Whole);
        let best = self.candidates(id, wish).into_iter().min_by_key(price);
        let Candidate { way, mut output, operands } = best.expect("every node can be computed whole");
        if let (Op::Element(Element::Cast(_)), Some((dim, unit))) = (&self.graph.node(id).op, output.cut())
            && let Source::At(Placement::Sharded { .. }) = self.source(self.graph.node(id).inputs[0])
        {
            // Who needs a sharded value in another type gathers it in that type.
            output = Placement::Sharded { dim, unit };
        }
        let axis = self.axis;
        let choice = self.choices[id.index()].as_mut().expect("a node on the mesh");
        choice.ways[axis] = way;
        choice.placements[axis] = output;
        for (operand, placement) in choice.operands.iter_mut().zip(operands) {
            operand[axis] = placement;
        }
    }

    fn candidates(&self, id: NodeId, wish: Option<Placement>) -> Vec<Candidate> {
        let node = self.graph.node(id);
        let mut candidates = Vec::new();
        let is_empty = |x: &NodeId| self.graph.ty(*x).shape.numel() == 0;
        if is_empty(&id) || node.inputs.iter().any(is_empty) {
            let operands = vec![Placement::Replicated; node.inputs.len()];
            return vec![Candidate { way: Way::Whole, output: Placement::Replicated, operands }];
        }
        if passes_partial(node)
            && let Source::At(partial @ Placement::Partial(merge)) = self.source(node.inputs[0])
        {
            candidates.push(Candidate { way: Way::Partial(merge), output: partial, operands: vec![partial] });
        }
        let is_whole =
            |x: &NodeId| !matches!(self.source(*x), Source::At(placement) if placement != Placement::Replicated);
        if is_view(node) && node.inputs.iter().all(is_whole) {
            // Whoever needs a part of it takes that part.
            let operands = vec![Placement::Replicated; node.inputs.len()];
            return vec![Candidate { way: Way::Whole, output: Placement::Replicated, operands }];
        }
        for (i, factor) in self.factors(id) {
            let mut units: SmallVec<[usize; 4]> = SmallVec::new();
            for (input, x) in node.inputs.iter().enumerate() {
                let Some((dim, step)) = factor.inputs[input] else { continue };
                match self.source(*x) {
                    Source::At(placement) => match placement.cut() {
                        Some((cut, unit)) if cut == dim => units.push(whole_steps(unit, step)),
                        // Merging a partial value leaves a part of it to each rank.
                        None if placement.is_partial() => units.push(factor.usual_unit(self.graph.ty(id))),
                        _ => {}
                    },
                    Source::Anywhere | Source::Elsewhere => {}
                }
            }
            if let (Some((dim, unit)), Some((out, step))) = (wish.and_then(Placement::cut), factor.output)
                && dim == out
            {
                units.push(whole_steps(unit, step));
            }
            let finest = factor.factor.granularity.unwrap_or(1);
            units.iter_mut().for_each(|unit| *unit = lcm(*unit, finest));
            units.sort_unstable();
            units.dedup();
            candidates.extend(units.into_iter().map(|unit| factor.candidate(i, unit)));
        }
        let operands = vec![Placement::Replicated; node.inputs.len()];
        candidates.push(Candidate { way: Way::Whole, output: Placement::Replicated, operands });
        candidates
    }

    /// First by whether operands must move, then by the bytes that move. A part that is needed as it is wished for is free: its
    /// way there was in its own price, if it was not given, and others may need it so, too.
    fn price(&self, id: NodeId, candidate: &Candidate, wishes: &[Option<Placement>]) -> (bool, usize) {
        let node = self.graph.node(id);
        let is_paid = |from: Placement, i: usize, x: NodeId| {
            let has_price = self.given(x).is_none();
            is_pointwise(node) && has_price && from.cut().is_some() && wishes[x.index()] == Some(candidate.operands[i])
        };
        let mut bytes = 0;
        for (i, x) in read(node).iter().enumerate() {
            bytes += match self.source(*x) {
                Source::Anywhere => 0,
                Source::Elsewhere if candidate.operands[i] == Placement::Replicated => self.size() * self.bytes(*x),
                Source::Elsewhere => self.bytes(*x),
                Source::At(from @ Placement::Sharded { .. }) if !is_pointwise(node) => {
                    debug_assert!(from.cut().is_some());
                    (self.size() - 1) * self.bytes(*x)
                }
                Source::At(from) if is_paid(from, i, *x) => 0,
                Source::At(from) => self.way_between(*x, from, candidate.operands[i]),
            };
        }
        let onward = wishes[id.index()].map_or(0, |wish| self.way_between(id, candidate.output, wish));
        // A result that may be much larger than the operands, and that shall be cut: the bytes alone decide.
        let is_wide = matches!(node.op, Op::Expand(_) | Op::IndexAdd(_));
        if is_wide && wishes[id.index()].is_some_and(|wish| wish.cut().is_some()) {
            return (false, bytes + onward);
        }
        // A value from elsewhere, and a gathered one, comes in any case.
        let unmoved = read(node).iter().enumerate().all(|(i, x)| match self.source(*x) {
            Source::At(Placement::Sharded { .. }) if !is_pointwise(node) => {
                candidate.operands[i] == Placement::Replicated
            }
            Source::At(from) => is_paid(from, i, *x) || self.way_between(*x, from, candidate.operands[i]) == 0,
            Source::Anywhere | Source::Elsewhere => true,
        });
        (!unmoved, bytes + onward)
    }

    /// Bytes of a value on each rank, as far as the axes before cut it.
    fn bytes(&self, id: NodeId) -> usize {
        let cuts = |choice: &Choice| {
            let before = choice.placements.iter().zip(&self.mesh.axes).take(self.axis);
            before.filter(|(placement, _)| placement.cut().is_some()).map(|(_, (_, size))| size).product()
        };
        let parts: usize = self.choices[id.index()].as_ref().map_or(1, cuts);
        self.graph.ty(id).bytes() / parts
    }

    /// Bytes that all ranks of the axis together receive.
    fn way_between(&self, id: NodeId, from: Placement, to: Placement) -> usize {
        let (others, bytes) = (self.size() - 1, self.bytes(id));
        match (from, to) {
            _ if from == to || from == Placement::Replicated => 0,
            (Placement::Partial(_), Placement::Replicated) => 2 * others * bytes,
            (Placement::Partial(_), _) => others * bytes,
            (_, Placement::Replicated) => others * bytes,
            _ if self.same_parts(id, from, to) => 0,
            _ => others * bytes / self.size(),
        }
    }

    /// Whether two cuts give every rank the same part.
    fn same_parts(&self, id: NodeId, a: Placement, b: Placement) -> bool {
        let shape = &self.graph.ty(id).shape;
        let placements = |placement| {
            let mut all = self.choice(id).placements.clone();
            all[self.axis] = placement;
            all
        };
        let (a, b) = (placements(a), placements(b));
        (0..self.mesh.size()).all(|rank| self.mesh.region(rank, shape, &a) == self.mesh.region(rank, shape, &b))
    }
}

/// One way to compute a node along an axis.
#[derive(Debug)]
struct Candidate {
    way: Way,
    output: Placement,
    operands: Vec<Placement>,
}

/// A factor for operands of certain shapes: where it is, and how many elements one of its indices stands for there.
struct Resolved<'a> {
    factor: &'a Factor,
    inputs: SmallVec<[Option<(usize, usize)>; 3]>,
    output: Option<(usize, usize)>,
}

impl Resolved<'_> {
    /// The cut of the result that a cut of an operand gives.
    fn forward(&self, input: usize, cut: Placement) -> Option<Placement> {
        let (dim, step) = self.inputs.get(input).copied().flatten()?;
        let (out, out_step) = self.output?;
        let (cut_dim, unit) = cut.cut()?;
        (cut_dim == dim).then(|| recut(cut, out, whole_steps(unit, step) * out_step))
    }

    /// How an operand must lie for a cut of the result: cut as well, or whole where it is repeated along the dimension.
    fn backward(&self, input: usize, cut: Placement) -> Option<Placement> {
        let (out, out_step) = self.output?;
        let (cut_dim, unit) = cut.cut()?;
        let carrier = *self.inputs.get(input)?;
        let carried = |(dim, step)| recut(cut, dim, whole_steps(unit, out_step) * step);
        (cut_dim == out).then(|| carrier.map_or(Placement::Replicated, carried))
    }

    /// Where the factor is cut when nothing else says so: samples between blocks, so that sums over them fit.
    fn usual_unit(&self, ty: &Type) -> usize {
        match self.output {
            Some((0, step)) => whole_steps(samples_unit(ty.shape[0]), step),
            _ => 1,
        }
    }

    fn candidate(&self, factor: usize, unit: usize) -> Candidate {
        let split = |(dim, step): (usize, usize)| Placement::Split { dim, unit: unit * step };
        let output = match self.factor.kind {
            Kind::Mapped => split(self.output.expect("a mapped factor is in the result")),
            Kind::Sum | Kind::Picked => Placement::Partial(Merge::Sum),
            Kind::Prod => Placement::Partial(Merge::Prod),
            Kind::Max => Placement::Partial(Merge::Max),
            Kind::Min => Placement::Partial(Merge::Min),
            Kind::Whole | Kind::Halo => unreachable!("these are not cut"),
        };
        let operands = self.inputs.iter().map(|place| place.map_or(Placement::Replicated, split)).collect();
        Candidate { way: Way::Factor { factor, unit }, output, operands }
    }
}

fn recut(cut: Placement, dim: usize, unit: usize) -> Placement {
    match cut {
        Placement::Sharded { .. } => Placement::Sharded { dim, unit },
        _ => Placement::Split { dim, unit },
    }
}

/// The unit of a factor whose indices are runs of `step` elements, for a dimension that is cut at multiples of `unit`.
fn whole_steps(unit: usize, step: usize) -> usize {
    lcm(unit, step) / step
}

fn lcm(a: usize, b: usize) -> usize {
    let (mut x, mut y) = (a, b);
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b
}
