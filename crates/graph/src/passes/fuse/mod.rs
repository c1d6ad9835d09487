//! Groups elementwise operations into regions that run tile by tile, so that values inside never reach memory.

mod regions;

use super::rewrite::{Rewrite, live};
use crate::dtype::{DType, Scalar};
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::op::Op;
use crate::ops::{Element, Fused, Instr, Part};
use crate::shape::Type;
use regions::Regions;
use std::collections::HashMap;

/// Turns every elementwise operation into (part of) a [`Fused`] region.
///
/// Nothing is computed twice: a value that is also needed outside of its region is one of the region's results.
/// Constants become instructions.
pub fn fuse(graph: &Graph) -> Graph {
    let regions = Regions::new(graph);
    let mut rewrite = Rewrite::new(graph);
    let mut done = vec![false; graph.nodes.len()];
    for id in graph.ids() {
        // Inputs keep their order, since callers number them.
        if matches!(graph.node(id).op, Op::Input(_)) {
            emit(&regions, &mut rewrite, &mut done, id);
        }
    }
    for id in graph.ids().filter(|&id| regions.live[id.index()]) {
        // A region comes with its last member, unless it is needed before.
        if regions.members(id).is_none_or(|members| members.last() == Some(&id)) {
            emit(&regions, &mut rewrite, &mut done, id);
        }
    }
    drop_dead(&rewrite.finish())
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
        let members = regions.members(top).unwrap_or(std::slice::from_ref(&top));
        let inputs = members.iter().flat_map(|&m| &graph.node(m).inputs);
        let waiting = stack.len();
        stack.extend(inputs.filter(|x| !done[x.index()] && !members.contains(x)));
        if stack.len() > waiting {
            continue;
        }
        stack.pop();
        match regions.members(top) {
            None => {
                let new = rewrite.push(rewrite.moved(top));
                rewrite.set(top, new);
            }
            Some(members) => region(regions, rewrite, members),
        }
        members.iter().for_each(|m| done[m.index()] = true);
    }
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

/// Adds the region of these members, ascending, and its results.
fn region(regions: &Regions, rewrite: &mut Rewrite, members: &[NodeId]) {
    let graph = rewrite.old;
    let mut inputs = regions.inputs(members);
    if inputs.is_empty() {
        // A region of constants alone reads one of them, so that its shape is known.
        inputs.push(graph.node(members[0]).inputs[0]);
    }
    let mut registers: HashMap<NodeId, u16> = inputs.iter().enumerate().map(|(i, &x)| (x, i as u16)).collect();
    let mut constants: HashMap<(Scalar, DType), u16> = HashMap::new();
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
    let results = regions.results(members);
    let fused = Fused {
        inputs: inputs.iter().map(|&x| graph.ty(x).dtype).collect(),
        code,
        outputs: results.iter().map(|id| registers[id]).collect(),
    };
    let operands: Operands = inputs.iter().map(|&x| rewrite.get(x)).collect();
    let ty = |id: NodeId| -> Type { graph.ty(id).clone() };
    let whole = rewrite.push(Node { op: Op::Fused(fused), inputs: operands, ty: ty(results[0]) });
    rewrite.set(results[0], whole);
    for (index, &id) in results.iter().enumerate().skip(1) {
        let part = Part { index, ty: ty(id) };
        let part = rewrite.push(Node { op: Op::Part(part), inputs: Operands::from_slice(&[whole]), ty: ty(id) });
        rewrite.set(id, part);
    }
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
