//! Sum, product, maximum and minimum over dimensions.

use crate::canonical::{Blocking, Blocks};
use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::{BinaryOp, UnaryOp};
use crate::rule::{Kind, SplitRule};
use crate::shape::{Dims, Shape, Type};

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ReduceOp {
    Sum,
    Prod,
    /// NaN when any element is NaN.
    Max,
    /// NaN when any element is NaN.
    Min,
}

impl ReduceOp {
    /// The name in printed graphs.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
        }
    }
}

/// A reduction; the reduced dimensions vanish.
///
/// Terms are taken in row-major order over the reduced dimensions. Sums and products follow the canonical
/// order ([`Blocks::sum`], 16 lanes inside a block, tree over blocks) and f16/bf16 accumulate in f32.
/// Integers keep their dtype and wrap; `Max`/`Min` are exact in any order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// How elements are combined.
    pub op: ReduceOp,
    /// The reduced dimensions, ascending.
    pub dims: Dims,
    /// How the sum is cut.
    pub blocking: Blocking,
}

impl Reduce {
    /// A reduction over `dims` (ascending); a reduction over dimension 0 is one over the batch.
    pub fn new(op: ReduceOp, dims: &[usize]) -> Self {
        let blocking = if dims.first() == Some(&0) { Blocking::Samples } else { Blocking::Features };
        Reduce { op, dims: Dims::from_slice(dims), blocking }
    }

    /// The cut of the sum for an operand of this shape.
    pub fn blocks(&self, shape: &Shape) -> Blocks {
        let outer = self.dims.first().map_or(1, |&d| shape[d]);
        let inner = self.dims.iter().skip(1).map(|&d| shape[d]).product();
        Blocks::sum(self.blocking, outer, inner)
    }
}

impl Operation for Reduce {
    fn name(&self) -> &'static str {
        self.op.name()
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let Type { dtype, shape } = inputs[0];
        if self.dims.iter().any(|&d| d >= shape.rank()) || !self.dims.windows(2).all(|w| w[0] < w[1]) {
            return Err(OpError(format!("{}: dims {:?} of {shape}", self.name(), self.dims)));
        }
        let sums = matches!(self.op, ReduceOp::Sum | ReduceOp::Prod);
        if sums && *dtype == DType::Bool {
            return Err(OpError(format!("{}: cannot reduce bool (cast it first)", self.name())));
        }
        if !sums && self.dims.iter().any(|&d| shape[d] == 0) {
            return Err(OpError(format!("{} over an empty dimension of {shape} has no value", self.name())));
        }
        let kept = (0..shape.rank()).filter(|d| !self.dims.contains(d)).map(|d| shape[d]).collect();
        Ok(Type { dtype: *dtype, shape: kept })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let x = b.inputs[0];
        let shape = g.ty(x).shape.clone();
        let spread = |g: &mut Graph, v| g.restore(v, &self.dims, &shape);
        let grad = spread(g, b.grad);
        vec![Some(match self.op {
            ReduceOp::Sum => grad,
            ReduceOp::Max | ReduceOp::Min => {
                // Equal extrema share the gradient.
                let y = spread(g, b.output);
                let hits = g.binary(BinaryOp::Eq, x, y);
                let hits = g.cast(hits, g.ty(x).dtype);
                let count = g.reduce(Reduce::new(ReduceOp::Sum, &self.dims), hits);
                let count = spread(g, count);
                let share = g.div(grad, count);
                g.mul(share, hits)
            }
            ReduceOp::Prod => {
                // The product of the others; with one zero only that zero's gradient remains. The second derivative
                // at a zero misses the terms of the other elements.
                let (zero, one) = (g.zeros_like(x), g.scalar_like(x, 1.0));
                let is_zero = g.binary(BinaryOp::Eq, x, zero);
                let zeros = g.cast(is_zero, g.ty(x).dtype);
                let zeros = g.reduce(Reduce::new(ReduceOp::Sum, &self.dims), zeros);
                let zeros = spread(g, zeros);
                let safe = g.select(is_zero, one, x);
                let product = g.reduce(Reduce { op: ReduceOp::Prod, ..self.clone() }, safe);
                let product = spread(g, product);
                let inverse = g.unary(UnaryOp::Recip, safe);
                let others = g.mul(product, inverse);
                let none_zero = g.binary(BinaryOp::Eq, zeros, zero);
                let one_zero = g.binary(BinaryOp::Eq, zeros, one);
                let here = g.binary(BinaryOp::And, one_zero, is_zero);
                let counts = g.binary(BinaryOp::Or, none_zero, here);
                let slope = g.select(counts, others, zero);
                g.mul(grad, slope)
            }
        })]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        let shape = &inputs[0].shape;
        let mut rule = SplitRule::whole();
        let mut output = 0;
        for d in 0..shape.rank() {
            if !self.dims.contains(&d) {
                rule = rule.factor(Kind::Mapped, &[Some(d)], Some(output));
                output += 1;
                continue;
            }
            rule = match self.op {
                ReduceOp::Max => rule.factor(Kind::Max, &[Some(d)], None),
                ReduceOp::Min => rule.factor(Kind::Min, &[Some(d)], None),
                ReduceOp::Sum if d == self.dims[0] => {
                    rule.factor(Kind::Sum, &[Some(d)], None).every(self.blocks(shape).unit)
                }
                ReduceOp::Prod if d == self.dims[0] => {
                    rule.factor(Kind::Prod, &[Some(d)], None).every(self.blocks(shape).unit)
                }
                // The other dimensions lie inside the blocks: a part of them is no sub-tree.
                ReduceOp::Sum | ReduceOp::Prod => rule.factor(Kind::Whole, &[Some(d)], None),
            };
        }
        rule
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[0].shape.numel() as u64
    }
}
