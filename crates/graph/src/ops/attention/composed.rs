//! Gradients of the normalizer and of the gradients of attention, made of ordinary nodes: scores are written here.

use super::{Attention, AttentionInput, AttentionResult, Index, Sizes, wide};
use crate::canonical::Blocking;
use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::Backward;
use crate::ops::{BinaryOp, Dot, Iota, Reduce, ReduceOp, UnaryOp};
use crate::shape::{Dims, Shape, Type};

/// Builds nodes in the dtype of the computation, with heads outside of positions: `[B, H, T or S, …]`.
struct Composer<'a> {
    g: &'a mut Graph,
    op: &'a Attention,
    sizes: Sizes,
    dtype: DType,
}

/// The gradients by each operand of a part of attention that is not its output, in their order.
pub(super) fn gradient(op: &Attention, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
    let types: Vec<&Type> = b.inputs.iter().map(|&x| g.ty(x)).collect();
    let sizes = op.sizes(&types).expect("a legal node");
    let dtype = wide(types[0].dtype);
    let names = op.inputs();
    let operand = |name: AttentionInput| names.iter().position(|x| *x == name).map(|i| b.inputs[i]);
    let found = Composer { g, op, sizes, dtype }.gradients(&operand, b);
    let own_type = |name: &AttentionInput| {
        let gradient = found.iter().find(|(other, _)| other == name)?.1;
        let dtype = g.ty(operand(*name)?).dtype;
        Some(g.cast(gradient, dtype))
    };
    names.iter().map(own_type).collect()
}

impl Composer<'_> {
    fn size(&self, index: Index) -> usize {
        self.sizes[index as usize]
    }

    /// `[B, H, T, S]`.
    fn scores_shape(&self) -> Shape {
        [Index::Batch, Index::QueryHeads, Index::Queries, Index::Keys].map(|index| self.size(index)).into()
    }

    fn scaled(&mut self, x: NodeId) -> NodeId {
        let scale = self.g.scalar_like(x, self.op.scale.as_f64());
        self.g.mul(x, scale)
    }

    /// `[B, T, H, X] -> [B, H, T, X]`.
    fn of_queries(&mut self, x: NodeId) -> NodeId {
        let x = self.g.cast(x, self.dtype);
        self.g.permute(x, &[0, 2, 1, 3])
    }

    /// `[B, S, G, X] -> [B, H, S, X]`.
    fn of_keys(&mut self, x: NodeId) -> NodeId {
        let x = self.of_queries(x);
        let [batch, groups, keys, width] = self.g.ty(x).shape[..] else { unreachable!("four dims") };
        let heads = self.size(Index::QueryHeads);
        let x = self.g.reshape(x, [batch, groups, 1, keys, width].into());
        let x = self.g.expand(x, [batch, groups, heads / groups.max(1), keys, width].into());
        self.g.reshape(x, [batch, heads, keys, width].into())
    }

    /// The transpose of [`of_keys`](Self::of_keys): heads of a group are added.
    fn to_keys(&mut self, x: NodeId) -> NodeId {
        let [batch, heads, keys, width] = self.g.ty(x).shape[..] else { unreachable!("four dims") };
        let groups = self.size(Index::KeyHeads);
        let x = self.g.reshape(x, [batch, groups, heads / groups.max(1), keys, width].into());
        let x = self.g.reduce(Reduce::new(ReduceOp::Sum, &[2]), x);
        self.g.permute(x, &[0, 2, 1, 3])
    }

    /// A number for each row of the scores, `[B, T, H]`, at each of its elements.
    fn of_rows(&mut self, x: NodeId) -> NodeId {
        let x = self.g.permute(x, &[0, 2, 1]);
        let shape = self.scores_shape();
        self.g.restore(x, &[3], &shape)
    }

    /// Minus the sums of the rows, `[B, T, H]`.
    fn taken_from_rows(&mut self, x: NodeId) -> NodeId {
        let sums = self.g.reduce(Reduce::new(ReduceOp::Sum, &[3]), x);
        let sums = self.g.permute(sums, &[0, 2, 1]);
        self.g.unary(UnaryOp::Neg, sums)
    }

    /// The products of two values over one dimension each, for each sample and head.
    fn dot(&mut self, lhs: NodeId, left: usize, rhs: NodeId, right: usize) -> NodeId {
        let dims = Dims::from_slice;
        let dot = Dot {
            lhs_batch: dims(&[0, 1]),
            rhs_batch: dims(&[0, 1]),
            lhs_contract: dims(&[left]),
            rhs_contract: dims(&[right]),
            blocking: Blocking::Features,
        };
        self.g.add_node(dot, &[lhs, rhs])
    }

    /// Positions along a dimension of the scores, from `first`.
    fn positions(&mut self, dim: usize, first: i64) -> NodeId {
        let iota = Iota::new(self.scores_shape(), dim, DType::I64);
        let iota = self.g.add_node(iota, &[]);
        let first = self.g.scalar_like(iota, first as f64);
        self.g.add(iota, first)
    }

    /// Whether each query sees each key, where that is not always so.
    fn seen(&mut self, lengths: Option<NodeId>) -> Option<NodeId> {
        let (shape, mask) = (self.scores_shape(), self.op.mask);
        let mut conditions = Vec::new();
        if mask.causal {
            let (queries, keys) = (self.positions(2, mask.first_query), self.positions(3, mask.first_key));
            conditions.push(self.g.binary(BinaryOp::Le, keys, queries));
        }
        if let Some(lengths) = lengths {
            let keys = self.positions(3, mask.first_key);
            let lengths = self.g.restore(lengths, &[1, 2, 3], &shape);
            conditions.push(self.g.binary(BinaryOp::Lt, keys, lengths));
        }
        conditions.into_iter().reduce(|a, b| self.g.binary(BinaryOp::And, a, b))
    }

    /// The gradients of what the node computes, by operand.
    fn gradients(
        mut self,
        operand: &dyn Fn(AttentionInput) -> Option<NodeId>,
        b: &Backward,
    ) -> Vec<(AttentionInput, NodeId)> {
        use AttentionInput::{Delta, Gradient, Key, Normalizer, Query, Value};
        let result = self.op.results[0];
        let given = |name| operand(name).expect("an operand of this result");
        let (q, k) = (self.of_queries(given(Query)), self.of_keys(given(Key)));
        // The weights: exponentials of scores less the normalizer.
        let scores = self.dot(q, 3, k, 3);
        let scores = self.scaled(scores);
        let normalizer = operand(Normalizer).unwrap_or(b.output);
        let normalizer = self.of_rows(normalizer);
        let mut logarithms = self.g.sub(scores, normalizer);
        if let Some(seen) = self.seen(operand(AttentionInput::Lengths)) {
            let none = self.g.scalar_like(logarithms, f64::NEG_INFINITY);
            logarithms = self.g.select(seen, logarithms, none);
        }
        let weights = self.g.unary(UnaryOp::Exp, logarithms);

        let mut found = Vec::new();
        // Gradients by scores, by queries and by keys as far as they do not come by way of the scores.
        let (by_scores, by_query, by_key) = match result {
            AttentionResult::Normalizer => {
                let grad = self.of_rows(b.grad);
                (self.g.mul(weights, grad), None, None)
            }
            AttentionResult::Value => {
                let (grad, gradient) = (self.of_keys(b.grad), self.of_queries(given(Gradient)));
                let by_gradient = self.dot(weights, 3, grad, 2);
                found.push((Gradient, by_gradient));
                let by_weights = self.dot(gradient, 3, grad, 3);
                (self.g.mul(by_weights, weights), None, None)
            }
            _ => {
                let (v, gradient) = (self.of_keys(given(Value)), self.of_queries(given(Gradient)));
                let (products, delta) = (self.dot(gradient, 3, v, 3), self.of_rows(given(Delta)));
                let rest = self.g.sub(products, delta);
                let slopes = self.g.mul(weights, rest);
                let (by_slopes, by_query, by_key) = if result == AttentionResult::Query {
                    let grad = self.of_queries(b.grad);
                    (self.dot(grad, 3, k, 3), None, Some(self.dot(slopes, 2, grad, 2)))
                } else {
                    let grad = self.of_keys(b.grad);
                    (self.dot(q, 3, grad, 3), Some(self.dot(slopes, 3, grad, 2)), None)
                };
                let by_slopes = self.scaled(by_slopes);
                let by_rest = self.g.mul(by_slopes, weights);
                found.push((Delta, self.taken_from_rows(by_rest)));
                found.push((Gradient, self.dot(by_rest, 3, v, 2)));
                found.push((Value, self.dot(by_rest, 2, gradient, 2)));
                (self.g.mul(by_rest, rest), by_query, by_key)
            }
        };
        if result != AttentionResult::Normalizer {
            found.push((Normalizer, self.taken_from_rows(by_scores)));
        }
        let through = [self.dot(by_scores, 3, k, 2), self.dot(by_scores, 2, q, 2)];
        for ((name, through), direct) in [Query, Key].into_iter().zip(through).zip([by_query, by_key]) {
            let sum = direct.map_or(through, |direct| self.g.add(direct, through));
            found.push((name, self.scaled(sum)));
        }
        let turned = |(name, gradient): (AttentionInput, NodeId)| match name {
            Query | Gradient => (name, self.g.permute(gradient, &[0, 2, 1, 3])),
            Key | Value => (name, self.to_keys(gradient)),
            _ => (name, gradient),
        };
        found.into_iter().map(turned).collect()
    }
}
