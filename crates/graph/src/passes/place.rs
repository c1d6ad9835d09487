//! From a graph to a program: views become layouts, and every buffer gets its place before the program runs.

use super::arena::{self, Life};
use crate::graph::{Graph, NodeId};
use crate::op::Op;
use crate::ops::Reshape;
use crate::program::{Destination, Donation, Location, Memory, OutputPlace, Program, Step, Target, View};
use crate::shape::{Layout, Type};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};

/// Buffers begin at multiples of this many bytes, a cache line.
pub const ALIGNMENT: usize = 64;

/// Where a value lies: a storage and the layout in it.
#[derive(Clone)]
struct Place {
    storage: usize,
    layout: Layout,
}

/// One piece of memory. Steps refer to storages by number until all of them are known.
struct Storage {
    bytes: usize,
    location: Option<Location>,
    first: usize,
    last: usize,
}

/// A step and the storages that it uses.
struct Draft {
    step: Step,
    inputs: Vec<usize>,
    outputs: SmallVec<[usize; 1]>,
    scratch: usize,
}

struct Lowering<'a> {
    graph: &'a Graph,
    target: &'a dyn Target,
    places: Vec<Option<Place>>,
    storages: Vec<Storage>,
    steps: Vec<Draft>,
    /// All results of the nodes that have several.
    parts: FxHashMap<NodeId, SmallVec<[Place; 1]>>,
    copies: FxHashMap<NodeId, Place>,
    /// Dense copies of outputs that are views.
    outputs: FxHashMap<NodeId, Place>,
}

/// Lowers a graph. Outputs are dense and have memory of their own; an output that an elementwise kernel computes
/// from a donated input of the same size, as the input's last reader, takes over its memory.
pub fn place(graph: &Graph, donation: &Donation, target: &dyn Target) -> Program {
    let mut lowering = Lowering {
        graph,
        target,
        places: vec![None; graph.nodes.len()],
        storages: Vec::new(),
        steps: Vec::new(),
        parts: FxHashMap::default(),
        copies: FxHashMap::default(),
        outputs: FxHashMap::default(),
    };
    let mut inputs = Vec::new();
    let wanted: FxHashSet<NodeId> = graph.outputs.iter().copied().collect();
    for id in graph.ids() {
        lowering.lower(id, &mut inputs);
        // Whoever waits for the output has it as soon as possible.
        if wanted.contains(&id) && !lowering.is_whole(id) {
            let copy = lowering.copy(id);
            lowering.outputs.insert(id, copy);
        }
    }
    lowering.bind_outputs();
    let donated = lowering.donate(donation);
    lowering.reuse_in_place();
    let arena = lowering.assign_arena();

    let outputs: Vec<OutputPlace> = graph
        .outputs
        .iter()
        .zip(donated)
        .map(|(&o, donated)| OutputPlace { ty: graph.ty(o).clone(), donated })
        .collect();
    let memory = Memory {
        inputs: inputs.iter().map(Type::bytes).sum(),
        outputs: outputs.iter().filter(|o| o.donated.is_none()).map(|o| o.ty.bytes()).sum(),
        arena,
    };
    Program { inputs, outputs, steps: lowering.finish(), memory }
}

impl Lowering<'_> {
    fn storage(&mut self, bytes: usize, location: Option<Location>) -> usize {
        self.storages.push(Storage { bytes, location, first: usize::MAX, last: 0 });
        self.storages.len() - 1
    }

    fn lower(&mut self, id: NodeId, inputs: &mut Vec<Type>) {
        let node = self.graph.node(id);
        let view = |places: &[Option<Place>]| places[node.inputs[0].index()].clone().expect("operands come first");
        let place = match &node.op {
            Op::Input(_) => {
                let storage = self.storage(node.ty.bytes(), Some(Location::Input(inputs.len())));
                inputs.push(node.ty.clone());
                Some(Place { storage, layout: Layout::contiguous(&node.ty.shape) })
            }
            Op::Barrier(_) => Some(view(&self.places)),
            Op::Permute(op) => {
                let x = view(&self.places);
                Some(Place { layout: x.layout.permute(&op.dims), ..x })
            }
            Op::Expand(op) => {
                let x = view(&self.places);
                Some(Place { layout: x.layout.expand(&op.shape), ..x })
            }
            Op::Slice(op) => {
                let x = view(&self.places);
                Some(Place { layout: x.layout.slice(&op.starts, &op.sizes, &op.steps), ..x })
            }
            Op::Reshape(op) => {
                let x = view(&self.places);
                x.layout.reshape(&op.shape).map(|layout| Place { layout, ..x })
            }
            Op::Part(part) => Some(self.parts[&node.inputs[0]][part.index].clone()),
            _ => None,
        };
        let place = place.unwrap_or_else(|| self.kernel(id));
        self.places[id.index()] = Some(place);
    }

    /// Adds the step of a node and dense copies of the operands that its kernel cannot read as they are.
    fn kernel(&mut self, id: NodeId) -> Place {
        let node = self.graph.node(id);
        let mut places = Vec::new();
        for (i, &x) in node.inputs.iter().enumerate() {
            let place = self.places[x.index()].clone().expect("operands come first");
            let readable = matches!(node.op, Op::Reshape(_)) || self.target.accepts(&node.op, i, &place.layout);
            places.push(if readable { place } else { self.dense(x) });
        }
        let inputs: Vec<&Type> = node.inputs.iter().map(|&x| self.graph.ty(x)).collect();
        let types = node.op.results(&inputs).expect("a legal node").into_iter().collect();
        let results = self.step(node.op.clone(), &node.inputs, places, types);
        let first = results[0].clone();
        if results.len() > 1 {
            self.parts.insert(id, results);
        }
        first
    }

    /// A dense copy of a value, made once.
    fn dense(&mut self, id: NodeId) -> Place {
        if let Some(copy) = self.copies.get(&id) {
            return copy.clone();
        }
        let copy = self.copy(id);
        self.copies.insert(id, copy.clone());
        copy
    }

    fn copy(&mut self, id: NodeId) -> Place {
        let ty = self.graph.ty(id).clone();
        let place = self.places[id.index()].clone().expect("operands come first");
        self.step(Op::Reshape(Reshape { shape: ty.shape.clone() }), &[id], vec![place], smallvec![ty]).remove(0)
    }

    fn step(
        &mut self,
        op: Op,
        inputs: &[NodeId],
        places: Vec<Place>,
        results: SmallVec<[Type; 1]>,
    ) -> SmallVec<[Place; 1]> {
        let types: Vec<(&Type, &Layout)> =
            inputs.iter().zip(&places).map(|(&x, p)| (self.graph.ty(x), &p.layout)).collect();
        let scratch = self.target.scratch(&op, &types, &results[0]);
        let views = inputs
            .iter()
            .zip(&places)
            .map(|(&x, p)| View {
                location: Location::Arena(0),
                layout: p.layout.clone(),
                ty: self.graph.ty(x).clone(),
            })
            .collect();
        let used: Vec<usize> = places.iter().map(|p| p.storage).collect();
        let written: SmallVec<[usize; 1]> = results.iter().map(|ty| self.storage(ty.bytes(), None)).collect();
        // Scratch memory is a storage that lives for one step.
        let room = self.storage(scratch, None);
        let number = self.steps.len();
        for &s in used.iter().chain(&written).chain([&room]) {
            let storage = &mut self.storages[s];
            storage.first = storage.first.min(number);
            storage.last = storage.last.max(number);
        }
        let values = results.iter().zip(&written);
        let values = values.map(|(ty, &storage)| Place { storage, layout: Layout::contiguous(&ty.shape) }).collect();
        let outputs = results.into_iter().map(|ty| Destination { location: Location::Arena(0), ty }).collect();
        let step = Step { op, inputs: views, outputs, scratch: (0, scratch) };
        self.steps.push(Draft { step, inputs: used, outputs: written, scratch: room });
        values
    }

    /// Whether the value is all of a storage that a kernel of this program writes, in row-major order.
    fn is_whole(&self, id: NodeId) -> bool {
        let place = self.places[id.index()].as_ref().expect("outputs are in the graph");
        let storage = &self.storages[place.storage];
        place.layout.is_contiguous()
            && place.layout.offset == 0
            && storage.location.is_none()
            && storage.bytes == self.graph.ty(id).bytes()
    }

    /// Gives every output a storage of its own.
    fn bind_outputs(&mut self) {
        for (k, &id) in self.graph.outputs.iter().enumerate() {
            let place = match self.outputs.remove(&id) {
                Some(copy) => copy,
                None if self.is_whole(id) => self.places[id.index()].clone().expect("outputs are in the graph"),
                None => self.copy(id),
            };
            self.storages[place.storage].location = Some(Location::Output(k));
        }
    }

    /// For every output the donated input whose memory it takes over.
    fn donate(&self, donation: &Donation) -> Vec<Option<usize>> {
        let mut written = FxHashMap::default();
        for (number, draft) in self.steps.iter().enumerate() {
            for (k, &storage) in draft.outputs.iter().enumerate() {
                if let Some(Location::Output(output)) = self.storages[storage].location {
                    written.insert(output, (number, k));
                }
            }
        }
        let mut taken = vec![false; donation.len()];
        let mut overwritten = |output: usize| {
            let &(number, k) = written.get(&output)?;
            let input = self.in_place_operand(&self.steps[number], k, |s| {
                matches!(self.storages[s].location, Some(Location::Input(i)) if donation[i] && !taken[i])
                    && self.storages[s].last == number
            })?;
            let Some(Location::Input(i)) = self.storages[input].location else { return None };
            taken[i] = true;
            Some(i)
        };
        (0..self.graph.outputs.len()).map(&mut overwritten).collect()
    }

    /// An operand's storage that a step may overwrite with result number `k`, which is computed elementwise: read only
    /// densely and of the result's size.
    fn in_place_operand(&self, draft: &Draft, k: usize, free: impl Fn(usize) -> bool) -> Option<usize> {
        let Draft { step, inputs, outputs, .. } = draft;
        let overwrites = |i: usize| match &step.op {
            Op::Fused(_) => true,
            Op::Chain(chain) => chain.may_overwrite(i, k),
            Op::Epilogue(epilogue) => epilogue.may_overwrite(i),
            _ => false,
        };
        let bytes = self.storages[outputs[k]].bytes;
        let dense = |i: usize| {
            let view = &step.inputs[i];
            view.layout.is_contiguous()
                && view.layout.offset == 0
                && view.ty.bytes() == bytes
                && view.ty.dtype.size() == step.outputs[k].ty.dtype.size()
                && self.storages[inputs[i]].bytes == bytes
        };
        (0..inputs.len())
            .filter(|&i| free(inputs[i]))
            .find(|&i| (0..inputs.len()).all(|j| inputs[j] != inputs[i] || overwrites(j) && dense(j)))
            .map(|i| inputs[i])
    }

    /// Lets elementwise steps overwrite operands that are needed no more.
    fn reuse_in_place(&mut self) {
        let mut moved: Vec<usize> = (0..self.storages.len()).collect();
        for number in 0..self.steps.len() {
            for used in &mut self.steps[number].inputs {
                *used = moved[*used];
            }
            for k in 0..self.steps[number].outputs.len() {
                let draft = &self.steps[number];
                let output = draft.outputs[k];
                if self.storages[output].location.is_some() || self.storages[output].bytes == 0 {
                    continue;
                }
                let free = |s: usize| {
                    let storage = &self.storages[s];
                    storage.location.is_none() && storage.last == number && !draft.outputs.contains(&s)
                };
                if let Some(reused) = self.in_place_operand(draft, k, free) {
                    moved[output] = reused;
                    self.storages[reused].last = self.storages[output].last;
                    self.storages[output].bytes = 0;
                    self.steps[number].outputs[k] = reused;
                }
            }
        }
    }

    /// Gives the storages of the arena their addresses. Returns the arena's size.
    fn assign_arena(&mut self) -> usize {
        let of_arena = |s: &Storage| s.location.is_none() && s.bytes > 0;
        let storages: Vec<usize> = (0..self.storages.len()).filter(|&s| of_arena(&self.storages[s])).collect();
        let lives = storages.iter().map(|&s| {
            let Storage { bytes, first, last, .. } = self.storages[s];
            Life { bytes: bytes.next_multiple_of(ALIGNMENT), first, last }
        });
        let (addresses, size) = arena::addresses(&lives.collect::<Vec<_>>());
        for (s, at) in storages.into_iter().zip(addresses) {
            self.storages[s].location = Some(Location::Arena(at));
        }
        size
    }

    fn finish(self) -> Vec<Step> {
        let location = |s: usize| self.storages[s].location.unwrap_or(Location::Arena(0));
        self.steps
            .into_iter()
            .map(|Draft { mut step, inputs, outputs, scratch }| {
                for (view, &storage) in step.inputs.iter_mut().zip(&inputs) {
                    view.location = location(storage);
                }
                for (destination, &storage) in step.outputs.iter_mut().zip(&outputs) {
                    destination.location = location(storage);
                }
                if let Location::Arena(at) = location(scratch) {
                    step.scratch.0 = at;
                }
                step
            })
            .collect()
    }
}
