//! The way from a recorded graph to programs: differentiate, (split,) partition, simplify, fuse, order, place.
//!
//! Passes are functions from graphs to graphs; [`partition`] gives a graph for each piece that runs on one device, and
//! the last one, [`place`], a [`Program`] for each of them. The split pass, which spreads a graph over a mesh, belongs
//! before the partition.

mod differentiate;
mod fuse;
mod order;
mod partition;
mod place;
mod rewrite;
mod simplify;

pub use differentiate::differentiate;
pub use fuse::fuse;
pub use order::order;
pub use partition::{Partition, Piece, partition};
pub use place::{ALIGNMENT, place};
pub use simplify::simplify;

use crate::graph::Graph;
use crate::plan::{Plan, Task};
use crate::program::{Donation, Program, Target};
use std::sync::Arc;

/// Called with the name of a pass and the graph that it made.
pub type Observer<'a> = &'a mut dyn FnMut(&str, &Graph);

/// Compiles a recorded graph whose nodes are on several devices; the arguments are those of [`partition`], with the
/// target of each device.
///
/// # Panics
/// In debug builds, when a pass makes an illegal graph.
pub fn plan(
    graph: &Graph,
    devices: &[Option<u32>],
    home: u32,
    donation: &Donation,
    target: &dyn Fn(u32) -> Box<dyn Target>,
    observe: Observer,
) -> Plan {
    observe("record", graph);
    let partition = partition(graph, devices, home, donation);
    let compiled = |piece| match piece {
        Piece::Run { device, graph, inputs, donation, outputs } => {
            let program = Arc::new(compile(&graph, &donation, &*target(device), &mut *observe));
            Task::Run { device, program, inputs, outputs }
        }
        Piece::Copy { value, to, result, ty } => Task::Copy { value, to, result, ty },
    };
    let tasks = partition.pieces.into_iter().map(compiled).collect();
    Plan { tasks, values: partition.values, outputs: partition.outputs }
}

/// Compiles a recorded graph for a device. Inputs are numbered in the order of their nodes.
///
/// # Panics
/// In debug builds, when a pass makes an illegal graph.
pub fn compile(graph: &Graph, donation: &Donation, target: &dyn Target, observe: Observer) -> Program {
    let mut check = |name: &str, graph: &Graph| {
        if cfg!(debug_assertions)
            && let Err(e) = graph.verify()
        {
            panic!("pass {name} made an illegal graph: {e}\n{graph}");
        }
        observe(name, graph);
    };
    check("piece", graph);
    let graph = simplify(graph);
    check("simplify", &graph);
    let graph = fuse(&graph);
    check("fuse", &graph);
    let graph = order(&graph);
    check("order", &graph);
    place(&graph, donation, target)
}
