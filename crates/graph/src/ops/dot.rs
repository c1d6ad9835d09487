//! The generalised matrix product.

use crate::canonical::{Blocking, Blocks};
use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::{Dims, Shape, Type};

/// `out[batch…, m…, n…] = Σ_k lhs[batch, m, k] · rhs[batch, k, n]` for any assignment of dimensions.
///
/// Output dimensions: batch (in the given order), then the free dimensions of lhs, then those of rhs, each in
/// ascending order. The contracted dimensions are summed in the given order, the first being the
/// outermost, along which blocks are cut ([`Blocks::contraction`]); f16 and bf16 accumulate in f32.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Dot {
    /// Batch dimensions of the left operand.
    pub lhs_batch: Dims,
    /// Batch dimensions of the right operand, in the same order.
    pub rhs_batch: Dims,
    /// Contracted dimensions of the left operand, outermost first.
    pub lhs_contract: Dims,
    /// Contracted dimensions of the right operand, in the same order.
    pub rhs_contract: Dims,
    /// How the sum is cut.
    pub blocking: Blocking,
}

impl Dot {
    /// Dimensions that are neither batch nor contracted, ascending.
    pub fn free(rank: usize, batch: &[usize], contract: &[usize]) -> Dims {
        (0..rank).filter(|d| !batch.contains(d) && !contract.contains(d)).collect()
    }

    /// Free dimensions of the left operand.
    pub fn lhs_free(&self, lhs: &Shape) -> Dims {
        Self::free(lhs.rank(), &self.lhs_batch, &self.lhs_contract)
    }

    /// Free dimensions of the right operand.
    pub fn rhs_free(&self, rhs: &Shape) -> Dims {
        Self::free(rhs.rank(), &self.rhs_batch, &self.rhs_contract)
    }

    /// Adds the product of two values, turned so that its batch dimensions and the free dimensions of both
    /// operands become the given dimensions of the result. Exchanging the operands changes no value and often
    /// saves the turning.
    fn into_order(self, g: &mut Graph, lhs: NodeId, rhs: NodeId, [batch, left, right]: [&Dims; 3]) -> NodeId {
        let chained = |parts: [&Dims; 3]| parts.into_iter().flatten().copied().collect::<Dims>();
        let exchanged = chained([batch, right, left]);
        if exchanged.is_sorted() {
            let dot = Dot {
                lhs_batch: self.rhs_batch,
                rhs_batch: self.lhs_batch,
                lhs_contract: self.rhs_contract,
                rhs_contract: self.lhs_contract,
                blocking: self.blocking,
            };
            return g.add_node(dot, &[rhs, lhs]);
        }
        let product = g.add_node(self, &[lhs, rhs]);
        g.permute(product, &inverse(&chained([batch, left, right])))
    }

    /// The cut of the sum.
    pub fn blocks(&self, lhs: &Shape) -> Blocks {
        let outer = self.lhs_contract.first().map_or(1, |&d| lhs[d]);
        let inner = self.lhs_contract.iter().skip(1).map(|&d| lhs[d]).product();
        Blocks::contraction(self.blocking, outer, inner)
    }
}

/// Positions `from..from + count`.
fn run(from: usize, count: usize) -> Dims {
    (from..from + count).collect()
}

/// The order that sorts `dims`, as a permutation of a result whose dimensions are `dims` back into 0, 1, 2, …
fn inverse(dims: &[usize]) -> Dims {
    (0..dims.len()).map(|d| dims.iter().position(|&x| x == d).expect("a permutation")).collect()
}

/// The dimensions of `to` in the order in which their partners in `from` ascend.
fn paired(from: &[usize], to: &[usize]) -> Dims {
    let mut pairs: Vec<(usize, usize)> = from.iter().copied().zip(to.iter().copied()).collect();
    pairs.sort_unstable();
    pairs.into_iter().map(|(_, to)| to).collect()
}

impl Operation for Dot {
    fn name(&self) -> &'static str {
        "dot"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let (a, b) = (inputs[0], inputs[1]);
        let sizes = |t: &Type, dims: &[usize]| dims.iter().map(|&d| t.shape[d]).collect::<Dims>();
        if a.dtype != b.dtype || a.dtype == DType::Bool {
            return Err(OpError(format!("matmul: dtypes {} and {}", a.dtype, b.dtype)));
        }
        let contracted = (sizes(a, &self.lhs_contract), sizes(b, &self.rhs_contract));
        if contracted.0 != contracted.1 || sizes(a, &self.lhs_batch) != sizes(b, &self.rhs_batch) {
            return Err(OpError(format!(
                "matmul: {} by {}: contracted sizes {:?} and {:?} must be equal",
                a.shape, b.shape, contracted.0, contracted.1
            )));
        }
        let mut shape = sizes(a, &self.lhs_batch);
        shape.extend(sizes(a, &self.lhs_free(&a.shape)));
        shape.extend(sizes(b, &self.rhs_free(&b.shape)));
        Ok(Type { dtype: a.dtype, shape: Shape(shape) })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let (lhs, rhs) = (b.inputs[0], b.inputs[1]);
        let (lhs_free, rhs_free) = (self.lhs_free(&g.ty(lhs).shape), self.rhs_free(&g.ty(rhs).shape));
        let (batch, m, n) = (self.lhs_batch.len(), lhs_free.len(), rhs_free.len());

        // By lhs: [batch, m, n] · rhs over n gives [batch, m, k], k in the order of rhs's dimensions.
        let to_lhs = Dot {
            lhs_batch: run(0, batch),
            rhs_batch: self.rhs_batch.clone(),
            lhs_contract: run(batch + m, n),
            rhs_contract: rhs_free.clone(),
            blocking: Blocking::Features,
        };
        let k = paired(&self.rhs_contract, &self.lhs_contract);
        let by_lhs = to_lhs.into_order(g, b.grad, rhs, [&self.lhs_batch, &lhs_free, &k]);

        // By rhs: lhs · [batch, m, n] over m gives [batch, k, n]. Without batch dimensions m are the samples.
        let to_rhs = Dot {
            lhs_batch: self.lhs_batch.clone(),
            rhs_batch: run(0, batch),
            lhs_contract: lhs_free,
            rhs_contract: run(batch, m),
            blocking: if batch == 0 { Blocking::Samples } else { Blocking::Features },
        };
        let k = paired(&self.lhs_contract, &self.rhs_contract);
        let by_rhs = to_rhs.into_order(g, lhs, b.grad, [&self.rhs_batch, &k, &rhs_free]);
        vec![Some(by_lhs), Some(by_rhs)]
    }

    fn rule(&self, inputs: &[&Type], _: &Type) -> SplitRule {
        let (lhs_free, rhs_free) = (self.lhs_free(&inputs[0].shape), self.rhs_free(&inputs[1].shape));
        let mut rule = SplitRule::whole();
        let mut output = 0..;
        for (&l, &r) in self.lhs_batch.iter().zip(&self.rhs_batch) {
            rule = rule.factor(Kind::Mapped, &[Some(l), Some(r)], output.next());
        }
        for &l in &lhs_free {
            rule = rule.factor(Kind::Mapped, &[Some(l), None], output.next());
        }
        for &r in &rhs_free {
            rule = rule.factor(Kind::Mapped, &[None, Some(r)], output.next());
        }
        for (i, (&l, &r)) in self.lhs_contract.iter().zip(&self.rhs_contract).enumerate() {
            rule = match i {
                0 => rule.factor(Kind::Sum, &[Some(l), Some(r)], None).every(self.blocks(&inputs[0].shape).unit),
                // The others lie inside the blocks: a part of them is no sub-tree.
                _ => rule.factor(Kind::Whole, &[Some(l), Some(r)], None),
            };
        }
        rule
    }

    fn flops(&self, inputs: &[&Type], output: &Type) -> u64 {
        let k: usize = self.lhs_contract.iter().map(|&d| inputs[0].shape[d]).product();
        2 * (output.shape.numel() * k) as u64
    }
}
