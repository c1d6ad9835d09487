//! The position of the maximum or minimum along one dimension.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::Type;

/// First position (i64) of the largest or smallest element along `dim`, which vanishes; NaN counts as
/// both the largest and the smallest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgReduce {
    /// Largest (`true`) or smallest.
    pub largest: bool,
    /// The dimension that is searched.
    pub dim: usize,
}

impl Operation for ArgReduce {
    fn name(&self) -> &'static str {
        if self.largest { "argmax" } else { "argmin" }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let mut shape = inputs[0].shape.clone();
        if self.dim >= shape.rank() || shape[self.dim] == 0 {
            return Err(OpError(format!("{}: dim {} of {shape} has no elements", self.name(), self.dim)));
        }
        shape.0.remove(self.dim);
        Ok(Type { dtype: DType::I64, shape })
    }

    fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
        vec![None]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        // Parts of the dimension that is searched would have to be merged by values, which the result has lost.
        (0..inputs[0].shape.rank()).fold(SplitRule::whole(), |rule, d| {
            let output = if d < self.dim { d } else { d.wrapping_sub(1) };
            if d == self.dim { rule } else { rule.factor(Kind::Mapped, &[Some(d)], Some(output)) }
        })
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[0].shape.numel() as u64
    }
}
