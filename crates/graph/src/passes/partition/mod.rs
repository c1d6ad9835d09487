//! From a graph whose nodes are on several devices to pieces that run on one each, and the copies between them.
//!
//! A piece starts when all its inputs are there, so nodes that wait for different copies must not share one: a node's
//! piece is its device and the set of all copies that it depends on, directly or not. The sets grow along every edge
//! between pieces. (Inside a device an edge between pieces leads to a larger set by definition of a piece; a copy is
//! in the set of whoever reads it, and not in that of the value that is copied.) So no pieces can wait for each other
//! in a circle, and a copy starts, and what needs it follows, as soon as its value is there. Copies of one
//! [bundle](crate::ops::ToDevice) count as one: what needs them is one piece, as if the last of them was all of them. Where
//! copies wait for room, a copy depends on the piece that makes it, which may be one of an earlier phase: there copies count
//! as one only with those of their phase.
//!
//! Nodes without a device (constants, positions, random values of a key) are computed wherever they are needed; views
//! are taken anew in each piece that reads them. Neither costs a copy, and neither changes a bit.

mod copies;
mod division;
mod order;
mod window;

use crate::graph::Graph;
use crate::op::Op;
use crate::program::Donation;
use crate::shape::Type;
use division::Division;

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
        /// A result of the piece that must have ended before the copy begins.
        after: Option<usize>,
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
