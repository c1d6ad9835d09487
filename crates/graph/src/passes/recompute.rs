//! Nodes that are computed a second time for their gradients instead of being kept (Chen et al., 2016, "Training Deep Nets
//! with Sublinear Memory Cost").

use crate::graph::{Graph, Node, NodeId, Operands};
use crate::op::Op;
use crate::ops::Barrier;
use rustc_hash::FxHashMap;

/// Which nodes of a graph are computed again for their gradients.
#[derive(Clone, Debug, Default)]
pub struct Checkpoints {
    /// For each node the innermost segment that it belongs to. Nodes behind the last of these belong to none.
    pub segments: Vec<Option<usize>>,
    /// For each segment the one around it.
    pub parents: Vec<Option<usize>>,
    /// Whether gradients stop at a node, though its operands are there.
    pub stops: Vec<bool>,
    /// Whether a value is there all the time anyway: a parameter.
    pub kept: Vec<bool>,
}

/// The second computations, made when a gradient comes to a segment first.
pub(super) struct Recompute<'a> {
    checkpoints: &'a Checkpoints,
    /// The nodes of each segment, those of inner ones included, in order.
    members: Vec<Vec<NodeId>>,
    /// For each segment that has been computed again, the gradient that came first, and what stands for the values inside and
    /// those that it reads from outside.
    again: Vec<Option<(NodeId, FxHashMap<NodeId, NodeId>)>>,
}

impl<'a> Recompute<'a> {
    pub fn new(checkpoints: &'a Checkpoints) -> Recompute<'a> {
        let mut members = vec![Vec::new(); checkpoints.parents.len()];
        for (i, &segment) in checkpoints.segments.iter().enumerate() {
            let mut around = segment;
            while let Some(segment) = around {
                members[segment].push(NodeId(i as u32));
                around = checkpoints.parents[segment];
            }
        }
        Recompute { checkpoints, members, again: vec![None; checkpoints.parents.len()] }
    }

    pub fn stops_at(&self, id: NodeId) -> bool {
        self.checkpoints.stops.get(id.index()).copied().unwrap_or(false)
    }

    /// What stands for a value where the gradient of `node` is computed, to which `gradient` has come.
    pub fn value(&mut self, graph: &mut Graph, node: NodeId, x: NodeId, gradient: NodeId) -> NodeId {
        match self.checkpoints.segments.get(node.index()).copied().flatten() {
            None => x,
            Some(segment) => {
                self.enter(graph, segment, gradient);
                self.inside(graph, segment, x)
            }
        }
    }

    /// Computes a segment again, unless that has been done.
    fn enter(&mut self, graph: &mut Graph, segment: usize, gradient: NodeId) {
        if self.again[segment].is_some() {
            return;
        }
        if let Some(around) = self.checkpoints.parents[segment] {
            self.enter(graph, around, gradient);
        }
        self.again[segment] = Some((gradient, FxHashMap::default()));
        for id in std::mem::take(&mut self.members[segment]) {
            let Node { op, inputs, ty } = graph.node(id).clone();
            if matches!(op, Op::Input(_)) {
                continue;
            }
            let mut again: Operands = inputs.iter().map(|&x| self.inside(graph, segment, x)).collect();
            // Numbers, parameters and other looks at them are there anyway. What is computed from nothing else is not.
            let has_value = matches!(op, Op::Random(_)) || inputs.iter().any(|&x| !is_number(graph, x));
            if again == inputs && has_value && !is_look(&op) {
                again = inputs.iter().map(|&x| self.behind(graph, segment, x)).collect();
            }
            let copy = if again == inputs {
                id
            } else {
                graph.nodes.push(Node { op, inputs: again, ty });
                NodeId(graph.nodes.len() as u32 - 1)
            };
            self.known(segment).insert(id, copy);
        }
    }

    fn known(&mut self, segment: usize) -> &mut FxHashMap<NodeId, NodeId> {
        &mut self.again[segment].as_mut().expect("the segment is computed again").1
    }

    /// What stands for a value inside a segment.
    fn inside(&mut self, graph: &mut Graph, segment: usize, x: NodeId) -> NodeId {
        if let Some(&known) = self.known(segment).get(&x) {
            return known;
        }
        let is_kept = self.checkpoints.kept.get(x.index()).copied().unwrap_or(false);
        if is_kept || is_number(graph, x) {
            return x;
        }
        let outer = match self.checkpoints.parents[segment] {
            Some(around) => self.inside(graph, around, x),
            None => x,
        };
        let barrier = self.behind(graph, segment, outer);
        self.known(segment).insert(x, barrier);
        barrier
    }

    /// A value from outside, behind the first gradient that has come to the segment.
    fn behind(&self, graph: &mut Graph, segment: usize, x: NodeId) -> NodeId {
        let gradient = self.again[segment].as_ref().expect("the segment is computed again").0;
        graph.add_node(Barrier, &[x, gradient])
    }
}

fn is_number(graph: &Graph, id: NodeId) -> bool {
    let node = graph.node(id);
    match node.op {
        Op::Input(_) => node.ty.shape.rank() == 0,
        Op::Const(_) | Op::Iota(_) => true,
        Op::Reshape(_) | Op::Expand(_) => is_number(graph, node.inputs[0]),
        _ => false,
    }
}

/// Whether an operation gives its operand in another form.
fn is_look(op: &Op) -> bool {
    use Op::*;
    matches!(op, Const(_) | Iota(_) | Reshape(_) | Permute(_) | Expand(_) | Slice(_) | Place(_) | ToDevice(_))
        || matches!(op, Element(crate::ops::Element::Cast(_)))
}
