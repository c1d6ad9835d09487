//! A value that is to be had only after another one.

use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::Type;

/// The first operand, once the second one, of any type, has been computed. What is computed from it is not the same as what
/// is computed from the operand itself, and cannot run before: so it is computed again, late, instead of being kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Barrier;

impl Operation for Barrier {
    fn name(&self) -> &'static str {
        "barrier"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        match inputs {
            [x, _] => Ok((*x).clone()),
            _ => Err(OpError(format!("barrier: a value and the one that it waits for, not {} operands", inputs.len()))),
        }
    }

    fn gradient(&self, _: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        vec![Some(b.grad), None]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        let dims = 0..output.shape.rank();
        dims.fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d), None], Some(d)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}
