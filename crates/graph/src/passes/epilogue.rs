//! Gives products the regions that follow on their elements.

use super::rewrite::Rewrite;
use super::uses::{Uses, is_no_kernel, is_view};
use crate::graph::{Graph, Node, NodeId, Operands};
use crate::op::Op;
use crate::ops::Epilogue;
use crate::program::Target;
use crate::shape::Type;
use rustc_hash::{FxHashMap, FxHashSet};

/// Makes one kernel of a product and the region of single elements that alone reads it, where the target has such kernels.
///
/// The kernel runs where the product did, if all else that the region reads is there by then and nobody in between reads an
/// input that the region could overwrite; so the gradient of a weight and its optimizer's step become one. Otherwise it runs
/// where the region did, if there is no kernel in between: what the product reads need not stay in memory for longer.
pub fn epilogue(graph: &Graph, target: &dyn Target) -> Graph {
    let uses = Uses::new(graph);
    let mut rewrite = Rewrite::new(graph);
    let mut waiting: FxHashMap<NodeId, Joint> = FxHashMap::default();
    for id in graph.ids() {
        if rewrite.is_done(id) {
            continue;
        }
        if let Some(joint) = waiting.remove(&id) {
            joint.emit(&mut rewrite);
            continue;
        }
        match Joint::of(graph, &uses, target, id) {
            Some(joint) if joint.may_run_early(&rewrite) => joint.emit(&mut rewrite),
            Some(joint) if joint.may_run_late() => _ = waiting.insert(joint.region, joint),
            _ => copy(&mut rewrite, id),
        }
    }
    rewrite.finish()
}

fn copy(rewrite: &mut Rewrite, id: NodeId) {
    let new = rewrite.push(rewrite.moved(id));
    rewrite.set(id, new);
}

/// A product and the region that becomes its epilogue.
struct Joint<'a> {
    graph: &'a Graph,
    product: NodeId,
    region: NodeId,
    op: Epilogue,
}

impl<'a> Joint<'a> {
    fn of(graph: &'a Graph, uses: &Uses, target: &dyn Target, product: NodeId) -> Option<Self> {
        let node = graph.node(product);
        let Op::Dot(dot) = &node.op else { return None };
        let &[region] = &uses.readers[product.index()][..] else { return None };
        let Op::Fused(fused) = &graph.node(region).op else { return None };
        let at = graph.node(region).inputs.iter().position(|&x| x == product)?;
        let of_elements = fused.space.columns() == 1 && !fused.inputs[at].of_rows;
        if uses.wanted.contains(&product) || !of_elements {
            return None;
        }
        let (dot, fused) = (Box::new(dot.clone()), Box::new(fused.clone()));
        let op = Epilogue { dot, product: node.ty.clone(), fused, at };
        let joint = Joint { graph, product, region, op };
        let types: Vec<&Type> = joint.operands().map(|x| graph.ty(x)).collect();
        target.has_epilogues(&joint.op, &types).then_some(joint)
    }

    /// What the region reads besides the product.
    fn others(&self) -> impl Iterator<Item = NodeId> {
        self.graph.node(self.region).inputs.iter().copied().filter(|&x| x != self.product)
    }

    fn operands(&self) -> impl Iterator<Item = NodeId> {
        self.graph.node(self.product).inputs.iter().copied().chain(self.others())
    }

    fn between(&self) -> impl Iterator<Item = &'a Node> {
        let graph = self.graph;
        (self.product.index() + 1..self.region.index()).map(|i| &graph.nodes[i])
    }

    /// Whose memory a value lies in.
    fn root(&self, mut id: NodeId) -> NodeId {
        while is_view(&self.graph.node(id).op) {
            id = self.graph.node(id).inputs[0];
        }
        id
    }

    fn may_run_early(&self, rewrite: &Rewrite) -> bool {
        let mut open: Vec<NodeId> = self.others().collect();
        while let Some(x) = open.pop() {
            let node = self.graph.node(x);
            match () {
                () if rewrite.is_done(x) => {}
                () if is_no_kernel(&node.op) => open.extend(&node.inputs),
                () => return false,
            }
        }
        // Values that were there before, such as weights, whose memory the results may take over.
        let elements = self.op.fused.space.shape.numel();
        let is_input = |id: &NodeId| {
            let node = self.graph.node(*id);
            matches!(node.op, Op::Input(_)) && node.ty.shape.numel() == elements
        };
        let needed: FxHashSet<NodeId> = self.others().map(|x| self.root(x)).filter(is_input).collect();
        let reads = |node: &Node| !is_view(&node.op) && node.inputs.iter().any(|&x| needed.contains(&self.root(x)));
        !self.between().any(reads)
    }

    fn may_run_late(&self) -> bool {
        self.between().all(|node| is_no_kernel(&node.op))
    }

    /// Adds the kernel, and the views before it that it reads.
    fn emit(self, rewrite: &mut Rewrite) {
        let mut open: Vec<NodeId> = self.operands().collect();
        while let Some(&x) = open.last() {
            let missing = |y: &&NodeId| !rewrite.is_done(**y);
            match self.graph.node(x).inputs.iter().find(missing) {
                _ if rewrite.is_done(x) => _ = open.pop(),
                Some(&y) => open.push(y),
                None => copy(rewrite, x),
            }
        }
        let inputs: Operands = self.operands().map(|x| rewrite.get(x)).collect();
        let ty = self.graph.ty(self.region).clone();
        let whole = rewrite.push(Node { op: Op::Epilogue(self.op), inputs, ty });
        rewrite.set(self.region, whole);
    }
}
