//! Random values, addressed by a key and the global element index.

use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::ops::leaf::computed;
use crate::region::Region;
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
    /// Shape of the whole.
    pub shape: Shape,
    /// Element type of the result.
    pub dtype: DType,
    /// The region of the whole that is computed, if it is not all. A permutation is computed as a whole.
    pub region: Option<Region>,
}

impl Random {
    /// All values of a shape.
    pub fn new(distribution: Distribution, shape: impl Into<Shape>, dtype: DType) -> Self {
        Random { distribution, shape: shape.into(), dtype, region: None }
    }
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
        let ty = Type { dtype: self.dtype, shape: computed(self.name(), &self.shape, &self.region)? };
        if permutes != (self.dtype == DType::I64) || (permutes && (ty.shape.rank() != 1 || ty.shape != self.shape)) {
            return Err(OpError(format!("{}: cannot give {ty}", self.name())));
        }
        Ok(ty)
    }

    fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
        vec![None]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        match self.distribution {
            // Every element depends on the order of all.
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
