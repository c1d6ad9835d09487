//! Values without operands: inputs, constants, positions.

use crate::dtype::{DType, Scalar};
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::{Shape, Type};

/// A value bound when the program runs: a parameter, a batch, a learning rate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Input {
    /// The type of the values that may be bound.
    pub ty: Type,
}

/// A 0-d constant that is part of the graph's structure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Const {
    /// The number.
    pub value: Scalar,
    /// Its element type.
    pub dtype: DType,
}

/// The position along `dim` at every element: 0, 1, 2, …
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iota {
    /// Shape of the result.
    pub shape: Shape,
    /// The dimension that is counted.
    pub dim: usize,
    /// Element type of the result.
    pub dtype: DType,
}

macro_rules! leaf {
    ($struct:ty, $name:literal, $self:ident => $ty:expr) => {
        impl Operation for $struct {
            fn name(&self) -> &'static str {
                $name
            }
            fn infer(&$self, _: &[&Type]) -> Result<Type, OpError> {
                Ok($ty)
            }
            fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
                vec![]
            }
            fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
                (0..output.shape.rank()).fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[], Some(d)))
            }
            fn flops(&self, _: &[&Type], _: &Type) -> u64 {
                0
            }
        }
    };
}

leaf!(Input, "input", self => self.ty.clone());
leaf!(Const, "const", self => Type::new(self.dtype, []));
leaf!(Iota, "iota", self => Type { dtype: self.dtype, shape: self.shape.clone() });
