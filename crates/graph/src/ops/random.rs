//! Random values, addressed by a key and the global element index.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::{Shape, Type};

/// The distribution of [`Random`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// Uniform in [0, 1).
    Uniform,
    /// Normal with mean 0 and variance 1 (Box–Muller: element `i` uses the words at counter `i`).
    Normal,
    /// A random order of 0..n, 1-d, i64.
    Permutation,
}

/// Random values; the input is the key, an i64 scalar (see [`crate::philox::site_key`]).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Random {
    /// Which distribution.
    pub distribution: Distribution,
    /// Shape of the result.
    pub shape: Shape,
    /// Element type of the result.
    pub dtype: DType,
}

impl Operation for Random {
    fn name(&self) -> &'static str {
        match self.distribution {
            Distribution::Uniform => "uniform",
            Distribution::Normal => "normal",
            Distribution::Permutation => "permutation",
        }
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        if *inputs[0] != Type::new(DType::I64, []) {
            return Err(OpError(format!("{}: the key must be i64[], not {}", self.name(), inputs[0])));
        }
        let permutes = self.distribution == Distribution::Permutation;
        if permutes != (self.dtype == DType::I64) || (permutes && self.shape.rank() != 1) {
            let ty = Type { dtype: self.dtype, shape: self.shape.clone() };
            return Err(OpError(format!("{}: cannot give {ty}", self.name())));
        }
        Ok(Type { dtype: self.dtype, shape: self.shape.clone() })
    }

    fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
        vec![None]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        match self.distribution {
            Distribution::Permutation => SplitRule::whole(),
            _ => {
                (0..output.shape.rank()).fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[None], Some(d)))
            }
        }
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}
