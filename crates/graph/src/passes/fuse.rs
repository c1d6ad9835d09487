//! Groups elementwise operations into regions that run tile by tile, so that values inside never reach memory.

use super::rewrite::{Rewrite, live};
use crate::dtype::Scalar;
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::op::Op;
use crate::ops::{Element, Fused, Instr};
use std::collections::HashMap;

/// Most instructions of a region: its values must fit into the first-level cache, tile by tile.
const MAX_INSTRUCTIONS: usize = 48;
/// Most inputs of a region.
const MAX_INPUTS: usize = 16;

/// Turns every elementwise operation into (part of) a [`Fused`] region.
///
/// A node joins the region of its users when all of them are in one region of the same shape; nothing is computed
/// twice. Constants become instructions.
pub fn fuse(graph: &Graph) -> Graph {
    let roots = regions(graph);
    let mut members: HashMap<NodeId, Vec<NodeId>> = HashMap::new();
    for id in graph.ids() {
        if let Some(root) = roots[id.index()] {
            members.entry(root).or_default().push(id);
        }
    }
    let mut rewrite = Rewrite::new(graph);
    let live = live(graph);
    for id in graph.ids().filter(|id| live[id.index()]) {
        let new = match roots[id.index()] {
            None => rewrite.push(rewrite.moved(id)),
            Some(root) if root == id => {
                let node = region(&rewrite, &members[&id]);
                rewrite.push(node)
            }
            Some(_) => continue,
        };
        rewrite.set(id, new);
    }
    let fused = rewrite.finish();
    drop_dead(&fused)
}

/// For every live elementwise node the last node of its region.
fn regions(graph: &Graph) -> Vec<Option<NodeId>> {
    let live = live(graph);
    let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); graph.nodes.len()];
    for id in graph.ids().filter(|id| live[id.index()]) {
        for x in &graph.node(id).inputs {
            users[x.index()].push(id);
        }
    }
    let mut wanted = vec![false; graph.nodes.len()];
    for o in &graph.outputs {
        wanted[o.index()] = true;
    }
    let mut roots: Vec<Option<NodeId>> = vec![None; graph.nodes.len()];
    let mut sizes: HashMap<NodeId, (usize, usize)> = HashMap::new();
    for id in graph.ids().rev() {
        let node = graph.node(id);
        if !live[id.index()] || !matches!(node.op, Op::Element(_)) {
            continue;
        }
        let shared = users[id.index()].first().and_then(|u| roots[u.index()]).filter(|root| {
            let (instructions, inputs) = sizes[root];
            !wanted[id.index()]
                && graph.ty(*root).shape == node.ty.shape
                && users[id.index()].iter().all(|u| roots[u.index()] == Some(*root))
                && instructions < MAX_INSTRUCTIONS
                && inputs + node.inputs.len() <= MAX_INPUTS
        });
        let root = shared.unwrap_or(id);
        roots[id.index()] = Some(root);
        let size = sizes.entry(root).or_insert((0, 1));
        *size = (size.0 + 1, size.1 + node.inputs.len().saturating_sub(1));
    }
    roots
}

/// The constant at every element of a value, as an instruction holds it.
pub(super) fn constant(graph: &Graph, id: NodeId) -> Option<Scalar> {
    let node = graph.node(id);
    match &node.op {
        Op::Const(c) => Some(c.value),
        Op::Reshape(_) | Op::Expand(_) => constant(graph, node.inputs[0]),
        _ => None,
    }
}

/// The region of these members (ascending; the last is the root) as one node of the new graph.
fn region(rewrite: &Rewrite, members: &[NodeId]) -> Node {
    let graph = rewrite.old;
    let is_inside = |id: &NodeId| members.binary_search(id).is_ok();
    let mut inputs: Vec<NodeId> = Vec::new();
    for &id in members {
        for &x in &graph.node(id).inputs {
            if !is_inside(&x) && constant(graph, x).is_none() && !inputs.contains(&x) {
                inputs.push(x);
            }
        }
    }
    if inputs.is_empty() {
        // A region of constants alone reads one of them, so that its shape is known.
        inputs.push(graph.node(members[0]).inputs[0]);
    }
    let mut registers: HashMap<NodeId, u16> = inputs.iter().enumerate().map(|(i, &x)| (x, i as u16)).collect();
    let mut constants: HashMap<(Scalar, crate::dtype::DType), u16> = HashMap::new();
    let mut code: Vec<Instr> = Vec::new();
    for &id in members {
        let node = graph.node(id);
        let mut args = [0; 3];
        for (arg, &x) in args.iter_mut().zip(&node.inputs) {
            *arg = match registers.get(&x) {
                Some(&register) => register,
                None => {
                    let value = constant(graph, x).expect("inputs, constants and members are all there is");
                    let dtype = graph.ty(x).dtype;
                    *constants.entry((value, dtype)).or_insert_with(|| {
                        code.push(Instr { op: Element::Const(value), args: [0; 3], dtype });
                        (inputs.len() + code.len() - 1) as u16
                    })
                }
            };
        }
        let Op::Element(op) = node.op else { unreachable!("members are elementwise") };
        code.push(Instr { op, args, dtype: node.ty.dtype });
        registers.insert(id, (inputs.len() + code.len() - 1) as u16);
    }
    let root = graph.node(*members.last().expect("a region has a root"));
    let dtypes = inputs.iter().map(|&x| graph.ty(x).dtype).collect();
    let operands: Operands = inputs.iter().map(|&x| rewrite.get(x)).collect();
    Node { op: Op::Fused(Fused { inputs: dtypes, code }), inputs: operands, ty: root.ty.clone() }
}

/// Constants that have become instructions are needed no more.
fn drop_dead(graph: &Graph) -> Graph {
    let live = live(graph);
    let mut rewrite = Rewrite::new(graph);
    for id in graph.ids().filter(|id| live[id.index()]) {
        let new = rewrite.push(rewrite.moved(id));
        rewrite.set(id, new);
    }
    rewrite.finish()
}
