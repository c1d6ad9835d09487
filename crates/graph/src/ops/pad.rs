//! Padding with a constant, around and between elements.

use crate::dtype::Scalar;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::Slice;
use crate::rule::{Kind, SplitRule};
use crate::shape::{Dims, Type};

/// Per dimension `low` constants before, `high` behind and `interior` between neighbouring elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pad {
    /// Constants before the first element.
    pub low: Dims,
    /// Constants behind the last element.
    pub high: Dims,
    /// Constants between two neighbours.
    pub interior: Dims,
    /// The constant.
    pub value: Scalar,
}

impl Operation for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let Type { dtype, shape } = inputs[0];
        if [self.low.len(), self.high.len(), self.interior.len()] != [shape.rank(); 3] {
            return Err(OpError(format!("pad: needs amounts for each of the {} dims of {shape}", shape.rank())));
        }
        let size = |d: usize| {
            let inside = if shape[d] == 0 { 0 } else { shape[d] + (shape[d] - 1) * self.interior[d] };
            self.low[d] + inside + self.high[d]
        };
        Ok(Type { dtype: *dtype, shape: (0..shape.rank()).map(size).collect() })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let shape = g.ty(b.inputs[0]).shape.clone();
        let slice = Slice {
            starts: self.low.clone(),
            sizes: shape.0,
            steps: self.interior.iter().map(|&i| i as isize + 1).collect(),
        };
        vec![Some(g.add_node(slice, &[b.grad]))]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        // Where the border is as wide as the gaps, every element has a run of the result for itself. Other borders belong
        // to the first and last element alone.
        let shape = &inputs[0].shape;
        (0..shape.rank())
            .filter(|&d| self.low[d] + self.high[d] == self.interior[d] && shape[d] > 0)
            .fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d)], Some(d)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}
