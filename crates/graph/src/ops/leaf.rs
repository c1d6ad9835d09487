//! Values without operands: inputs, constants, positions.

use crate::dtype::{DType, Scalar};
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::region::Region;
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
    /// Shape of the whole.
    pub shape: Shape,
    /// The dimension that is counted.
    pub dim: usize,
    /// Element type of the result.
    pub dtype: DType,
    /// The region of the whole that is computed, if it is not all.
    pub region: Option<Region>,
}

impl Iota {
    /// All positions of a shape.
    pub fn new(shape: impl Into<Shape>, dim: usize, dtype: DType) -> Self {
        Iota { shape: shape.into(), dim, dtype, region: None }
    }
}

/// The shape of what is computed of a value of shape `whole`.
pub(super) fn computed(name: &str, whole: &Shape, region: &Option<Region>) -> Result<Shape, OpError> {
    match region {
        None => Ok(whole.clone()),
        Some(region) if region.is_inside(whole) => Ok(region.shape()),
        Some(Region { starts, sizes }) => {
            Err(OpError(format!("{name}: from {starts:?}, {sizes:?} elements do not lie inside {whole}")))
        }
    }
}

/// Restricts what is computed of a value of shape `whole` to a region of it.
pub(crate) fn restrict(whole: &Shape, computed: &mut Option<Region>, region: &Region) {
    let region = computed.as_ref().map_or(region.clone(), |outer| region.inside(outer));
    *computed = (!region.is_whole(whole)).then_some(region);
}

macro_rules! leaf {
    ($struct:ty, $name:literal, $self:ident => $ty:expr) => {
        impl Operation for $struct {
            fn name(&self) -> &'static str {
                $name
            }
            fn infer(&$self, _: &[&Type]) -> Result<Type, OpError> {
                $ty
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

leaf!(Input, "input", self => Ok(self.ty.clone()));
leaf!(Const, "const", self => Ok(Type::new(self.dtype, [])));
leaf!(Iota, "iota", self => Ok(Type { dtype: self.dtype, shape: computed("iota", &self.shape, &self.region)? }));
