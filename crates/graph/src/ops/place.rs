//! How a value shall lie on its mesh.

use crate::graph::{Graph, NodeId};
use crate::mesh::Placements;
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::Type;

/// The operand, with this placement on the mesh that it is on. Gradients are the same values, placed as suits them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// One placement for each axis; none is partial.
    pub placements: Placements,
}

impl Operation for Place {
    fn name(&self) -> &'static str {
        "place"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let rank = inputs[0].shape.rank();
        for placement in &self.placements {
            if placement.is_partial() {
                return Err(OpError(format!("place: {placement} comes from computing and cannot be asked for")));
            }
            if let Some((dim, unit)) = placement.cut() {
                if dim >= rank {
                    return Err(OpError(format!("place: {placement} of {}, which has {rank} dimensions", inputs[0])));
                }
                if unit == 0 {
                    return Err(OpError(format!("place: {placement} does not say where it may be cut")));
                }
            }
        }
        Ok(inputs[0].clone())
    }

    fn gradient(&self, _: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        vec![Some(b.grad)]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        (0..output.shape.rank()).fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d)], Some(d)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}
