//! Running sums.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::Type;

/// Running sum along `dim`, from the front or (`reverse`) from the back. Terms are added one by one in
/// that direction; f16 and bf16 accumulate in f32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CumSum {
    /// The dimension that is summed along.
    pub dim: usize,
    /// From the last element backwards.
    pub reverse: bool,
}

impl Operation for CumSum {
    fn name(&self) -> &'static str {
        "cumsum"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        if self.dim >= inputs[0].shape.rank() || inputs[0].dtype == DType::Bool {
            return Err(OpError(format!("cumsum: dim {} of {}", self.dim, inputs[0])));
        }
        Ok(inputs[0].clone())
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        vec![Some(g.add_node(CumSum { dim: self.dim, reverse: !self.reverse }, &[b.grad]))]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        // Along the dimension that is summed every element needs those before it.
        (0..inputs[0].shape.rank())
            .filter(|&d| d != self.dim)
            .fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d)], Some(d)))
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[0].shape.numel() as u64
    }
}
