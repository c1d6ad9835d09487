//! Boxes of indices: which part of a value a device has.

use crate::shape::{Dims, Shape};
use std::ops::Range;

/// For each dimension of a value a range of its indices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// First index of each dimension.
    pub starts: Dims,
    /// Number of indices of each dimension.
    pub sizes: Dims,
}

impl Region {
    /// All indices of a shape.
    pub fn whole(shape: &Shape) -> Self {
        Region { starts: Dims::from_elem(0, shape.rank()), sizes: shape.0.clone() }
    }

    /// The indices of one dimension.
    pub fn range(&self, dim: usize) -> Range<usize> {
        self.starts[dim]..self.starts[dim] + self.sizes[dim]
    }

    /// Restricts a dimension to a range.
    pub fn set(&mut self, dim: usize, range: Range<usize>) {
        self.starts[dim] = range.start;
        self.sizes[dim] = range.len();
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Whether it is all of a shape.
    pub fn is_whole(&self, shape: &Shape) -> bool {
        self.sizes == shape.0
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The shape of a value of this region alone.
    pub fn shape(&self) -> Shape {
        Shape(self.sizes.clone())
    }

    /// What both have; `None` when that is nothing.
    pub fn intersection(&self, other: &Region) -> Option<Region> {
        let mut both = self.clone();
        for dim in 0..self.sizes.len() {
            let (a, b) = (self.range(dim), other.range(dim));
            let (start, end) = (a.start.max(b.start), a.end.min(b.end));
            if start >= end {
                return None;
            }
            both.set(dim, start..end);
        }
        Some(both)
    }

    /// Whether its indices are those of a shape.
    pub fn is_inside(&self, shape: &Shape) -> bool {
        let ranks = [self.starts.len(), self.sizes.len()];
        ranks == [shape.rank(); 2] && (0..shape.rank()).all(|d| self.starts[d] + self.sizes[d] <= shape[d])
    }

    /// The region of `outer` that has these indices, which are counted from the start of `outer`: the inverse of
    /// [`within`](Self::within).
    pub fn inside(&self, outer: &Region) -> Region {
        let starts = self.starts.iter().zip(&outer.starts).map(|(a, b)| a + b).collect();
        Region { starts, sizes: self.sizes.clone() }
    }

    /// The same indices counted from the start of `outer`, which contains them.
    pub fn within(&self, outer: &Region) -> Region {
        let starts = self.starts.iter().zip(&outer.starts).map(|(a, b)| a - b).collect();
        Region { starts, sizes: self.sizes.clone() }
    }
}
