//! A product and what becomes of its elements, as one kernel: the sums go on while they are in the first cache.

use crate::graph::{Graph, NodeId};
use crate::op::{Backward, Op, OpError, Operation};
use crate::ops::{Dot, Fused};
use crate::rule::SplitRule;
use crate::shape::Type;
use smallvec::SmallVec;

/// A product whose result is an input of a region of single elements and of nothing else: a bias and an activation behind
/// a layer, or an optimizer's step behind the gradient of a weight. The product itself need not be in memory as a whole.
///
/// The operands are those of the product, then the other inputs of the region in order. As a value of the graph it is the
/// region's first result; the others are [`Part`](crate::ops::Part)s of it. An epilogue never changes a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Epilogue {
    /// The product.
    pub dot: Box<Dot>,
    /// Its type.
    pub product: Type,
    /// What follows.
    pub fused: Box<Fused>,
    /// Which input of it the product is.
    pub at: usize,
}

/// Operands of a product.
const OF_DOT: usize = 2;

impl Epilogue {
    /// The inputs of the region, given those of the epilogue and the product's result.
    pub fn inputs_of_region<T: Clone>(&self, inputs: &[T], product: T) -> SmallVec<[T; 8]> {
        let mut region: SmallVec<[T; 8]> = inputs[OF_DOT..].iter().cloned().collect();
        region.insert(self.at, product);
        region
    }

    /// Types of all results.
    ///
    /// # Errors
    /// When the operands are not those of the product and of a region of its elements.
    pub fn results(&self, inputs: &[&Type]) -> Result<SmallVec<[Type; 4]>, OpError> {
        let wrong = |what: String| OpError(format!("epilogue: {what}"));
        if inputs.len() != OF_DOT + self.fused.inputs.len() - 1 || self.at >= self.fused.inputs.len() {
            return Err(wrong(format!("{} operands", inputs.len())));
        }
        let product = self.dot.infer(&inputs[..OF_DOT])?;
        if product != self.product || self.fused.space.columns() != 1 || self.fused.inputs[self.at].of_rows {
            return Err(wrong(format!("a product {product} for elements of {}", self.fused.space.shape)));
        }
        self.fused.results(&self.inputs_of_region(inputs, &self.product))
    }

    /// For every operand whether result number `output` depends on it.
    pub fn dependencies(&self, output: usize) -> Vec<bool> {
        let mut region = self.fused.dependencies(output);
        region.truncate(self.fused.inputs.len());
        let of_product = region.remove(self.at);
        [of_product; OF_DOT].into_iter().chain(region).collect()
    }

    /// Whether a result may lie where this operand does: not where the product's do, which are read again and again.
    pub fn may_overwrite(&self, input: usize) -> bool {
        input >= OF_DOT
    }

    /// The names that `name` gives the kernels: `dot + fused`.
    pub fn names(&self, name: impl Fn(&Op) -> String) -> String {
        format!("{} + {}", name(&Op::Dot((*self.dot).clone())), name(&Op::Fused((*self.fused).clone())))
    }
}

impl Operation for Epilogue {
    fn name(&self) -> &'static str {
        "epilogue"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        Ok(self.results(inputs)?.swap_remove(0))
    }

    fn gradient(&self, _: &mut Graph, _: &Backward) -> Vec<Option<NodeId>> {
        unreachable!("gradients are taken of recorded graphs, before products have epilogues")
    }

    fn rule(&self, _: &[&Type], _: &Type) -> SplitRule {
        unreachable!("graphs are split before products have epilogues")
    }

    fn flops(&self, inputs: &[&Type], output: &Type) -> u64 {
        let region = self.inputs_of_region(inputs, &self.product);
        self.dot.flops(&inputs[..OF_DOT], &self.product) + self.fused.flops(&region, output)
    }
}
