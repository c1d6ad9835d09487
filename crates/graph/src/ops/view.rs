//! Operations that move no data: another shape, order or selection of the same elements.

use crate::dtype::Scalar;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::{Pad, Reduce, ReduceOp};
use crate::rule::{Kind, SplitRule};
use crate::shape::{Dims, Shape, Type};
use smallvec::SmallVec;

/// The same elements in row-major order under another shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reshape {
    /// Shape of the result.
    pub shape: Shape,
}

/// Dimensions in another order: dimension `d` of the result is dimension `dims[d]` of the operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permute {
    /// A permutation of the operand's dimensions.
    pub dims: Dims,
}

/// Repeats dimensions of size 1, and the whole along dimensions before its own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Expand {
    /// Shape of the result, whose last dimensions are those of the operand.
    pub shape: Shape,
}

/// Per dimension `sizes[d]` elements from `starts[d]`, `steps[d]` apart (negative steps go backwards).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slice {
    /// First element of each dimension.
    pub starts: Dims,
    /// Elements of each dimension.
    pub sizes: Dims,
    /// Distance between elements of each dimension; never 0.
    pub steps: SmallVec<[isize; 6]>,
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

impl Operation for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let Type { dtype, shape } = inputs[0];
        if shape.numel() != self.shape.numel() {
            return Err(OpError(format!(
                "reshape: {shape} has {} elements, {} has {}",
                shape.numel(),
                self.shape,
                self.shape.numel()
            )));
        }
        Ok(Type { dtype: *dtype, shape: self.shape.clone() })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let shape = g.ty(b.inputs[0]).shape.clone();
        vec![Some(g.reshape(b.grad, shape))]
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        // The smallest groups of dimensions that have the same elements on both sides are merged or split. What the
        // outermost two of a group have in common survives, in runs; the others' indices are not together on the other side.
        let mut rule = SplitRule::whole();
        if output.shape.numel() == 0 {
            return rule;
        }
        let dims = |shape: &Shape| shape.iter().copied().enumerate().filter(|d| d.1 != 1).collect::<Vec<_>>();
        let (from, to) = (dims(&inputs[0].shape), dims(&output.shape));
        let (mut i, mut j) = (0, 0);
        while i < from.len() {
            let ((outer_from, mut left), (outer_to, mut right)) = (from[i], to[j]);
            let common = greatest_common_divisor(left, right);
            if common > 1 {
                rule = rule.factor(Kind::Mapped, &[Some(outer_from)], Some(outer_to)).counting(common);
            }
            (i, j) = (i + 1, j + 1);
            while left != right {
                if left < right {
                    left *= from[i].1;
                    i += 1;
                } else {
                    right *= to[j].1;
                    j += 1;
                }
            }
        }
        rule
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}

impl Operation for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let Type { dtype, shape } = inputs[0];
        let mut seen = self.dims.clone();
        seen.sort_unstable();
        if !seen.iter().copied().eq(0..shape.rank()) {
            return Err(OpError(format!(
                "permute: {:?} is no order of the {} dims of {shape}",
                self.dims,
                shape.rank()
            )));
        }
        Ok(Type { dtype: *dtype, shape: self.dims.iter().map(|&d| shape[d]).collect() })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let back: Dims =
            (0..self.dims.len()).map(|d| self.dims.iter().position(|&x| x == d).expect("a permutation")).collect();
        vec![Some(g.permute(b.grad, &back))]
    }

    fn rule(&self, _: &[&Type], _: &Type) -> SplitRule {
        self.dims
            .iter()
            .enumerate()
            .fold(SplitRule::whole(), |rule, (to, &from)| rule.factor(Kind::Mapped, &[Some(from)], Some(to)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}

impl Operation for Expand {
    fn name(&self) -> &'static str {
        "expand"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let Type { dtype, shape } = inputs[0];
        if shape.broadcast(&self.shape).as_ref() != Some(&self.shape) {
            return Err(OpError(format!("expand: {shape} cannot be broadcast to {}", self.shape)));
        }
        Ok(Type { dtype: *dtype, shape: self.shape.clone() })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let shape = g.ty(b.inputs[0]).shape.clone();
        let before = self.shape.rank() - shape.rank();
        let dims: Dims = (0..self.shape.rank()).filter(|&d| d < before || shape[d - before] != self.shape[d]).collect();
        if dims.is_empty() {
            return vec![Some(b.grad)];
        }
        let sum = g.reduce(Reduce::new(ReduceOp::Sum, &dims), b.grad);
        vec![Some(g.reshape(sum, shape))]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        let shape = &inputs[0].shape;
        let before = self.shape.rank() - shape.rank();
        (0..self.shape.rank()).fold(SplitRule::whole(), |rule, d| {
            let from = d.checked_sub(before).filter(|&from| shape[from] == self.shape[d]);
            rule.factor(Kind::Mapped, &[from], Some(d))
        })
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}

impl Operation for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let Type { dtype, shape } = inputs[0];
        let rank = shape.rank();
        let lengths = [self.starts.len(), self.sizes.len(), self.steps.len()];
        let inside = |d: usize| {
            let (start, size, step) = (self.starts[d] as isize, self.sizes[d] as isize, self.steps[d]);
            let last = start + (size - 1) * step;
            step != 0 && (size == 0 || (start < shape[d] as isize && (0..shape[d] as isize).contains(&last)))
        };
        if lengths != [rank; 3] || !(0..rank).all(inside) {
            return Err(OpError(format!(
                "slice: from {:?}, {:?} elements in steps of {:?} does not lie inside {shape}",
                self.starts, self.sizes, self.steps
            )));
        }
        Ok(Type { dtype: *dtype, shape: Shape(self.sizes.clone()) })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let shape = g.ty(b.inputs[0]).shape.clone();
        let backwards: Dims = (0..shape.rank()).filter(|&d| self.steps[d] < 0).collect();
        let grad = g.flip(b.grad, &backwards);
        let (mut low, mut high, mut interior) = (Dims::new(), Dims::new(), Dims::new());
        for d in 0..shape.rank() {
            let step = self.steps[d].unsigned_abs();
            let span = if self.sizes[d] == 0 { 0 } else { (self.sizes[d] - 1) * step + 1 };
            let first = match (self.sizes[d], self.steps[d] < 0) {
                (0, _) => 0,
                (_, true) => self.starts[d] + 1 - span,
                (_, false) => self.starts[d],
            };
            low.push(first);
            high.push(shape[d] - first - span);
            interior.push(step - 1);
        }
        vec![Some(g.add_node(Pad { low, high, interior, value: Scalar::Float(0.0) }, &[grad]))]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        // Where one element of every run of the operand is taken, the runs are independent; what is left out at an end,
        // or taken backwards, shifts them.
        let shape = &inputs[0].shape;
        (0..shape.rank())
            .filter(|&d| {
                let step = self.steps[d].max(0) as usize;
                self.starts[d] < step && self.sizes[d] * step == shape[d]
            })
            .fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d)], Some(d)))
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}
