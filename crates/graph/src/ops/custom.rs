//! A user's own operation: forward, gradient, split rule and kernel, without touching these crates.

use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::region::Region;
use crate::rule::SplitRule;
use crate::shape::{Shape, Type};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Runs independent tasks on the threads of the device that a kernel runs on, and of devices of the process that wait for it:
/// also on a device of one thread tasks may run at the same time.
pub trait Parallel {
    /// Number of threads of the device, at least 1.
    fn threads(&self) -> usize;

    /// Calls `task(0)`, …, `task(count - 1)`, in any order and on any thread, and returns when all are done.
    fn run(&self, count: usize, task: &(dyn Fn(usize) + Sync));
}

/// What the kernel of a user's operation reads: dense row-major bytes in native order.
pub struct CustomInput<'a> {
    /// Element type and shape.
    pub ty: &'a Type,
    /// The elements, aligned for their dtype.
    pub bytes: &'a [u8],
}

/// A user's operation.
///
/// For equal bits in every layout the kernel must compute each output element in an order that depends on
/// global indices alone, and `rule` must name only factors whose split keeps that order.
pub trait CustomOp: fmt::Debug + Send + Sync {
    /// The name in printed graphs and timelines.
    fn name(&self) -> &'static str;

    /// Distinguishes instances with different parameters; part of the graph's structure. Two operations of
    /// equal name and key must do the same.
    fn key(&self) -> u64;

    /// The type of the result, or what is wrong with the inputs.
    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError>;

    /// The kernel. `output` is dense row-major and aligned for its dtype; its old contents mean nothing.
    fn run(&self, inputs: &[CustomInput], output: &mut [u8], parallel: &dyn Parallel);

    /// Adds the nodes of the gradients by each input; without one the operation has no gradient.
    fn gradient(&self, graph: &mut Graph, backward: &Backward) -> Vec<Option<NodeId>> {
        let _ = graph;
        vec![None; backward.inputs.len()]
    }

    /// How the operation may be split; by default not at all.
    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        let _ = (inputs, output);
        SplitRule::whole()
    }

    /// The operation that computes a region of the result, of shape `whole`, from the parts of the operands that belong to
    /// it by the rule, with a key of its own. `None` where it is the same.
    fn of_region(&self, whole: &Shape, region: &Region) -> Option<Arc<dyn CustomOp>> {
        let _ = (whole, region);
        None
    }

    /// The operation for a part of a batch that has `batch` samples in all, with a key of its own: one whose sums over
    /// samples are cut as those of the whole batch. `None` where it is the same.
    fn part_of_batch(&self, batch: usize) -> Option<Arc<dyn CustomOp>> {
        let _ = batch;
        None
    }

    /// Floating-point operations, for reports.
    fn flops(&self, inputs: &[&Type], output: &Type) -> u64 {
        let _ = inputs;
        output.shape.numel() as u64
    }
}

/// A user's operation as a node of the graph.
#[derive(Clone, Debug)]
pub struct Custom(pub Arc<dyn CustomOp>);

impl Custom {
    /// See [`Op::of_region`](crate::Op::of_region).
    pub(crate) fn keep_region(&mut self, whole: &Shape, region: &Region) {
        if let Some(part) = self.0.of_region(whole, region) {
            self.0 = part;
        }
    }

    /// See [`Op::part_of_batch`](crate::Op::part_of_batch).
    pub(crate) fn part_of_batch(&mut self, batch: usize) {
        if let Some(part) = self.0.part_of_batch(batch) {
            self.0 = part;
        }
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name() && self.0.key() == other.0.key()
    }
}

impl Eq for Custom {}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.0.name(), self.0.key()).hash(state);
    }
}

impl Operation for Custom {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        self.0.infer(inputs)
    }

    fn gradient(&self, graph: &mut Graph, backward: &Backward) -> Vec<Option<NodeId>> {
        self.0.gradient(graph, backward)
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        self.0.rule(inputs, output)
    }

    fn flops(&self, inputs: &[&Type], output: &Type) -> u64 {
        self.0.flops(inputs, output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Op;

    /// Sums over a batch of so many samples in all, if it knows.
    #[derive(Debug)]
    struct Total(Option<usize>);

    impl CustomOp for Total {
        fn name(&self) -> &'static str {
            "total"
        }

        fn key(&self) -> u64 {
            self.0.map_or(0, |batch| batch as u64 + 1)
        }

        fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
            Ok(inputs[0].clone())
        }

        fn run(&self, _: &[CustomInput], _: &mut [u8], _: &dyn Parallel) {}

        fn part_of_batch(&self, batch: usize) -> Option<Arc<dyn CustomOp>> {
            Some(Arc::new(Total(Some(batch))))
        }
    }

    #[test]
    fn a_part_of_a_batch_is_another_operation() {
        let whole = Op::from(Custom(Arc::new(Total(None))));
        let mut part = whole.clone();
        part.part_of_batch(256);
        assert_ne!(part, whole);
        assert_eq!(part, Op::from(Custom(Arc::new(Total(Some(256))))));
    }
}
