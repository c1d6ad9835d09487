//! How an operation may be split: its dimensions as factors, declared once per operation.
//!
//! A factor is a loop of the operation, like a letter of an einsum: `matmul: m k, k n -> m n`. Each tensor
//! dimension belongs to at most one factor; from the factors alone the split pass derives every legal
//! placement. The idea is that of Shardy's `op_sharding_rule`.

use crate::shape::Type;

/// What happens when a factor is split over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Kind {
    /// Every index is computed alone: the output is split the same way.
    Mapped,
    /// The factor is summed away: the output is `Partial(sum)`.
    Sum,
    /// The factor is multiplied away, in the tree of a sum: `Partial(prod)`.
    Prod,
    /// The factor is reduced by maximum: `Partial(max)`.
    Max,
    /// The factor is reduced by minimum: `Partial(min)`.
    Min,
    /// Data say which one of the indices is read. A part gives −0 where that is not in it, which no sum with it can
    /// tell from nothing, so the output is `Partial(sum)`, exact in any order.
    Picked,
    /// The factor cannot be split.
    #[default]
    Whole,
    /// Neighbouring indices are read: a split needs this many extra elements on each side.
    Halo,
}

/// One factor: where it appears in each operand and in the output.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Factor {
    /// What a split of it means.
    pub kind: Kind,
    /// For each input the dimension that carries the factor, if any.
    pub inputs: Vec<Option<usize>>,
    /// The output dimension that carries the factor, if any.
    pub output: Option<usize>,
    /// The factor may only be cut at multiples of this many indices.
    pub granularity: Option<usize>,
    /// Number of indices, where no dimension that carries the factor need have so few: see [`size`](Self::size).
    pub count: Option<usize>,
}

/// The factors of an operation. Dimensions that no factor names cannot be split.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct SplitRule {
    /// The factors, in no particular order.
    pub factors: Vec<Factor>,
}

impl Factor {
    /// Number of indices, for operands and a result of these shapes: [`count`](Self::count), or the smallest of the
    /// dimensions that carry the factor. A dimension with more elements carries it as the outermost of several merged
    /// ones: each index of the factor is a run of [`step`](Self::step) elements there.
    pub fn size(&self, inputs: &[&Type], output: &Type) -> usize {
        if let Some(count) = self.count {
            return count;
        }
        let carried = self.inputs.iter().zip(inputs).filter_map(|(d, ty)| d.map(|d| ty.shape[d]));
        carried.chain(self.output.map(|d| output.shape[d])).min().unwrap_or(0)
    }

    /// Elements that one index of the factor stands for in a dimension of `extent` elements that carries it, when the
    /// factor has `size` indices.
    pub fn step(size: usize, extent: usize) -> usize {
        extent.checked_div(size).unwrap_or(1)
    }
}

impl SplitRule {
    /// Nothing may be split.
    pub fn whole() -> Self {
        SplitRule::default()
    }

    /// Adds a factor.
    pub fn factor(mut self, kind: Kind, inputs: &[Option<usize>], output: Option<usize>) -> Self {
        self.factors.push(Factor { kind, inputs: inputs.to_vec(), output, ..Factor::default() });
        self
    }

    /// Restricts the cuts of the factor added last.
    pub fn every(mut self, granularity: usize) -> Self {
        self.factors.last_mut().expect("a factor to restrict").granularity = Some(granularity);
        self
    }

    /// Gives the factor added last so many indices.
    pub fn counting(mut self, count: usize) -> Self {
        self.factors.last_mut().expect("a factor to count").count = Some(count);
        self
    }
}
