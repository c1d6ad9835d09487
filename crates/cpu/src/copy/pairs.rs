//! Elements that have a place in two memories each.

use crate::walk::Walk;
use meshwork_graph::Layout;
use smallvec::SmallVec;
use std::ops::Range;

/// Dimensions in few numbers: sizes of 1 dropped, neighbours merged where on both sides one stride reaches over both.
/// Positions are relative to the first element, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pairs {
    /// Sizes, outermost first; at least one dimension.
    pub sizes: SmallVec<[usize; 6]>,
    /// Distances where elements are read.
    pub from: SmallVec<[isize; 6]>,
    /// Distances where they are written.
    pub to: SmallVec<[isize; 6]>,
}

impl Pairs {
    /// The elements of `(size, distance read, distance written)` dimensions, outermost first.
    pub fn over(dims: impl IntoIterator<Item = (usize, isize, isize)>) -> Self {
        let mut pairs = Pairs { sizes: SmallVec::new(), from: SmallVec::new(), to: SmallVec::new() };
        for (size, from, to) in dims.into_iter().filter(|dim| dim.0 != 1) {
            let before = pairs.sizes.len().checked_sub(1);
            let reaches = |last: &usize| {
                let size = size as isize;
                (pairs.from[*last], pairs.to[*last]) == (from * size, to * size)
            };
            match before.filter(reaches) {
                Some(last) => {
                    pairs.sizes[last] *= size;
                    (pairs.from[last], pairs.to[last]) = (from, to);
                }
                None => {
                    pairs.sizes.push(size);
                    pairs.from.push(from);
                    pairs.to.push(to);
                }
            }
        }
        if pairs.sizes.is_empty() {
            pairs.sizes.push(1);
            pairs.from.push(1);
            pairs.to.push(1);
        }
        pairs
    }

    /// The elements of a layout, which are written so far apart in each dimension.
    pub fn between(layout: &Layout, to: &[isize]) -> Self {
        let dims = layout.shape.iter().zip(&layout.strides).zip(to);
        Pairs::over(dims.map(|((&size, &from), &to)| (size, from, to)))
    }

    /// The elements of `(size, distance read)` dimensions, which are written behind each other.
    pub fn dense(dims: impl Iterator<Item = (usize, isize)> + Clone) -> Self {
        let mut all: usize = dims.clone().map(|dim| dim.0).product();
        Pairs::over(dims.map(|(size, from)| {
            all /= size.max(1);
            (size, from, all as isize)
        }))
    }

    /// The elements of a walk, which are written behind each other.
    pub fn of(walk: &Walk) -> Self {
        Pairs::dense(walk.sizes.iter().copied().zip(walk.strides.iter().copied()))
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The innermost dimension.
    pub fn last(&self) -> usize {
        self.sizes.len() - 1
    }

    /// Elements of a row: of the innermost dimension.
    pub fn row(&self) -> usize {
        self.sizes[self.last()]
    }

    /// Whether rows lie together on both sides.
    pub fn rows_lie_together(&self) -> bool {
        let last = self.last();
        (self.from[last], self.to[last]) == (1, 1)
    }

    /// Whether what is written lies together as a whole.
    pub fn is_dense(&self) -> bool {
        let walk = Walk::over(self.sizes.iter().copied().zip(self.to.iter().copied()));
        walk.is_dense()
    }

    /// Where an element is read and written.
    pub fn position(&self, mut index: usize) -> [isize; 2] {
        let mut position = [0; 2];
        for d in (0..self.sizes.len()).rev() {
            let here = (index % self.sizes[d]) as isize;
            position[0] += here * self.from[d];
            position[1] += here * self.to[d];
            index /= self.sizes[d];
        }
        position
    }

    /// Calls `group([from, to], count, [from, to])` for some rows, in groups of those that are neighbours along the dimension
    /// before the innermost one: where the first one begins, how many there are, and their distances.
    #[inline(always)]
    pub fn groups(&self, rows: Range<usize>, mut group: impl FnMut([isize; 2], usize, [isize; 2])) {
        let Some(along) = self.last().checked_sub(1) else { return group([0; 2], rows.len(), [0; 2]) };
        let (size, steps) = (self.sizes[along], [self.from[along], self.to[along]]);
        let mut at = rows.start % size;
        let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, along);
        let (mut rest, mut first) = (rows.start / size, [0; 2]);
        for d in (0..along).rev() {
            index[d] = rest % self.sizes[d];
            rest /= self.sizes[d];
            first[0] += index[d] as isize * self.from[d];
            first[1] += index[d] as isize * self.to[d];
        }
        let mut left = rows.len();
        while left > 0 {
            let count = (size - at).min(left);
            group([0, 1].map(|side| first[side] + at as isize * steps[side]), count, steps);
            (left, at) = (left - count, 0);
            for d in (0..along).rev() {
                let steps = [self.from[d], self.to[d]];
                index[d] += 1;
                let turns = index[d] == self.sizes[d];
                let by = if turns { 1 - self.sizes[d] as isize } else { 1 };
                first = [0, 1].map(|side| first[side] + by * steps[side]);
                if !turns {
                    break;
                }
                index[d] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_merged_where_both_sides_allow_it() {
        let pairs = Pairs::over([(3, 40, 60), (1, 7, 9), (4, 10, 10), (10, 1, 1)]);
        assert_eq!((&pairs.sizes[..], &pairs.from[..], &pairs.to[..]), (&[3, 40][..], &[40, 1][..], &[60, 1][..]));
        assert!(pairs.rows_lie_together() && !pairs.is_dense());
        assert!(Pairs::over([(3, 1, 4), (4, 3, 1)]).is_dense());
        assert_eq!(Pairs::over([]).len(), 1);
    }

    #[test]
    fn groups_are_all_rows_in_order() {
        let pairs = Pairs::over([(3, 1, 100), (4, 30, 20), (5, 3, 1)]);
        for start in 0..12 {
            for end in start..=12 {
                let mut got = vec![];
                pairs.groups(start..end, |[from, to], count, steps| {
                    got.extend((0..count as isize).map(|i| [from + i * steps[0], to + i * steps[1]]));
                });
                let want: Vec<_> = (start..end).map(|row| pairs.position(row * 5)).collect();
                assert_eq!(got, want);
            }
        }
        let mut got = vec![];
        Pairs::over([(7, 2, 3)]).groups(0..1, |at, count, _| got.push((at, count)));
        assert_eq!(got, [([0, 0], 1)]);
    }
}
