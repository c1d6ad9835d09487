//! Where the rows, columns and terms of a product lie: offsets that add up.
//!
//! Element (row, term) of an operand is at `rows[row] + terms[term]`, each a mixed-radix number over some dimensions.
//! Strided operands of any rank, unfolded images and outputs are all of this kind.

use smallvec::SmallVec;

/// One digit of an index.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Axis {
    Step { size: usize, stride: isize },
    Table(Box<[isize]>),
}

impl Axis {
    fn size(&self) -> usize {
        match self {
            Axis::Step { size, .. } => *size,
            Axis::Table(table) => table.len(),
        }
    }

    #[inline]
    fn at(&self, digit: usize) -> isize {
        match self {
            Axis::Step { stride, .. } => digit as isize * stride,
            Axis::Table(table) => table[digit],
        }
    }
}

/// Offsets in elements of the indices `0..len`, row-major over some dimensions.
#[derive(Clone, Debug)]
pub struct Offsets {
    axes: SmallVec<[Axis; 1]>,
    /// Number of indices.
    pub len: usize,
}

impl Default for Offsets {
    fn default() -> Self {
        Offsets { axes: SmallVec::new(), len: 1 }
    }
}

impl Offsets {
    /// One index, at offset 0.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a dimension inside the others; neighbours that form one dimension are merged.
    pub fn axis(mut self, size: usize, stride: isize) -> Self {
        self.len *= size;
        if size == 1 {
            return self;
        }
        if let Some(Axis::Step { size: outer, stride: step }) = self.axes.last_mut()
            && *step == stride * size as isize
        {
            (*outer, *step) = (*outer * size, stride);
            return self;
        }
        self.axes.push(Axis::Step { size, stride });
        self
    }

    /// Adds a dimension whose offsets are given one by one.
    pub fn table(mut self, offsets: &[isize]) -> Self {
        let step = offsets.get(1).map_or(0, |second| second - offsets[0]);
        if offsets.iter().enumerate().all(|(i, &o)| o == i as isize * step) {
            return self.axis(offsets.len(), step);
        }
        self.len *= offsets.len();
        self.axes.push(Axis::Table(offsets.into()));
        self
    }

    /// All offsets.
    pub fn all(&self) -> Vec<isize> {
        let mut all = vec![0; self.len];
        self.fill(0, &mut all);
        all
    }

    /// The offset of one index.
    pub fn at(&self, mut index: usize) -> isize {
        let mut offset = 0;
        for axis in self.axes.iter().rev() {
            offset += axis.at(index % axis.size());
            index /= axis.size();
        }
        offset
    }

    /// The distance between neighbours where it is the same everywhere.
    pub fn stride(&self) -> Option<isize> {
        match &*self.axes {
            [] => Some(1),
            [Axis::Step { stride, .. }] => Some(*stride),
            _ => None,
        }
    }

    /// The distance between neighbours of the innermost dimension and the length of its runs.
    pub fn inner(&self) -> (isize, usize) {
        match self.axes.last() {
            None => (1, 1),
            Some(Axis::Step { size, stride }) => (*stride, *size),
            Some(Axis::Table(table)) => (if table.windows(2).all(|w| w[1] == w[0] + 1) { 1 } else { 0 }, table.len()),
        }
    }

    /// Writes the offsets of `start..start + out.len()` and says how far apart they are: see [`evenly`].
    pub fn fill(&self, start: usize, out: &mut [isize]) -> Option<isize> {
        if let [Axis::Step { stride, .. }] = *self.axes {
            let mut at = start as isize * stride;
            for o in &mut *out {
                *o = at;
                at += stride;
            }
            return if out.len() > 1 { Some(stride) } else { Some(1) };
        }
        self.fill_by_digits(start, out);
        evenly(out)
    }

    /// Writes the offsets of any dimensions.
    fn fill_by_digits(&self, start: usize, out: &mut [isize]) {
        let Some((inner, outer)) = self.axes.split_last() else {
            return out.fill(0);
        };
        let mut digits: SmallVec<[usize; 4]> = SmallVec::from_elem(0, outer.len());
        let (mut digit, mut rest) = (start % inner.size(), start / inner.size());
        for (d, axis) in outer.iter().enumerate().rev() {
            digits[d] = rest % axis.size();
            rest /= axis.size();
        }
        let mut done = 0;
        while done < out.len() {
            let base: isize = outer.iter().zip(&digits).map(|(axis, &d)| axis.at(d)).sum();
            let count = (inner.size() - digit).min(out.len() - done);
            for (i, o) in out[done..done + count].iter_mut().enumerate() {
                *o = base + inner.at(digit + i);
            }
            done += count;
            digit = 0;
            for d in (0..outer.len()).rev() {
                digits[d] += 1;
                if digits[d] < outer[d].size() {
                    break;
                }
                digits[d] = 0;
            }
        }
    }
}

/// How far apart the offsets are, if evenly; a single one and its neighbours would be one apart.
pub fn evenly(offsets: &[isize]) -> Option<isize> {
    let step = match offsets {
        [first, second, ..] => second - first,
        _ => 1,
    };
    offsets.windows(2).all(|w| w[1] - w[0] == step).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_offsets_are_those_of_the_indices() {
        let offsets = Offsets::new().axis(3, -100).table(&[0, 7, 3, 4]).axis(5, 2);
        for start in [0, 1, 6, 19, 20, 59] {
            let mut out = vec![0; 60 - start];
            offsets.fill(start, &mut out);
            let expected: Vec<isize> = (start..60).map(|i| offsets.at(i)).collect();
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn filled_offsets_are_as_far_apart_as_they_say() {
        let one = |stride| Offsets::new().axis(9, stride);
        let kinds = [one(1), one(-4), one(0), Offsets::new(), one(7).axis(3, 2), Offsets::new().table(&[0, 3, 4, 5])];
        for offsets in kinds {
            for (start, end) in (0..offsets.len).flat_map(|start| (start..=offsets.len).map(move |end| (start, end))) {
                let mut out = vec![0; end - start];
                let step = offsets.fill(start, &mut out);
                assert_eq!(step, evenly(&out));
                assert!(out.iter().enumerate().all(|(i, &o)| o == offsets.at(start + i)));
            }
        }
    }

    #[test]
    fn dense_dimensions_merge() {
        assert_eq!(Offsets::new().axis(3, 20).axis(1, 9).axis(4, 5).axis(5, 1).stride(), Some(1));
        assert_eq!(Offsets::new().axis(3, 20).table(&[0, 5, 10, 15]).stride(), Some(5));
        assert_eq!(Offsets::new().axis(3, 20).axis(4, 6).stride(), None);
        assert_eq!(Offsets::new().stride(), Some(1));
    }
}
