//! A user's own operation whose parts need to know where they are.

use meshwork::DType;
use meshwork::graph::op::OpError;
use meshwork::graph::ops::{Custom, CustomInput, CustomOp, Parallel};
use meshwork::graph::region::Region;
use meshwork::graph::{Kind, Shape, SplitRule, Type};
use std::sync::Arc;

/// `[n, m]` of f32 with the number of its row added to every element.
#[derive(Debug)]
pub struct Numbered {
    /// The number of the first row.
    pub first: usize,
}

impl From<Numbered> for meshwork::graph::Op {
    fn from(op: Numbered) -> Self {
        Custom(Arc::new(op)).into()
    }
}

impl CustomOp for Numbered {
    fn name(&self) -> &'static str {
        "numbered"
    }

    fn key(&self) -> u64 {
        self.first as u64
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let fits = inputs[0].dtype == DType::F32 && inputs[0].shape.rank() == 2;
        fits.then(|| inputs[0].clone()).ok_or_else(|| OpError(format!("numbered: {}", inputs[0])))
    }

    fn run(&self, inputs: &[CustomInput], output: &mut [u8], _: &dyn Parallel) {
        let columns = inputs[0].ty.shape[1];
        for (i, (x, y)) in inputs[0].bytes.chunks_exact(4).zip(output.chunks_exact_mut(4)).enumerate() {
            let x = f32::from_ne_bytes(x.try_into().expect("four bytes"));
            y.copy_from_slice(&(x + (self.first + i / columns) as f32).to_ne_bytes());
        }
    }

    fn rule(&self, _: &[&Type], _: &Type) -> SplitRule {
        (0..2).fold(SplitRule::whole(), |rule, d| rule.factor(Kind::Mapped, &[Some(d)], Some(d)))
    }

    fn of_region(&self, _: &Shape, region: &Region) -> Option<Arc<dyn CustomOp>> {
        Some(Arc::new(Numbered { first: self.first + region.starts[0] }))
    }
}
