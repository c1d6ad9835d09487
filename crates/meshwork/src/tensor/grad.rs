//! Gradients of recorded tensors, which are recorded tensors again.

use super::Tensor;
use super::cache::Cache;
use super::checkpoint::Segment;
use super::evaluate::GONE;
use super::kind::Kind;
use super::node::{Node, Recording, SOME, State, in_order, next_ids};
use super::part::{PartId, common_part};
use super::still::{Still, hold_still};
use crate::inspect;
use meshwork_graph::graph::{Graph, Node as GraphNode, Operands};
use meshwork_graph::ops::Input;
use meshwork_graph::passes::{Checkpoints, differentiate_with};
use meshwork_graph::{NodeId, Op};
use meshwork_runtime::DeviceId;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// The gradients of a scalar `loss` by each tensor of `wrt`; zeros where it does not depend on one.
///
/// # Panics
/// When the loss is not one floating-point number, a tensor of `wrt` is no variable and depends on none, or the
/// history of the loss is gone because a gradient was taken and then a value read.
#[track_caller]
pub fn grad(loss: &Tensor, wrt: &[&Tensor]) -> Vec<Tensor> {
    grad_with(&[loss], None, wrt, false)
}

/// The gradients of `Σ outputs · cotangents` by each tensor of `wrt`; zeros where there is no dependence.
///
/// Without `cotangents` every output must be a scalar and counts once. With `create_graph` the gradients'
/// own history survives a read, so that they can be differentiated later; gradients of gradients that are taken
/// before anything is read need no flag.
///
/// # Panics
/// As [`grad`], and when a cotangent's type is not that of its output.
#[track_caller]
pub fn grad_with(
    outputs: &[&Tensor],
    cotangents: Option<&[&Tensor]>,
    wrt: &[&Tensor],
    create_graph: bool,
) -> Vec<Tensor> {
    let found = gradients(outputs, cotangents, wrt, create_graph);
    found.into_iter().zip(wrt).map(|(gradient, x)| gradient.unwrap_or_else(|| x.zeros_like())).collect()
}

/// As [`grad_with`], with `None` where the outputs do not depend on a tensor.
#[track_caller]
pub(crate) fn gradients(
    outputs: &[&Tensor],
    cotangents: Option<&[&Tensor]>,
    wrt: &[&Tensor],
    create_graph: bool,
) -> Vec<Option<Tensor>> {
    let seeds: Vec<Tensor> = match cotangents {
        Some(given) => {
            assert_eq!(given.len(), outputs.len(), "one cotangent for every output");
            for (seed, output) in given.iter().zip(outputs) {
                assert!(seed.ty() == output.ty(), "cotangent {} of an output {}", seed.ty(), output.ty());
            }
            given.iter().map(|&t| t.clone()).collect()
        }
        None => {
            for output in outputs {
                let ok = output.numel() == 1 && output.dtype().is_float();
                assert!(ok, "the gradient of {} needs a scalar loss (or cotangents)", output.ty());
            }
            outputs.iter().map(|t| t.ones_like()).collect()
        }
    };

    for x in wrt {
        assert!(x.requires_grad(), "the gradient by {} needs a variable (make it one with variable())", x.ty());
    }
    let mut still = hold_still();
    let walks = (still.walk(), still.walk());
    let tape = Tape::new(outputs, &seeds, wrt, walks, &still);
    let backward = tape.backward();
    for node in tape.active() {
        node.released.store(!create_graph, Ordering::Relaxed);
    }
    let gradients = tape.record(&backward, create_graph);
    if !create_graph {
        // The gradients hold what they need of values that were read early.
        let read_early: Vec<Arc<Node>> = tape.active().filter(|node| node.has_history(&still)).cloned().collect();
        drop(tape);
        read_early.iter().for_each(|node| node.forget_history(&mut still));
    }
    gradients
}

/// Recorded nodes as a graph: everything between the outputs and `wrt`, in the order of recording. Other operands are
/// its inputs.
struct Tape<'a> {
    /// Numbered by their places.
    nodes: SmallVec<[Taped<'a>; SOME]>,
    /// Outputs with their seeds.
    ends: SmallVec<[(NodeId, NodeId); 1]>,
    /// The values of `wrt` that are on the tape.
    targets: Vec<Option<NodeId>>,
    /// The walk that numbers the nodes.
    walk: u64,
    /// For each segment of the nodes the one around it.
    segments: Vec<Option<usize>>,
}

struct Taped<'a> {
    node: &'a Arc<Node>,
    /// The operands, if gradients flow through the node, or it may be computed again.
    operands: Option<&'a [Arc<Node>]>,
    /// Whether gradients flow through it.
    is_active: bool,
    segment: Option<usize>,
}

/// The nodes that compute gradients, worked out once for each structure of a tape.
struct Backward {
    /// Operations in the order of recording and their operands: nodes of the tape, behind them earlier steps.
    steps: Vec<(Arc<Kind>, SmallVec<[u32; 3]>)>,
    /// For every value of `wrt` its gradient.
    results: Vec<Option<u32>>,
}

impl<'a> Tape<'a> {
    #[track_caller]
    fn new(
        outputs: &[&'a Tensor],
        seeds: &'a [Tensor],
        wrt: &[&'a Tensor],
        walks: (u64, u64),
        still: &'a Still,
    ) -> Tape<'a> {
        let (search, walk) = walks;
        let mut found = search_back(outputs, wrt, search, still);
        found.iter().enumerate().for_each(|(i, (node, ..))| node.set_place(i));
        let mut reaches: SmallVec<[bool; SOME]> = SmallVec::from_elem(false, found.len());
        for x in wrt.iter().filter(|x| x.node().was_met(search)) {
            reaches[x.node().place()] = true;
        }
        for (i, (_, inputs, is_active)) in found.iter_mut().enumerate() {
            *is_active = inputs.iter().any(|x| reaches[x.place()]);
            reaches[i] |= *is_active;
        }
        found.retain(|(.., is_active)| *is_active);
        add_segments(&mut found, still);

        let mut tape =
            Tape { nodes: SmallVec::new(), ends: SmallVec::new(), targets: Vec::new(), walk, segments: Vec::new() };
        for &(node, inputs, is_active) in &found {
            for x in inputs {
                tape.number(x, None, false);
            }
            tape.number(node, Some(inputs), is_active);
        }
        tape.find_segments();
        for (output, seed) in outputs.iter().zip(seeds) {
            let end = (tape.number(output.node(), None, false), tape.number(seed.node(), None, false));
            tape.ends.push(end);
        }
        let on_tape = |x: &&Tensor| x.node().was_met(walk).then(|| NodeId(x.node().place() as u32));
        tape.targets = wrt.iter().map(on_tape).collect();
        tape
    }

    /// The node's number; a new node is added.
    fn number(&mut self, node: &'a Arc<Node>, operands: Option<&'a [Arc<Node>]>, is_active: bool) -> NodeId {
        if node.meet(self.walk) {
            node.set_place(self.nodes.len());
            self.nodes.push(Taped { node, operands, is_active, segment: None });
        }
        NodeId(node.place() as u32)
    }

    /// The nodes that gradients flow through.
    fn active(&self) -> impl Iterator<Item = &'a Arc<Node>> {
        self.nodes.iter().filter(|taped| taped.is_active).map(|taped| taped.node)
    }

    /// Numbers the segments that are on one device, and says which one each node belongs to.
    fn find_segments(&mut self) {
        let mut numbers: FxHashMap<*const Segment, usize> = FxHashMap::default();
        let mut devices: Vec<Option<DeviceId>> = Vec::new();
        let mut is_scattered: Vec<bool> = Vec::new();
        for taped in self.nodes.iter_mut().filter(|taped| taped.operands.is_some()) {
            let Some(innermost) = &taped.node.segment else { continue };
            let device = taped.node.device();
            let mut inner: Option<usize> = None;
            for segment in std::iter::successors(Some(innermost), |segment| segment.around.as_ref()) {
                let number = *numbers.entry(Arc::as_ptr(segment)).or_insert_with(|| {
                    self.segments.push(None);
                    devices.push(None);
                    is_scattered.push(false);
                    self.segments.len() - 1
                });
                match inner {
                    Some(inner) => self.segments[inner] = Some(number),
                    None => taped.segment = Some(number),
                }
                inner = Some(number);
                is_scattered[number] |= device.is_some() && devices[number].is_some() && devices[number] != device;
                devices[number] = devices[number].or(device);
            }
        }
        for taped in &mut self.nodes {
            let around = |segment: usize| std::iter::successors(Some(segment), |&segment| self.segments[segment]);
            taped.segment = taped.segment.filter(|&segment| !around(segment).any(|segment| is_scattered[segment]));
        }
    }

    /// What is computed again.
    fn checkpoints(&self) -> Checkpoints {
        if self.segments.is_empty() {
            return Checkpoints::default();
        }
        Checkpoints {
            segments: self.nodes.iter().map(|taped| taped.segment).collect(),
            parents: self.segments.clone(),
            stops: self.nodes.iter().map(|taped| !taped.is_active).collect(),
            kept: self.nodes.iter().map(|taped| is_parameter(taped.node)).collect(),
        }
    }

    /// Spells everything that the gradients depend on.
    fn describe(&self, words: &mut Vec<u64>) {
        words.extend([self.nodes.len(), self.ends.len(), self.targets.len()].map(|n| n as u64));
        for Taped { node, operands, .. } in &self.nodes {
            match operands {
                None => words.push(node.kind.ty_number),
                Some(operands) => {
                    words.extend([node.kind.number, operands.len() as u64]);
                    words.extend(operands.iter().map(|x| x.place() as u64));
                }
            }
        }
        words.extend(self.ends.iter().flat_map(|(output, seed)| [u64::from(output.0), u64::from(seed.0)]));
        words.extend(self.targets.iter().map(|target| target.map_or(u64::MAX, |id| u64::from(id.0))));
        if !self.segments.is_empty() {
            let numbered = |segment: Option<usize>| segment.map_or(0, |segment| segment as u64 + 1);
            words.extend(self.segments.iter().map(|around| numbered(*around)));
            let word = |taped: &Taped| {
                numbered(taped.segment) << 2 | u64::from(taped.is_active) << 1 | u64::from(is_parameter(taped.node))
            };
            words.extend(self.nodes.iter().map(word));
        }
        if self.parts().any(|part| part.is_some()) {
            words.extend(self.parts().map(|part| part.map_or(0, |part| u64::from(part.0))));
        }
    }

    /// The part of a batch that each node is computed from.
    fn parts(&self) -> impl Iterator<Item = Option<PartId>> {
        self.nodes.iter().map(|taped| taped.node.part())
    }

    fn backward(&self) -> Arc<Backward> {
        static KNOWN: Mutex<Option<Cache<Backward>>> = Mutex::new(None);
        let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
        known.get_or_insert_default().find(|words| self.describe(words), || self.differentiate())
    }

    fn differentiate(&self) -> Backward {
        let mut graph = self.graph();
        let known: Vec<NodeId> = self.targets.iter().flatten().copied().collect();
        let mut results = differentiate_with(&mut graph, &self.ends, &known, &self.checkpoints()).into_iter();
        inspect::pass("differentiate", &graph);
        let mut next = || results.next().expect("one result for every target");
        let results: Vec<Option<NodeId>> = self.targets.iter().map(|target| target.and_then(|_| next())).collect();
        Backward::new(&graph, self.parts().collect(), &results)
    }

    fn graph(&self) -> Graph {
        let node = |Taped { node, operands, .. }: &Taped| {
            let ty = node.ty().clone();
            match operands {
                None => GraphNode { op: Op::Input(Input { ty: ty.clone() }), inputs: Operands::new(), ty },
                Some(operands) => {
                    let inputs = operands.iter().map(|x| NodeId(x.place() as u32)).collect();
                    GraphNode { op: node.kind.op.clone(), inputs, ty }
                }
            }
        };
        Graph { nodes: self.nodes.iter().map(node).collect(), outputs: Vec::new() }
    }

    /// Records the gradients.
    fn record(&self, backward: &Backward, create_graph: bool) -> Vec<Option<Tensor>> {
        let mut recorded: SmallVec<[Arc<Node>; SOME]> = SmallVec::new();
        let first = next_ids(backward.steps.len());
        for (id, (kind, operands)) in (first..).zip(&backward.steps) {
            let inputs = || operands.iter().map(|&x| self.get(x, &recorded));
            let requires_grad = create_graph && inputs().any(|x| x.requires_grad);
            let released = !create_graph && !operands.is_empty();
            let recording = Recording { id, requires_grad, boundary: false, released };
            let node = Node::recorded(recording, kind.clone(), inputs(), None);
            recorded.push(node);
        }
        let results = backward.results.iter();
        results.map(|result| result.map(|x| Tensor::hold(self.get(x, &recorded).clone()))).collect()
    }

    /// A node of the tape, or behind them a recorded one.
    fn get<'b>(&self, number: u32, recorded: &'b [Arc<Node>]) -> &'b Arc<Node>
    where
        'a: 'b,
    {
        let number = number as usize;
        self.nodes.get(number).map_or_else(|| &recorded[number - self.nodes.len()], |taped| taped.node)
    }
}

impl Backward {
    /// What `results` need of a graph that begins with a tape, whose nodes are computed from these parts of a batch; what is
    /// the same is recorded once.
    fn new(graph: &Graph, mut parts: Vec<Option<PartId>>, results: &[Option<NodeId>]) -> Backward {
        let tape = parts.len();
        for node in &graph.nodes[tape..] {
            parts.push(common_part(node.inputs.iter().map(|x| parts[x.index()])));
        }
        let mut numbers: Vec<Option<u32>> = (0..graph.nodes.len()).map(|i| (i < tape).then_some(i as u32)).collect();
        let mut steps: Vec<(Arc<Kind>, SmallVec<[u32; 3]>)> = Vec::new();
        let mut known: FxHashMap<(u64, SmallVec<[u32; 3]>), u32> = FxHashMap::default();
        let mut needed = vec![false; graph.nodes.len()];
        results.iter().flatten().for_each(|result| needed[result.index()] = true);
        for i in (tape..needed.len()).rev() {
            if needed[i] {
                graph.nodes[i].inputs.iter().for_each(|x| needed[x.index()] = true);
            }
        }
        for i in (tape..needed.len()).filter(|&i| needed[i]) {
            let node = &graph.nodes[i];
            let number = |x: &NodeId| numbers[x.index()].expect("operands are recorded first");
            let operands: SmallVec<[u32; 3]> = node.inputs.iter().map(number).collect();
            let mut op = node.op.clone();
            if let Some(part) = parts[i] {
                part.apply(&mut op, &node.inputs.iter().map(|&x| graph.ty(x)).collect::<Vec<_>>());
            }
            let kind = Kind::numbered(op, node.ty.clone());
            numbers[i] = Some(*known.entry((kind.number, operands)).or_insert_with_key(|(_, operands)| {
                steps.push((kind, operands.clone()));
                (tape + steps.len() - 1) as u32
            }));
        }
        Backward { steps, results: results.iter().map(|result| numbers[result.as_ref()?.index()]).collect() }
    }
}

/// Whether a value is a variable, which is there all the time.
fn is_parameter(node: &Node) -> bool {
    node.requires_grad && node.boundary
}

/// A node, its operands, and whether gradients flow through it.
type Found<'a> = (&'a Arc<Node>, &'a [Arc<Node>], bool);

/// Adds to the nodes that gradients flow through, which are in the order of recording, others that are recorded in a segment
/// and not computed yet: masks of dropout, say.
fn add_segments<'a>(found: &mut SmallVec<[Found<'a>; SOME]>, still: &'a Still) {
    let in_segments = found.iter().filter(|(node, ..)| node.segment.is_some());
    let mut stack: Vec<&Arc<Node>> = in_segments.flat_map(|(_, inputs, _)| inputs.iter()).collect();
    if stack.is_empty() {
        return;
    }
    let mut seen: FxHashSet<u64> = found.iter().map(|(node, ..)| node.id).collect();
    while let Some(node) = stack.pop() {
        if let Some(inputs) = node.operands(still).filter(|_| node.segment.is_some())
            && seen.insert(node.id)
        {
            stack.extend(inputs);
            found.push((node, inputs, false));
        }
    }
    found.sort_unstable_by_key(|(node, ..)| node.id);
}

/// The nodes that the outputs depend on, with their operands and nothing said about gradients yet, in the order of
/// recording. Gradients stop at boundaries.
#[track_caller]
fn search_back<'a>(
    outputs: &[&'a Tensor],
    wrt: &[&'a Tensor],
    walk: u64,
    still: &'a Still,
) -> SmallVec<[Found<'a>; SOME]> {
    let only = wrt.first().filter(|first| wrt.iter().all(|x| Arc::ptr_eq(x.node(), first.node())));
    let mut found: SmallVec<[Found; SOME]> = SmallVec::new();
    let mut stack: SmallVec<[&Arc<Node>; SOME]> = SmallVec::new();
    stack.extend(outputs.iter().map(|output| output.node()).filter(|n| n.meet(walk)));
    while let Some(node) = stack.pop() {
        // What lies beyond the only variable does not matter.
        let ends_here = only.is_some_and(|x| Arc::ptr_eq(x.node(), node));
        let inputs: &[Arc<Node>] = match node.state(still) {
            _ if node.boundary => &[],
            State::Pending(inputs) | State::Ready { history: inputs, .. } => inputs,
            State::Gone => panic!("{GONE}"),
        };
        if inputs.is_empty() && !ends_here && node.history_was_freed(still) {
            panic!(
                "the history of {} was freed by taking a gradient through it: take both gradients before \
                 reading a value, ask for create_graph, or detach() what is a constant",
                node.ty()
            );
        }
        stack.extend(inputs.iter().filter(|x| x.meet(walk)));
        found.push((node, inputs, false));
    }
    in_order(found.iter().map(|(node, ..)| node.id)).iter().map(|&i| found[i as usize]).collect()
}
