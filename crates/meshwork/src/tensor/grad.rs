//! Gradients of recorded tensors, which are recorded tensors again.

use super::Tensor;
use super::evaluate::{GONE, hold_still};
use super::node::{Inputs, Node, State};
use crate::inspect;
use meshwork_graph::graph::{Graph, Node as GraphNode, Operands};
use meshwork_graph::ops::Input;
use meshwork_graph::passes::differentiate;
use meshwork_graph::{NodeId, Op};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The gradients of a scalar `loss` by each tensor of `wrt`; zeros where it does not depend on one.
///
/// # Panics
/// When the loss is not one floating-point number, a tensor of `wrt` is no variable and depends on none, or the
/// history of the loss is gone because a gradient was taken and then a value read.
#[track_caller]
pub fn grad(loss: &Tensor, wrt: &[&Tensor]) -> Vec<Tensor> {
    grad_with(&[loss], None, wrt, false)
}

/// The gradients of `Σ outputs · cotangents` by each tensor of `wrt`; zeros where there is no dependence.
///
/// Without `cotangents` every output must be a scalar and counts once. With `create_graph` the gradients'
/// own history survives a read, so that they can be differentiated later; gradients of gradients that are taken
/// before anything is read need no flag.
///
/// # Panics
/// As [`grad`], and when a cotangent's type is not that of its output.
#[track_caller]
pub fn grad_with(
    outputs: &[&Tensor],
    cotangents: Option<&[&Tensor]>,
    wrt: &[&Tensor],
    create_graph: bool,
) -> Vec<Tensor> {
    let found = gradients(outputs, cotangents, wrt, create_graph);
    found.into_iter().zip(wrt).map(|(gradient, x)| gradient.unwrap_or_else(|| x.zeros_like())).collect()
}

/// As [`grad_with`], with `None` where the outputs do not depend on a tensor.
#[track_caller]
pub(crate) fn gradients(
    outputs: &[&Tensor],
    cotangents: Option<&[&Tensor]>,
    wrt: &[&Tensor],
    create_graph: bool,
) -> Vec<Option<Tensor>> {
    let seeds: Vec<Tensor> = match cotangents {
        Some(given) => {
            assert_eq!(given.len(), outputs.len(), "one cotangent for every output");
            for (seed, output) in given.iter().zip(outputs) {
                assert!(seed.ty() == output.ty(), "cotangent {} of an output {}", seed.ty(), output.ty());
            }
            given.iter().map(|&t| t.clone()).collect()
        }
        None => {
            for output in outputs {
                let ok = output.numel() == 1 && output.dtype().is_float();
                assert!(ok, "the gradient of {} needs a scalar loss (or cotangents)", output.ty());
            }
            outputs.iter().map(|t| t.ones_like()).collect()
        }
    };

    for x in wrt {
        assert!(x.requires_grad(), "the gradient by {} needs a variable (make it one with variable())", x.ty());
    }
    let _still = hold_still();
    let mut tape = Tape::new(wrt);
    let ends: Vec<(NodeId, NodeId)> = {
        let active: Vec<(&Tensor, &Tensor)> = outputs.iter().copied().zip(&seeds).collect();
        tape.collect(active.iter().map(|(o, _)| o.node().clone()).collect());
        active.iter().map(|(o, s)| (tape.id(o.node()), tape.leaf(s.node()))).collect()
    };
    let targets: Vec<Option<NodeId>> = wrt.iter().map(|t| tape.find(t.node())).collect();
    let known: Vec<NodeId> = targets.iter().flatten().copied().collect();
    let results = differentiate(&mut tape.graph, &ends, &known);
    inspect::pass("differentiate", &tape.graph);

    for node in &tape.active {
        node.released.store(!create_graph, Ordering::Relaxed);
    }
    let mut results = results.into_iter();
    let gradients = targets
        .into_iter()
        .map(|target| target.and_then(|_| results.next().expect("one result for every target")))
        .map(|result| result.map(|id| Tensor::hold(tape.import(id, create_graph))))
        .collect();
    if !create_graph {
        // The gradients hold what they need of values that were read early.
        tape.active.iter().for_each(|node| node.forget_history());
    }
    gradients
}

/// Recorded nodes as a graph, and back.
struct Tape {
    graph: Graph,
    nodes: Vec<Option<Arc<Node>>>,
    index: FxHashMap<*const Node, NodeId>,
    wrt: FxHashMap<*const Node, ()>,
    /// Nodes that lie between the outputs and `wrt`.
    active: Vec<Arc<Node>>,
}

impl Tape {
    fn new(wrt: &[&Tensor]) -> Self {
        let wrt = wrt.iter().map(|t| (Arc::as_ptr(t.node()), ())).collect();
        Tape { graph: Graph::new(), nodes: Vec::new(), index: FxHashMap::default(), wrt, active: Vec::new() }
    }

    /// Adds everything between the outputs and `wrt`, in the order of recording; other operands become inputs.
    #[track_caller]
    fn collect(&mut self, outputs: Vec<Arc<Node>>) {
        let mut seen: FxHashMap<*const Node, ()> = FxHashMap::default();
        let mut found: Vec<(Arc<Node>, Inputs)> = Vec::new();
        let mut stack = outputs;
        while let Some(node) = stack.pop() {
            if seen.insert(Arc::as_ptr(&node), ()).is_some() {
                continue;
            }
            // What lies beyond the only variable does not matter.
            let ends_here = self.wrt.len() == 1 && self.wrt.contains_key(&Arc::as_ptr(&node));
            let inputs = match &*node.state() {
                _ if node.boundary => Inputs::new(),
                State::Pending(inputs) | State::Ready { history: inputs, .. } => inputs.clone(),
                State::Gone => panic!("{GONE}"),
            };
            if inputs.is_empty() && !ends_here && node.history_was_freed() {
                panic!(
                    "the history of {} was freed by taking a gradient through it: take both gradients before \
                     reading a value, ask for create_graph, or detach() what is a constant",
                    node.ty
                );
            }
            stack.extend(inputs.iter().cloned());
            found.push((node, inputs));
        }
        found.sort_unstable_by_key(|(node, _)| node.id);

        let mut reaches: FxHashMap<*const Node, bool> = FxHashMap::default();
        for (node, inputs) in &found {
            let pointer = Arc::as_ptr(node);
            let reached = self.wrt.contains_key(&pointer) || inputs.iter().any(|x| reaches[&Arc::as_ptr(x)]);
            reaches.insert(pointer, reached);
        }
        for (node, inputs) in found {
            if !inputs.iter().any(|x| reaches[&Arc::as_ptr(x)]) {
                self.leaf(&node);
                continue;
            }
            let operands: Operands = inputs.iter().map(|x| self.leaf(x)).collect();
            self.push(node.op.clone(), operands, &node);
            self.active.push(node);
        }
    }

    fn push(&mut self, op: Op, inputs: Operands, node: &Arc<Node>) -> NodeId {
        let id = NodeId(self.graph.nodes.len() as u32);
        self.graph.nodes.push(GraphNode { op, inputs, ty: node.ty.clone() });
        self.nodes.push(Some(node.clone()));
        self.index.insert(Arc::as_ptr(node), id);
        id
    }

    /// The node as it is in the graph, or as a new input.
    fn leaf(&mut self, node: &Arc<Node>) -> NodeId {
        match self.index.get(&Arc::as_ptr(node)) {
            Some(&id) => id,
            None => self.push(Op::Input(Input { ty: node.ty.clone() }), Operands::new(), node),
        }
    }

    fn find(&self, node: &Arc<Node>) -> Option<NodeId> {
        self.index.get(&Arc::as_ptr(node)).copied()
    }

    fn id(&self, node: &Arc<Node>) -> NodeId {
        self.find(node).expect("outputs are collected")
    }

    /// The recorded node of a graph node, recording it and its operands where they are new.
    fn import(&mut self, id: NodeId, create_graph: bool) -> Arc<Node> {
        self.nodes.resize(self.graph.nodes.len(), None);
        let mut needed = vec![id];
        let mut stack = vec![id];
        let mut seen: FxHashMap<NodeId, ()> = FxHashMap::default();
        while let Some(id) = stack.pop() {
            for &x in &self.graph.node(id).inputs {
                if self.nodes[x.index()].is_none() && seen.insert(x, ()).is_none() {
                    needed.push(x);
                    stack.push(x);
                }
            }
        }
        needed.sort_unstable();
        for id in needed {
            if self.nodes[id.index()].is_some() {
                continue;
            }
            let node = self.graph.node(id);
            let inputs: Inputs = node
                .inputs
                .iter()
                .map(|x| self.nodes[x.index()].clone().expect("operands are recorded first"))
                .collect();
            let requires_grad = create_graph && inputs.iter().any(|x| x.requires_grad);
            let released = !create_graph && !inputs.is_empty();
            let recorded = Node::pending(node.op.clone(), node.ty.clone(), inputs, requires_grad, false);
            recorded.released.store(released, Ordering::Relaxed);
            self.nodes[id.index()] = Some(recorded);
        }
        self.nodes[id.index()].clone().expect("recorded above")
    }
}
