//! Meshes of devices with named axes, and how a value lies on one.

use crate::batch;
use crate::dtype::DType;
use crate::region::Region;
use crate::shape::Shape;
use smallvec::SmallVec;
use std::fmt;

/// Devices in a grid with named axes. A *rank* is a position in the grid; ranks are counted row by row, the last axis
/// fastest. Several ranks may be on one device: it computes their parts one after the other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mesh {
    /// Name and size of each axis.
    pub axes: Vec<(String, usize)>,
    /// The device of each rank.
    pub devices: Vec<u32>,
}

/// How partial values become the whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Merge {
    Sum,
    Prod,
    Max,
    Min,
}

/// How a value lies along one axis of a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Every rank has all of it.
    Replicated,
    /// A dimension is cut, at multiples of `unit` indices; ranks have one part each, in order.
    Split {
        /// The dimension.
        dim: usize,
        /// Where it may be cut.
        unit: usize,
    },
    /// Cut in the same way, but only to save memory: what computes with the value, apart from elementwise updates, first
    /// gathers it (ZeRO stage 3, FSDP: Rajbhandari et al., 2020; Zhao et al., 2023).
    Sharded {
        /// The dimension.
        dim: usize,
        /// Where it may be cut.
        unit: usize,
    },
    /// Every rank has values of the whole shape that must be merged.
    Partial(Merge),
}

/// One placement for each axis of a mesh.
pub type Placements = SmallVec<[Placement; 3]>;

impl Placement {
    /// Split along a dimension, at its usual places: between blocks of samples for dimension 0, anywhere for the others.
    pub const fn split(dim: usize) -> Placement {
        Placement::Split { dim, unit: 0 }
    }

    /// [`Placement::Sharded`] along a dimension, at its usual places.
    pub const fn sharded(dim: usize) -> Placement {
        Placement::Sharded { dim, unit: 0 }
    }

    /// The dimension that is cut, and where it may be.
    pub fn cut(self) -> Option<(usize, usize)> {
        match self {
            Placement::Split { dim, unit } | Placement::Sharded { dim, unit } => Some((dim, unit)),
            Placement::Replicated | Placement::Partial(_) => None,
        }
    }

    /// Whether parts must be merged.
    pub fn is_partial(self) -> bool {
        matches!(self, Placement::Partial(_))
    }
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Placement::Replicated => f.write_str("replicated"),
            Placement::Split { dim, .. } => write!(f, "split({dim})"),
            Placement::Sharded { dim, .. } => write!(f, "sharded({dim})"),
            Placement::Partial(Merge::Sum) => f.write_str("partial(sum)"),
            Placement::Partial(Merge::Prod) => f.write_str("partial(prod)"),
            Placement::Partial(Merge::Max) => f.write_str("partial(max)"),
            Placement::Partial(Merge::Min) => f.write_str("partial(min)"),
        }
    }
}

impl Mesh {
    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.devices.len()
    }

    /// When a rank computes: ranks of the axis `accumulate` are microbatches, one after the other.
    pub fn phase(&self, rank: usize) -> usize {
        let axis = self.axes.iter().position(|(name, _)| name == "accumulate");
        axis.map_or(0, |axis| self.coordinate(rank, axis))
    }

    /// Whether ranks along an axis are on different devices.
    pub fn spans(&self, axis: usize) -> bool {
        let behind: usize = self.axes[axis + 1..].iter().map(|(_, size)| size).product();
        let next = |rank: usize| rank + behind;
        let has_next = |rank: &usize| self.coordinate(*rank, axis) + 1 < self.axes[axis].1;
        (0..self.size()).filter(has_next).any(|rank| self.devices[rank] != self.devices[next(rank)])
    }

    /// The position of a rank along an axis.
    pub fn coordinate(&self, rank: usize, axis: usize) -> usize {
        let behind: usize = self.axes[axis + 1..].iter().map(|(_, size)| size).product();
        rank / behind % self.axes[axis].1
    }

    /// The part of `0..extent` that a rank has when `cuts` says for each axis whether it cuts, and at multiples of what.
    /// Later axes cut what earlier ones have left.
    pub fn range(&self, rank: usize, extent: usize, cuts: impl Fn(usize) -> Option<usize>) -> std::ops::Range<usize> {
        let mut range = 0..extent;
        for (axis, &(_, size)) in self.axes.iter().enumerate() {
            if let Some(unit) = cuts(axis) {
                let at = |part| range.start + batch::cut(range.len(), unit, part, size);
                let part = self.coordinate(rank, axis);
                range = at(part)..at(part + 1);
            }
        }
        range
    }

    /// The indices of a value of this shape that a rank has.
    pub fn region(&self, rank: usize, shape: &Shape, placements: &[Placement]) -> Region {
        let mut region = Region::whole(shape);
        for dim in 0..shape.rank() {
            let cuts = |axis: usize| placements[axis].cut().filter(|cut| cut.0 == dim).map(|cut| cut.1);
            region.set(dim, self.range(rank, shape[dim], cuts));
        }
        region
    }

    /// The ranks whose parts are stored: the first of those on one device that have the same part, if it has elements. All
    /// ranks of a value without elements have the same.
    pub fn stored(&self, shape: &Shape, placements: &[Placement]) -> Vec<usize> {
        let mut known: Vec<(u32, Region)> = Vec::new();
        let is_new = |&rank: &usize| {
            let part = (self.devices[rank], self.region(rank, shape, placements));
            let new = !known.contains(&part) && (shape.numel() == 0 || !part.1.is_empty());
            if new {
                known.push(part);
            }
            new
        };
        (0..self.size()).filter(is_new).collect()
    }

    /// Bytes that each rank stores.
    pub fn stored_bytes(&self, dtype: DType, shape: &Shape, placements: &[Placement]) -> Vec<usize> {
        (0..self.size()).map(|rank| self.region(rank, shape, placements).numel() * dtype.size()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mesh(axes: &[usize]) -> Mesh {
        let axes: Vec<(String, usize)> = axes.iter().enumerate().map(|(i, &n)| (format!("axis {i}"), n)).collect();
        let size = axes.iter().map(|(_, n)| n).product::<usize>() as u32;
        Mesh { axes, devices: (0..size).collect() }
    }

    #[test]
    fn parts_tile_the_value_whatever_its_size() {
        for axes in [&[1][..], &[2], &[3], &[8], &[2, 2], &[2, 3], &[3, 1, 2]] {
            let mesh = mesh(axes);
            for rows in [1, 2, 5, 7, 16, 100] {
                let shape = Shape::new(&[rows, 6]);
                let split = |dim, unit| Placement::Split { dim, unit };
                for (first, second) in
                    [(split(0, 1), split(1, 1)), (split(0, 4), split(0, 2)), (split(1, 4), split(0, 1))]
                {
                    let placements: Placements =
                        (0..axes.len()).map(|axis| if axis == 0 { first } else { second }).collect();
                    let mut seen = vec![0; rows * 6];
                    for rank in 0..mesh.size() {
                        let region = mesh.region(rank, &shape, &placements);
                        for i in region.range(0) {
                            region.range(1).for_each(|j| seen[i * 6 + j] += 1);
                        }
                    }
                    assert!(seen.iter().all(|&n| n == 1), "{axes:?} {rows} {placements:?}: {seen:?}");
                }
            }
        }
    }

    #[test]
    fn equal_parts_on_one_device_are_stored_once() {
        let shape = Shape::new(&[4]);
        let mut mesh = mesh(&[2, 2]);
        let replicated: Placements = [Placement::Replicated; 2].into_iter().collect();
        assert_eq!(mesh.stored(&shape, &replicated), [0, 1, 2, 3]);
        mesh.devices = vec![0, 0, 1, 1];
        assert_eq!(mesh.stored(&shape, &replicated), [0, 2]);
        let split = Placement::Split { dim: 0, unit: 4 };
        assert_eq!(mesh.stored(&shape, &[split, Placement::Replicated]), [2]);
        assert_eq!(mesh.stored_bytes(DType::F32, &shape, &[split, Placement::Replicated]), [0, 0, 16, 16]);
    }
}
