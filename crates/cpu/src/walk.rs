//! Walking over a strided operand in row-major order.

use meshwork_graph::Layout;
use smallvec::SmallVec;

/// Dimensions in few numbers: sizes of 1 dropped, neighbours merged where one stride reaches over both.
/// Positions are relative to the first element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Sizes, outermost first; at least one dimension.
    pub sizes: SmallVec<[usize; 6]>,
    /// Distances in elements.
    pub strides: SmallVec<[isize; 6]>,
}

impl Walk {
    /// The walk over all elements of a layout.
    pub fn new(layout: &Layout) -> Self {
        Self::over(layout.shape.iter().copied().zip(layout.strides.iter().copied()))
    }

    /// The walk over `(size, stride)` dimensions, outermost first.
    pub fn over(dims: impl IntoIterator<Item = (usize, isize)>) -> Self {
        let mut walk = Walk { sizes: SmallVec::new(), strides: SmallVec::new() };
        for (size, stride) in dims.into_iter().filter(|d| d.0 != 1) {
            match (walk.sizes.last_mut(), walk.strides.last_mut()) {
                (Some(last_size), Some(last)) if *last == stride * size as isize => {
                    *last_size *= size;
                    *last = stride;
                }
                _ => {
                    walk.sizes.push(size);
                    walk.strides.push(stride);
                }
            }
        }
        if walk.sizes.is_empty() {
            walk.sizes.push(1);
            walk.strides.push(0);
        }
        walk
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.sizes.contains(&0)
    }

    /// Size and stride of the innermost dimension.
    pub fn inner(&self) -> (usize, isize) {
        (self.sizes[self.sizes.len() - 1], self.strides[self.strides.len() - 1])
    }

    /// Whether the elements lie behind each other.
    pub fn is_dense(&self) -> bool {
        self.sizes.len() == 1 && (self.strides[0] == 1 || self.sizes[0] == 1)
    }

    /// Whether all elements are the same one.
    pub fn is_constant(&self) -> bool {
        self.sizes.len() == 1 && self.strides[0] == 0
    }

    /// Elements after which the same ones follow again; all, if none do.
    pub fn period(&self) -> usize {
        let outer = usize::from(self.strides[0] == 0);
        self.sizes[outer..].iter().product()
    }

    /// Position of the element with row-major number `index`.
    pub fn position(&self, mut index: usize) -> isize {
        let mut position = 0;
        for (&size, &stride) in self.sizes.iter().zip(&self.strides).rev() {
            position += (index % size) as isize * stride;
            index /= size;
        }
        position
    }

    /// Cuts the elements `start..start + len` into runs along the innermost dimension and calls
    /// `run(done, position, count, stride)` for each: `done` elements came before it.
    #[inline(always)]
    pub fn runs(&self, start: usize, len: usize, mut run: impl FnMut(usize, isize, usize, isize)) {
        let (inner, stride) = self.inner();
        if self.sizes.len() == 1 {
            return run(0, start as isize * stride, len, stride);
        }
        let outer = self.sizes.len() - 1;
        let mut index: SmallVec<[usize; 6]> = SmallVec::from_elem(0, outer);
        let (mut rest, mut at) = (start / inner, start % inner);
        let mut row = 0;
        for d in (0..outer).rev() {
            index[d] = rest % self.sizes[d];
            rest /= self.sizes[d];
            row += index[d] as isize * self.strides[d];
        }
        let mut done = 0;
        while done < len {
            let count = (inner - at).min(len - done);
            run(done, row + at as isize * stride, count, stride);
            done += count;
            at = 0;
            for d in (0..outer).rev() {
                index[d] += 1;
                row += self.strides[d];
                if index[d] < self.sizes[d] {
                    break;
                }
                row -= self.sizes[d] as isize * self.strides[d];
                index[d] = 0;
            }
        }
    }

    /// Copies the elements `start..start + out.len()` into `out`, each through `convert`.
    ///
    /// # Safety
    /// `first` must point to the first element, and all of them must be readable.
    #[inline(always)]
    pub unsafe fn gather<T: Copy, A>(&self, first: *const T, start: usize, out: &mut [A], convert: impl Fn(T) -> A) {
        self.runs(start, out.len(), |done, position, count, stride| {
            let out = &mut out[done..done + count];
            // SAFETY: the run's elements are elements of the walk.
            unsafe {
                let from = first.offset(position);
                match stride {
                    1 => {
                        let from = std::slice::from_raw_parts(from, count);
                        for (to, &x) in out.iter_mut().zip(from) {
                            *to = convert(x);
                        }
                    }
                    0 => {
                        for to in out {
                            *to = convert(*from);
                        }
                    }
                    _ => {
                        for (i, to) in out.iter_mut().enumerate() {
                            *to = convert(*from.offset(i as isize * stride));
                        }
                    }
                }
            }
        });
    }
}

/// First and last byte (exclusive) that the elements of a walk from address `first` occupy.
pub fn extent(walk: &Walk, first: usize, size: usize) -> std::ops::Range<usize> {
    if walk.is_empty() {
        return first..first;
    }
    let (mut low, mut high) = (0isize, 0isize);
    for (&n, &stride) in walk.sizes.iter().zip(&walk.strides) {
        let reach = (n as isize - 1) * stride;
        if reach < 0 { low += reach } else { high += reach }
    }
    first.wrapping_add_signed(low * size as isize)..first.wrapping_add_signed((high + 1) * size as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwork_graph::Shape;

    #[test]
    fn dimensions_are_merged() {
        let base = Layout::contiguous(&Shape::new(&[4, 1, 6, 5]));
        assert!(Walk::new(&base).is_dense());
        assert_eq!(Walk::new(&base).len(), 120);
        let turned = Walk::new(&base.permute(&[2, 3, 0, 1]));
        assert_eq!((turned.sizes.as_slice(), turned.strides.as_slice()), (&[30, 4][..], &[1, 30][..]));
        let scalar = Layout::contiguous(&Shape::new(&[1, 1])).expand(&Shape::new(&[3, 7]));
        assert!(Walk::new(&scalar).is_constant());
        assert!(Walk::new(&Layout::contiguous(&Shape::new(&[]))).is_dense());
    }

    #[test]
    fn elements_come_again_after_a_period() {
        let base = Layout::contiguous(&Shape::new(&[1, 1, 6, 5]));
        let period = |layout: &Layout| Walk::new(layout).period();
        assert_eq!(period(&base), 30);
        assert_eq!(period(&base.expand(&Shape::new(&[4, 3, 6, 5]))), 30);
        assert_eq!(period(&base.permute(&[2, 0, 1, 3]).expand(&Shape::new(&[6, 7, 2, 5]))), 6 * 7 * 2 * 5);
        assert_eq!(period(&Layout::contiguous(&Shape::new(&[1])).expand(&Shape::new(&[9]))), 1);
    }

    #[test]
    fn runs_visit_row_major_order_from_anywhere() {
        let base = Layout::contiguous(&Shape::new(&[3, 4, 5]));
        let layouts = [
            base.clone(),
            base.permute(&[2, 0, 1]),
            base.slice(&[2, 1, 0], &[3, 3, 3], &[-1, 1, 2]),
            base.slice(&[0, 0, 0], &[1, 4, 5], &[1, 1, 1]).expand(&Shape::new(&[6, 4, 5])),
        ];
        for layout in &layouts {
            let shape = &layout.shape;
            let want: Vec<isize> = (0..shape.numel())
                .map(|i| {
                    let index = [i / (shape[1] * shape[2]), i / shape[2] % shape[1], i % shape[2]];
                    layout.position(&index) as isize - layout.offset as isize
                })
                .collect();
            let walk = Walk::new(layout);
            for start in 0..want.len() {
                assert_eq!(walk.position(start), want[start]);
                let mut got = vec![];
                walk.runs(start, want.len() - start, |done, position, count, stride| {
                    assert_eq!(done, got.len());
                    got.extend((0..count as isize).map(|i| position + i * stride));
                });
                assert_eq!(got, want[start..]);
            }
        }
    }
}
