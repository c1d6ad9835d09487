//! The passage of a value from one device to another.

use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::Type;

/// The same value on another device. Devices are known by numbers here; what they are is the runtime's matter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ToDevice {
    /// Where the operand is.
    pub from: u32,
    /// Where the result is.
    pub to: u32,
    /// Copies to one device that have the same number, other than 0, are waited for together: what needs one of them is
    /// computed with what needs the others. None of them may be computed from another one.
    pub bundle: u32,
    /// Whether the copy need not be kept for all that need it: it may be made again instead.
    pub is_fleeting: bool,
}

impl ToDevice {
    /// A copy by itself, which is kept.
    pub fn new(from: u32, to: u32) -> Self {
        ToDevice { from, to, bundle: 0, is_fleeting: false }
    }
}

impl Operation for ToDevice {
    fn name(&self) -> &'static str {
        "to_device"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        Ok(inputs[0].clone())
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        vec![Some(g.add_node(ToDevice::new(self.to, self.from), &[b.grad]))]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        (0..output.shape.rank()).fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d)], Some(d)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}
