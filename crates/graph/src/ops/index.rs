//! Reading and adding at indices that are data.
//!
//! An index outside of its dimension is an error of the run, not undefined. Additions at one place follow the
//! canonical order: sources are cut into blocks of samples (dimension 0 of the indices, [`Blocks::sum`]), inside
//! a block they are added one by one in index order from +0, blocks by the tree; places that a block does
//! not touch count as +0.
//!
//! The dimension that is indexed can be cut, as the vocabulary of an embedding is (Shoeybi et al., *Megatron-LM*, 2019):
//! a part knows which one it is ([`PartOf`]). What an index names elsewhere is read as −0, the one value x with
//! x + y = y for every y, and not added. So exactly one part has what is read, and the sum of all is that, bit for bit.

use crate::canonical::{Blocking, Blocks};
use crate::dtype::DType;
use crate::graph::{Graph, NodeId};
use crate::op::{Backward, OpError, Operation};
use crate::rule::{Kind, SplitRule};
use crate::shape::{Shape, Type};
use std::ops::Range;

/// Where data lie that are a part of the dimension that is indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PartOf {
    /// The index of their first element in the whole dimension.
    pub start: usize,
    /// Size of the whole dimension.
    pub size: usize,
}

impl PartOf {
    /// The indices `range` of a dimension of `size` indices, which may be a part itself; `None` for all of a whole one.
    fn range(outer: Option<PartOf>, range: Range<usize>, size: usize) -> Option<PartOf> {
        let outer = outer.unwrap_or(PartOf { start: 0, size });
        (range.len() < outer.size).then_some(PartOf { start: outer.start + range.start, size: outer.size })
    }
}

/// `(x, index) -> y` with `y[…, i, …] = x[…, index[…, i, …], …]` along `dim`; `y` has the shape of `index`, whose
/// other sizes are those of `x`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather {
    /// The dimension that is indexed.
    pub dim: usize,
    /// What `x` is along it, if not all.
    pub part_of: Option<PartOf>,
}

impl Gather {
    /// From all of a dimension.
    pub fn new(dim: usize) -> Self {
        Gather { dim, part_of: None }
    }
}

/// `(base, index, source) -> base` with `source` added at `index` along `dim`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScatterAdd {
    /// The dimension that is indexed.
    pub dim: usize,
    /// What `base` is along it, if not all.
    pub part_of: Option<PartOf>,
    /// How the sums are cut.
    pub blocking: Blocking,
}

impl ScatterAdd {
    /// Sums over a whole batch.
    pub fn new(dim: usize) -> Self {
        ScatterAdd { dim, part_of: None, blocking: Blocking::Samples }
    }

    /// Keeps the indices `range` of a base of so many.
    pub(crate) fn keep_part(&mut self, range: Range<usize>, size: usize) {
        self.part_of = PartOf::range(self.part_of, range, size);
    }

    /// The cut of the sums for indices of this shape.
    pub fn blocks(&self, index: &Shape) -> Blocks {
        blocks(self.blocking, index)
    }
}

/// `(x, index) -> y`: the slices of `x` along `dim` that `index` (any shape) names; the dimension is replaced by
/// those of `index`. An embedding look-up is the case `dim = 0`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexSelect {
    /// The dimension that is indexed.
    pub dim: usize,
    /// What `x` is along it, if not all.
    pub part_of: Option<PartOf>,
}

impl IndexSelect {
    /// From all of a dimension.
    pub fn new(dim: usize) -> Self {
        IndexSelect { dim, part_of: None }
    }
}

/// `(source, index) -> y`: adds slices of `source` into zeros, the adjoint of [`IndexSelect`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IndexAdd {
    /// The dimension that is indexed in the result.
    pub dim: usize,
    /// Size of that dimension.
    pub size: usize,
    /// What the result is along it, if not all.
    pub part_of: Option<PartOf>,
    /// How the sums are cut.
    pub blocking: Blocking,
}

impl IndexAdd {
    /// Sums over a whole batch.
    pub fn new(dim: usize, size: usize) -> Self {
        IndexAdd { dim, size, part_of: None, blocking: Blocking::Samples }
    }

    /// Keeps the indices `range` of the result.
    pub(crate) fn keep_part(&mut self, range: Range<usize>) {
        self.part_of = PartOf::range(self.part_of, range.clone(), self.size);
        self.size = range.len();
    }

    /// The cut of the sums for indices of this shape.
    pub fn blocks(&self, index: &Shape) -> Blocks {
        blocks(self.blocking, index)
    }
}

fn blocks(blocking: Blocking, index: &Shape) -> Blocks {
    let outer = index.first().copied().unwrap_or(1);
    Blocks::sum(blocking, outer, index.iter().skip(1).product())
}

/// The rule that the dimension of the data that is indexed can be cut, where results of this type have sums.
fn picked(dim: usize, output: &Type) -> SplitRule {
    let rule = SplitRule::whole();
    if output.dtype == DType::Bool { rule } else { rule.factor(Kind::Picked, &[Some(dim), None], None) }
}

fn check_index(name: &str, index: &Type) -> Result<(), OpError> {
    if matches!(index.dtype, DType::I64 | DType::I32) {
        return Ok(());
    }
    Err(OpError(format!("{name}: indices must be i64 or i32, not {}", index.dtype)))
}

fn check_along(name: &str, dim: usize, x: &Type, index: &Type) -> Result<(), OpError> {
    check_index(name, index)?;
    let (a, b) = (&x.shape, &index.shape);
    if a.rank() == b.rank() && dim < a.rank() && (0..a.rank()).all(|d| d == dim || a[d] == b[d]) {
        return Ok(());
    }
    Err(OpError(format!("{name} along dim {dim}: {a} and the indices {b} must agree in every other dim")))
}

impl Operation for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        check_along("gather", self.dim, inputs[0], inputs[1])?;
        Ok(Type { dtype: inputs[0].dtype, shape: inputs[1].shape.clone() })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let zeros = g.zeros_like(b.inputs[0]);
        vec![Some(g.add_node(ScatterAdd::new(self.dim), &[zeros, b.inputs[1], b.grad])), None]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        (0..output.shape.rank()).fold(picked(self.dim, output), |rule, d| {
            let data = (d != self.dim).then_some(d);
            rule.factor(Kind::Mapped, &[data, Some(d)], Some(d))
        })
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}

impl Operation for ScatterAdd {
    fn name(&self) -> &'static str {
        "scatter_add"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let (base, index, source) = (inputs[0], inputs[1], inputs[2]);
        check_along("scatter_add", self.dim, base, index)?;
        if source.shape != index.shape || source.dtype != base.dtype || base.dtype == DType::Bool {
            return Err(OpError(format!("scatter_add: source {source}, indices {index} and base {base} do not fit")));
        }
        Ok(base.clone())
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let source = g.add_node(Gather::new(self.dim), &[b.grad, b.inputs[1]]);
        vec![Some(b.grad), None, Some(source)]
    }

    fn rule(&self, _: &[&Type], output: &Type) -> SplitRule {
        // Any source may go to any place along the dimension, and the base is added to the sum of all sources: parts of
        // them would add it to parts of the sum, in another order.
        (0..output.shape.rank()).fold(SplitRule::whole(), |rule, d| {
            let source = (d != self.dim).then_some(d);
            rule.factor(Kind::Mapped, &[Some(d), source, source], Some(d))
        })
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[2].shape.numel() as u64
    }
}

impl Operation for IndexSelect {
    fn name(&self) -> &'static str {
        "index_select"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let (x, index) = (inputs[0], inputs[1]);
        check_index("index_select", index)?;
        if self.dim >= x.shape.rank() {
            return Err(OpError(format!("index_select: dim {} of {x}", self.dim)));
        }
        let mut shape = Shape::new(&x.shape[..self.dim]);
        shape.0.extend(index.shape.iter().copied());
        shape.0.extend(x.shape[self.dim + 1..].iter().copied());
        Ok(Type { dtype: x.dtype, shape })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        let size = g.ty(b.inputs[0]).shape[self.dim];
        vec![Some(g.add_node(IndexAdd::new(self.dim, size), &[b.grad, b.inputs[1]])), None]
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        let indices = inputs[1].shape.rank();
        (0..output.shape.rank()).fold(picked(self.dim, output), |rule, d| {
            let places = if d < self.dim {
                [Some(d), None]
            } else if d < self.dim + indices {
                [None, Some(d - self.dim)]
            } else {
                [Some(d + 1 - indices), None]
            };
            rule.factor(Kind::Mapped, &places, Some(d))
        })
    }

    fn flops(&self, _: &[&Type], _: &Type) -> u64 {
        0
    }
}

impl Operation for IndexAdd {
    fn name(&self) -> &'static str {
        "index_add"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Type, OpError> {
        let (source, index) = (inputs[0], inputs[1]);
        check_index("index_add", index)?;
        let indices = index.shape.rank();
        let fits = source.shape.rank() >= self.dim + indices
            && source.shape[self.dim..self.dim + indices] == index.shape[..]
            && source.dtype != DType::Bool;
        if !fits {
            return Err(OpError(format!("index_add at dim {}: source {source} and indices {index}", self.dim)));
        }
        let mut shape = Shape::new(&source.shape[..self.dim]);
        shape.0.push(self.size);
        shape.0.extend(source.shape[self.dim + indices..].iter().copied());
        Ok(Type { dtype: source.dtype, shape })
    }

    fn gradient(&self, g: &mut Graph, b: &Backward) -> Vec<Option<NodeId>> {
        vec![Some(g.add_node(IndexSelect::new(self.dim), &[b.grad, b.inputs[1]])), None]
    }

    fn rule(&self, inputs: &[&Type], output: &Type) -> SplitRule {
        // Any slice may go to any part of the result. The indices' other dimensions are whole: they lie inside the blocks.
        let index = &inputs[1].shape;
        let mut rule = SplitRule::whole();
        if index.rank() > 0 {
            rule = rule.factor(Kind::Sum, &[Some(self.dim), Some(0)], None).every(self.blocks(index).unit);
        }
        (0..output.shape.rank()).fold(rule, |rule, d| {
            let from = match d {
                _ if d == self.dim => None,
                _ if d < self.dim => Some(d),
                _ => Some(d + index.rank() - 1),
            };
            rule.factor(Kind::Mapped, &[from, None], Some(d))
        })
    }

    fn flops(&self, inputs: &[&Type], _: &Type) -> u64 {
        inputs[0].shape.numel() as u64
    }
}
