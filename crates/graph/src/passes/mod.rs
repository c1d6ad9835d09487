//! The way from a recorded graph to a program: differentiate, simplify, (split,) fuse, order, place.
//!
//! Passes are functions from graphs to graphs; the last one, [`place`], gives the [`Program`]. The split pass, which
//! spreads a graph over a mesh, belongs between simplify and fuse.

mod differentiate;
mod fuse;
mod order;
mod place;
mod rewrite;
mod simplify;

pub use differentiate::differentiate;
pub use fuse::fuse;
pub use order::order;
pub use place::{ALIGNMENT, place};
pub use simplify::simplify;

use crate::graph::Graph;
use crate::program::{Donation, Program, Target};

/// Called with the name of a pass and the graph that it made.
pub type Observer<'a> = &'a mut dyn FnMut(&str, &Graph);

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
    check("record", graph);
    let graph = simplify(graph);
    check("simplify", &graph);
    let graph = fuse(&graph);
    check("fuse", &graph);
    let graph = order(&graph);
    check("order", &graph);
    place(&graph, donation, target)
}
