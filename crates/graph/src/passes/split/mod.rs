//! Spreads a graph that was recorded as if for one device over meshes of devices.
//!
//! The pass has two halves. [`choose`] says for every node on a mesh, axis by axis, which factor of its
//! [rule](crate::rule) is cut there, so that as few bytes as possible move. [`emit`](self::emit) then writes the node once
//! for each rank, on the part that the rank has; where an operand lies in another way, [`exchange`](self::exchange) writes
//! the copies and additions that bring it there: the collectives. Data parallelism, tensor parallelism, sequence
//! parallelism and ZeRO differ in the placements of the leaves alone.
//!
//! The result is an ordinary graph over ordinary devices. A split sum is cut between the blocks of the whole sum, and
//! merged by the tree over these blocks, so its bits are those of the unsplit graph.

mod choose;
mod describe;
mod emit;
mod exchange;

pub use describe::CutReduction;
pub use exchange::{Collective, Exchange};

use crate::graph::{Graph, Node, NodeId};
use crate::mesh::{Mesh, Placement, Placements};
use crate::op::Op;
use emit::Emitter;
use std::collections::HashMap;

/// Where the nodes of a graph belong.
pub struct Sites<'a> {
    /// The device of each node, or its mesh; `None` for what is computed wherever it is needed.
    pub of: &'a [Option<u32>],
    /// The meshes by their numbers, which no device has.
    pub meshes: &'a HashMap<u32, Mesh>,
    /// How the inputs on meshes lie.
    pub leaves: &'a HashMap<NodeId, Placements>,
}

/// A graph over devices.
#[derive(Debug)]
pub struct Split {
    /// The nodes of all ranks. An input on a mesh has become one for each of [`Mesh::stored`], in its place in the order of
    /// inputs; an output likewise.
    pub graph: Graph,
    /// The device of each node.
    pub devices: Vec<Option<u32>>,
    /// The microbatch that each node belongs to, and so is computed with; at least that of its operands.
    pub phases: Vec<usize>,
    /// How the outputs that are on a mesh lie there.
    pub outputs: Vec<Option<Placements>>,
    /// What moves between ranks, in the order in which it was found to be needed.
    pub exchanges: Vec<Exchange>,
}

/// Spreads a graph over the meshes that its nodes are on.
pub fn split(graph: &Graph, sites: &Sites) -> Split {
    let chosen = choose::choose(graph, sites);
    let mut emitter = Emitter::new(graph, sites, &chosen);
    graph.ids().for_each(|id| emitter.node(id));
    emitter.finish()
}

impl<'a> Sites<'a> {
    /// The mesh that a node is on, if it is on one.
    fn mesh(&self, id: NodeId) -> Option<&'a Mesh> {
        self.meshes.get(&self.of[id.index()]?)
    }
}

/// Whether a node brings a value to a mesh from elsewhere: any part of it can be had from there.
fn enters(graph: &Graph, id: NodeId) -> bool {
    matches!(graph.node(id).op, Op::ToDevice(_))
}

/// Whether each element of the result depends on the same elements of the operands alone.
fn is_pointwise(node: &Node) -> bool {
    matches!(node.op, Op::Element(_) | Op::Place(_) | Op::Barrier(_))
}

/// Whether the result has the elements of the operand in another shape, order or number.
fn is_view(node: &Node) -> bool {
    matches!(node.op, Op::Reshape(_) | Op::Permute(_) | Op::Expand(_) | Op::Slice(_))
}

/// Whether the operation moves no element out of a partial value's order of summands.
fn passes_partial(node: &Node) -> bool {
    matches!(node.op, Op::Reshape(_) | Op::Permute(_))
}

/// The operands whose elements a node computes with: not what a barrier waits for.
fn read(node: &Node) -> &[NodeId] {
    if let Op::Barrier(_) = node.op { &node.inputs[..1] } else { &node.inputs }
}

fn replicated(mesh: &Mesh) -> Placements {
    Placements::from_elem(Placement::Replicated, mesh.axes.len())
}
