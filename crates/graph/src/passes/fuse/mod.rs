//! Groups elementwise operations and reductions of rows into regions that run tile by tile, so that values inside never
//! reach memory.

mod again;
mod copies;
mod cost;
mod cut;
mod regions;

use super::rewrite::Rewrite;
use crate::dtype::{DType, Scalar};
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::op::Op;
use crate::ops::{Code, Fused, Instr, Part, Source};
use crate::shape::Type;
use again::compute_again;
use regions::{Region, Regions};
use rustc_hash::FxHashMap;

/// Turns every elementwise operation, and what combines the elements of a row before or after it, into (part of) a
/// [`Fused`] region.
///
/// A value that is also needed outside of its region is one of the region's results, unless it is cheaper to compute it again
/// where it is needed, or what is needed of it is smaller. Constants become instructions.
pub fn fuse(graph: &Graph) -> Graph {
    let regions = Regions::new(graph);
    match compute_again(&regions) {
        None => fused(graph, &regions),
        Some((graph, of)) => fused(&graph, &Regions::again(&graph, &regions, &of)),
    }
}

fn fused(graph: &Graph, regions: &Regions) -> Graph {
    let mut rewrite = Rewrite::new(graph);
    let mut done = vec![false; graph.nodes.len()];
    for id in graph.ids() {
        // Inputs keep their order, since callers number them.
        if matches!(graph.node(id).op, Op::Input(_)) {
            emit(regions, &mut rewrite, &mut done, id);
        }
    }
    for id in graph.ids().filter(|&id| regions.live[id.index()]) {
        // A region comes with its last member, unless it is needed before; views and constants come when they are.
        let due = match regions.of(id) {
            Some(region) => region.members.last() == Some(&id),
            None => !is_free(&graph.node(id).op),
        };
        if due {
            emit(regions, &mut rewrite, &mut done, id);
        }
    }
    for &id in &graph.outputs {
        emit(regions, &mut rewrite, &mut done, id);
    }
    rewrite.finish()
}

fn is_free(op: &Op) -> bool {
    matches!(op, Op::Const(_)) || cost::is_view(op)
}

/// Adds a node, or its whole region, behind everything that it reads.
fn emit(regions: &Regions, rewrite: &mut Rewrite, done: &mut [bool], id: NodeId) {
    let graph = rewrite.old;
    let mut stack = vec![id];
    while let Some(&top) = stack.last() {
        if done[top.index()] {
            stack.pop();
            continue;
        }
        let region = regions.of(top);
        let inputs = region.map_or_else(|| graph.node(top).inputs.to_vec(), |region| regions.inputs(region));
        let waiting = stack.len();
        stack.extend(inputs.iter().filter(|x| !done[x.index()]));
        if stack.len() > waiting {
            continue;
        }
        stack.pop();
        match region {
            None => {
                let new = rewrite.push(rewrite.moved(top));
                rewrite.set(top, new);
                done[top.index()] = true;
            }
            Some(region) => {
                push_region(regions, rewrite, region, &inputs);
                region.members.iter().for_each(|m| done[m.index()] = true);
            }
        }
    }
}

/// The constant at every element of a value, as an instruction holds it.
pub(super) fn constant(graph: &Graph, id: NodeId) -> Option<Scalar> {
    let node = graph.node(id);
    match &node.op {
        Op::Const(c) => Some(c.value),
        Op::Reshape(_) | Op::Permute(_) | Op::Expand(_) | Op::Slice(_) => constant(graph, node.inputs[0]),
        _ => None,
    }
}

/// The code of a region under construction.
struct Builder<'a> {
    graph: &'a Graph,
    region: &'a Region,
    inputs: usize,
    code: Vec<Instr>,
    registers: FxHashMap<NodeId, u16>,
    constants: FxHashMap<(Scalar, DType), u16>,
    spread: FxHashMap<u16, u16>,
}

impl Builder<'_> {
    fn push(&mut self, op: Code, args: [u16; 3], of_rows: bool, dtype: DType) -> u16 {
        self.code.push(Instr { op, args, of_rows, dtype });
        (self.inputs + self.code.len() - 1) as u16
    }

    /// The register of an operand of a member.
    fn operand(&mut self, x: NodeId) -> u16 {
        let dtype = self.graph.ty(x).dtype;
        if let Some(value) = constant(self.graph, x) {
            if let Some(&register) = self.constants.get(&(value, dtype)) {
                return register;
            }
            let register = self.push(Code::Const(value), [0; 3], false, dtype);
            self.constants.insert((value, dtype), register);
            return register;
        }
        let read = self.region.read(self.graph, x);
        let register = self.registers[&read.value];
        if !read.spread {
            return register;
        }
        if let Some(&spread) = self.spread.get(&register) {
            return spread;
        }
        let spread = self.push(Code::Spread, [register, 0, 0], false, dtype);
        self.spread.insert(register, spread);
        spread
    }

    fn member(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let mut args = [0; 3];
        for (arg, &x) in args.iter_mut().zip(Region::reads(self.graph, id)) {
            *arg = self.operand(x);
        }
        let op = match &node.op {
            Op::Element(op) => Code::Element(*op),
            Op::Reduce(op) => {
                let blocks = op.blocks(&self.region.space.shape);
                Code::Reduce(op.op, blocks.unit * blocks.inner)
            }
            Op::Gather(op) => Code::Gather(op.dim, op.part_of),
            Op::ScatterAdd(op) => Code::Scatter(op.dim, op.part_of),
            op => unreachable!("{} is in no region", op.operation().name()),
        };
        let of_rows = self.region.space.is_of_rows(&node.ty.shape);
        let register = self.push(op, args, of_rows, node.ty.dtype);
        self.registers.insert(id, register);
    }
}

/// Adds a region that reads these inputs, and its results.
fn push_region(regions: &Regions, rewrite: &mut Rewrite, region: &Region, inputs: &[NodeId]) {
    let graph = rewrite.old;
    let mut builder = Builder {
        graph,
        region,
        inputs: inputs.len(),
        code: Vec::new(),
        registers: inputs.iter().enumerate().map(|(i, &x)| (x, i as u16)).collect(),
        constants: FxHashMap::default(),
        spread: FxHashMap::default(),
    };
    region.members.iter().for_each(|&id| builder.member(id));
    let results = regions.results(region);
    let source = |&x: &NodeId| {
        let Type { dtype, shape } = graph.ty(x);
        Source { dtype: *dtype, of_rows: region.space.is_of_rows(shape) }
    };
    let fused = Fused {
        space: region.space.clone(),
        inputs: inputs.iter().map(source).collect(),
        outputs: results.iter().map(|id| builder.registers[id]).collect(),
        code: builder.code,
    };
    let operands: Operands = inputs.iter().map(|&x| rewrite.get(x)).collect();
    let types: Vec<&Type> = inputs.iter().map(|&x| graph.ty(x)).collect();
    let types = fused.results(&types).expect("a legal region");
    let whole = rewrite.push(Node { op: Op::Fused(fused), inputs: operands, ty: types[0].clone() });
    for (index, (&id, ty)) in results.iter().zip(types).enumerate() {
        let mut value = whole;
        if index > 0 {
            let part = Part { index, ty: ty.clone() };
            value = rewrite.push(Node { op: Op::Part(part), inputs: Operands::from_slice(&[whole]), ty });
        }
        // Values of rows may have dimensions of size 1 for the columns.
        let value = rewrite.new.reshape(value, graph.ty(id).shape.clone());
        rewrite.set(id, value);
    }
}
