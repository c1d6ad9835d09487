//! How values of several ranks become one.

use std::fmt;

/// How values of several ranks become one, element by element, in the tree of adjacent pairs over the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum; that of integers wraps.
    Sum,
    /// The sum, divided by the number of ranks; for floating-point elements.
    Mean,
    /// The product; that of integers wraps.
    Product,
    /// The least; NaN if one is NaN, and −0 below +0.
    Min,
    /// The greatest; NaN if one is NaN, and −0 below +0.
    Max,
}

impl ReduceOp {
    /// All of them.
    pub const ALL: [ReduceOp; 5] = [ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Product, ReduceOp::Min, ReduceOp::Max];
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Mean => "mean",
            ReduceOp::Product => "product",
            ReduceOp::Min => "min",
            ReduceOp::Max => "max",
        })
    }
}
