//! The way from a recorded graph to programs: differentiate, split, partition, simplify, fuse, join, order, give products their
//! epilogues, chain, place.
//!
//! Passes are functions from graphs to graphs; [`split`] spreads what is on a mesh over its devices, [`partition`] gives a
//! graph for each piece that runs on one device, and the last one, [`place`], a [`Program`] for each of them.

mod arena;
mod chain;
mod differentiate;
mod epilogue;
mod fuse;
mod join;
mod order;
mod partition;
mod place;
mod recompute;
mod rewrite;
mod simplify;
mod split;
mod uses;
mod work;

pub use chain::chain;
pub use differentiate::{differentiate, differentiate_with};
pub use epilogue::epilogue;
pub use fuse::fuse;
pub use join::join;
pub use order::order;
pub use partition::{Partition, Piece, partition};
pub use place::{ALIGNMENT, place};
pub use recompute::Checkpoints;
pub use simplify::simplify;
pub use split::{Collective, CutReduction, Exchange, Sites, Split, split};

use crate::graph::{Graph, NodeId};
use crate::mesh::Placements;
use crate::op::Op;
use crate::plan::{Plan, Task};
use crate::program::{Donation, Program, Target};
use std::sync::Arc;

/// Called with the name of a pass and the graph that it made.
pub type Observer<'a> = &'a mut dyn FnMut(&str, &Graph);

/// Compiles a recorded graph whose nodes are on several devices and meshes. `donation` says for each input whether it may
/// be overwritten; nodes that are on no device are computed at `home` if nobody needs them elsewhere.
///
/// # Panics
/// In debug builds, when a pass makes an illegal graph.
pub fn plan(
    graph: &Graph,
    sites: &Sites,
    home: u32,
    donation: &Donation,
    target: &dyn Fn(u32) -> Box<dyn Target>,
    observe: Observer,
) -> Plan {
    observe("record", graph);
    if sites.meshes.is_empty() {
        let partition = partition(graph, sites.of, &[], home, donation);
        return compiled(partition, Vec::new(), Vec::new(), target, observe);
    }
    let Split { graph: spread, devices, phases, outputs, exchanges } = split(graph, sites);
    verify("split", &spread);
    observe("split", &spread);
    let donation = donation_of_parts(graph, sites, donation);
    let partition = partition(&spread, &devices, &phases, home, &donation);
    compiled(partition, outputs, exchanges, target, observe)
}

fn compiled(
    partition: Partition,
    spread: Vec<Option<Placements>>,
    exchanges: Vec<Exchange>,
    target: &dyn Fn(u32) -> Box<dyn Target>,
    observe: Observer,
) -> Plan {
    let compiled = |piece| match piece {
        Piece::Run { device, graph, inputs, donation, outputs } => {
            let program = Arc::new(compile(&graph, &donation, &*target(device), &mut *observe));
            Task::Run { device, program, inputs, outputs }
        }
        Piece::Copy { value, offset, to, result, ty, after } => Task::Copy { value, offset, to, result, ty, after },
    };
    let tasks = partition.pieces.into_iter().map(compiled).collect();
    Plan { tasks, values: partition.values, outputs: partition.outputs, spread, exchanges }
}

/// For every part of an input what is said of the input.
fn donation_of_parts(graph: &Graph, sites: &Sites, donation: &Donation) -> Donation {
    let inputs = graph.ids().filter(|&id| matches!(graph.node(id).op, Op::Input(_)));
    let parts = |id: NodeId| {
        let mesh = sites.of[id.index()].and_then(|number| sites.meshes.get(&number));
        mesh.map_or(1, |mesh| mesh.stored(&graph.ty(id).shape, &sites.leaves[&id]).len())
    };
    inputs.zip(donation).flat_map(|(id, &donated)| std::iter::repeat_n(donated, parts(id))).collect()
}

fn verify(name: &str, graph: &Graph) {
    if cfg!(debug_assertions)
        && let Err(e) = graph.verify()
    {
        panic!("pass {name} made an illegal graph: {e}\n{graph}");
    }
}

/// Compiles a recorded graph for a device. Inputs are numbered in the order of their nodes.
///
/// # Panics
/// In debug builds, when a pass makes an illegal graph.
pub fn compile(graph: &Graph, donation: &Donation, target: &dyn Target, observe: Observer) -> Program {
    let mut check = |name: &str, graph: &Graph| {
        verify(name, graph);
        observe(name, graph);
    };
    check("piece", graph);
    let graph = simplify(graph);
    check("simplify", &graph);
    let graph = fuse(&graph);
    check("fuse", &graph);
    let graph = join(&graph);
    check("join", &graph);
    let graph = order(&graph);
    check("order", &graph);
    let graph = epilogue(&graph, target);
    check("epilogue", &graph);
    let graph = chain(&graph, target);
    check("chain", &graph);
    place(&graph, donation, target)
}
