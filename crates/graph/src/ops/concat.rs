//! Several values behind each other.

use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::Type;

/// The operands behind each other along `dim`; their other sizes are equal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Concat {
    /// The dimension that grows.
    pub dim: usize,
}

impl Operation for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let first = inputs.first().ok_or_else(|| OpError("concat: needs at least one tensor".into()))?;
        let mut shape = first.shape.clone();
        if self.dim >= shape.rank() {
            return Err(OpError(format!("concat: dim {} of {shape}", self.dim)));
        }
        shape.0[self.dim] = 0;
        for t in inputs {
            let fits = t.shape.rank() == shape.rank()
                && (0..shape.rank()).all(|d| d == self.dim || t.shape[d] == first.shape[d]);
            if !fits || t.dtype != first.dtype {
                return Err(OpError(format!("concat along dim {}: {first} and {t} do not fit", self.dim)));
            }
            shape.0[self.dim] += t.shape[self.dim];
        }
        Ok(Type { dtype: first.dtype, shape })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let mut start = 0;
        b.inputs
            .iter()
            .map(|&x| {
                let size = g.ty(x).shape[self.dim];
                let part = g.narrow(b.grad, self.dim, start, size);
                start += size;
                Some(part)
            })
            .collect()
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        // A range of the dimension that grows is other ranges of the operands.
        (0..output.shape.rank())
            .filter(|&d| d != self.dim)
            .fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &vec![Some(d); inputs.len()], Some(d)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}
