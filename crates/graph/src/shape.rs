//! Shapes, the layouts that views give them in memory, and the types of values.

use crate::dtype::DType;
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

/// Dimension numbers or sizes; inline up to six.
pub type Dims = SmallVec<[usize; 6]>;

/// The sizes of a tensor, outermost dimension first. A scalar has no dimensions.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(pub Dims);

impl Shape {
    /// The shape with these sizes.
    pub fn new(sizes: &[usize]) -> Self {
        Shape(Dims::from_slice(sizes))
    }

    /// Number of elements (1 for a scalar).
    pub fn numel(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The NumPy broadcast of two shapes, or `None` where two sizes differ and neither is 1.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let size = |s: &Shape, d: usize| {
            let missing = rank - s.rank();
            if d < missing { 1 } else { s[d - missing] }
        };
        (0..rank)
            .map(|d| match (size(self, d), size(other, d)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect::<Option<Dims>>()
            .map(Shape)
    }

    /// Row-major strides in elements.
    pub fn strides(&self) -> SmallVec<[isize; 6]> {
        let mut strides = SmallVec::from_elem(0, self.rank());
        let mut step = 1;
        for d in (0..self.rank()).rev() {
            strides[d] = step;
            step *= self[d].max(1) as isize;
        }
        strides
    }
}

impl Deref for Shape {
    type Target = [usize];
    fn deref(&self) -> &[usize] {
        &self.0
    }
}

impl From<&[usize]> for Shape {
    fn from(sizes: &[usize]) -> Self {
        Shape::new(sizes)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(sizes: [usize; N]) -> Self {
        Shape::new(&sizes)
    }
}

impl FromIterator<usize> for Shape {
    fn from_iter<I: IntoIterator<Item = usize>>(sizes: I) -> Self {
        Shape(sizes.into_iter().collect())
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, size) in self.iter().enumerate() {
            write!(f, "{}{size}", if i > 0 { ", " } else { "" })?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is known of a value before it exists: element type and shape.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Type {
    /// The element type.
    pub dtype: DType,
    /// The sizes.
    pub shape: Shape,
}

impl Type {
    /// A type from its parts.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> Self {
        Type { dtype, shape: shape.into() }
    }

    /// Bytes of a value of this type, stored densely.
    pub fn bytes(&self) -> usize {
        self.shape.numel() * self.dtype.size()
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

impl fmt::Debug for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where the elements of a value lie in its buffer: element `i` of dimension `d` is `i * strides[d]`
/// elements after `offset`. Strides are 0 for broadcast dimensions and negative for flipped ones.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    /// The sizes.
    pub shape: Shape,
    /// Distance in elements between neighbours of each dimension.
    pub strides: SmallVec<[isize; 6]>,
    /// Element position of the first element.
    pub offset: usize,
}

impl Layout {
    /// The dense row-major layout of a shape.
    pub fn contiguous(shape: &Shape) -> Self {
        Layout { strides: shape.strides(), shape: shape.clone(), offset: 0 }
    }

    /// Whether the elements lie densely in row-major order from `offset` (sizes of 1 may have any stride).
    pub fn is_contiguous(&self) -> bool {
        if self.shape.numel() == 0 {
            return true;
        }
        let mut step = 1;
        for d in (0..self.shape.rank()).rev() {
            if self.shape[d] != 1 {
                if self.strides[d] != step {
                    return false;
                }
                step *= self.shape[d] as isize;
            }
        }
        true
    }

    /// The element position of a multi-index.
    pub fn position(&self, index: &[usize]) -> usize {
        let steps: isize = index.iter().zip(&self.strides).map(|(&i, &s)| i as isize * s).sum();
        (self.offset as isize + steps) as usize
    }

    /// The layout with dimensions in another order.
    pub fn permute(&self, dims: &[usize]) -> Layout {
        Layout {
            shape: dims.iter().map(|&d| self.shape[d]).collect(),
            strides: dims.iter().map(|&d| self.strides[d]).collect(),
            offset: self.offset,
        }
    }

    /// The layout repeated along dimensions of size 1 and along dimensions before its own.
    pub fn expand(&self, shape: &Shape) -> Layout {
        let before = shape.rank() - self.shape.rank();
        let stride = |d: usize| {
            let from = d.checked_sub(before).filter(|&from| self.shape[from] == shape[d]);
            from.map_or(0, |from| self.strides[from])
        };
        Layout { shape: shape.clone(), strides: (0..shape.rank()).map(stride).collect(), offset: self.offset }
    }

    /// Every `step`-th element of each dimension from `start`, `size` of them.
    pub fn slice(&self, starts: &[usize], sizes: &[usize], steps: &[isize]) -> Layout {
        let empty = sizes.contains(&0);
        Layout {
            shape: Shape::new(sizes),
            strides: self.strides.iter().zip(steps).map(|(s, t)| s * t).collect(),
            offset: if empty { 0 } else { self.position(starts) },
        }
    }

    /// The same elements under another shape, or `None` when no strides can express it.
    pub fn reshape(&self, shape: &Shape) -> Option<Layout> {
        if self.is_contiguous() {
            return Some(Layout { offset: self.offset, ..Layout::contiguous(shape) });
        }
        let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, shape.rank());
        let old: SmallVec<[(usize, isize); 6]> =
            (0..self.shape.rank()).filter(|&d| self.shape[d] != 1).map(|d| (self.shape[d], self.strides[d])).collect();
        let (mut i, mut j) = (0, 0);
        while i < old.len() {
            // Match a run of old dims with a run of new dims of the same product.
            let (mut end_i, mut end_j) = (i + 1, j);
            let (mut left, mut right) = (old[i].0, 1);
            loop {
                if right < left || (end_j < shape.rank() && shape[end_j] == 1) {
                    right *= *shape.get(end_j)?;
                    end_j += 1;
                } else if left < right {
                    left *= old.get(end_i)?.0;
                    end_i += 1;
                } else {
                    break;
                }
            }
            for k in i + 1..end_i {
                if old[k - 1].1 != old[k].1 * old[k].0 as isize {
                    return None;
                }
            }
            let mut step = old[end_i - 1].1;
            for k in (j..end_j).rev() {
                strides[k] = step;
                step *= shape[k] as isize;
            }
            (i, j) = (end_i, end_j);
        }
        Some(Layout { shape: shape.clone(), strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_follows_numpy() {
        let s = |d: &[usize]| Shape::new(d);
        assert_eq!(s(&[3, 1]).broadcast(&s(&[4])), Some(s(&[3, 4])));
        assert_eq!(s(&[]).broadcast(&s(&[2, 0])), Some(s(&[2, 0])));
        assert_eq!(s(&[1]).broadcast(&s(&[0])), Some(s(&[0])));
        assert_eq!(s(&[2]).broadcast(&s(&[3])), None);
    }

    #[test]
    fn reshapes_of_views_keep_every_element() {
        let base = Layout::contiguous(&Shape::new(&[4, 6, 5]));
        let sliced = base.slice(&[1, 0, 0], &[2, 6, 5], &[1, 1, 1]);
        let flat = sliced.reshape(&Shape::new(&[12, 5])).unwrap();
        assert_eq!(flat.position(&[11, 4]), sliced.position(&[1, 5, 4]));
        let turned = base.permute(&[1, 0, 2]);
        assert_eq!(turned.reshape(&Shape::new(&[24, 5])), None);
        let split = turned.reshape(&Shape::new(&[2, 3, 1, 4, 5])).unwrap();
        assert_eq!(split.position(&[1, 2, 0, 3, 4]), turned.position(&[5, 3, 4]));
        let stepped = base.slice(&[3, 0, 0], &[4, 3, 5], &[-1, 2, 1]);
        let wide = stepped.reshape(&Shape::new(&[2, 2, 3, 5])).unwrap();
        assert_eq!(wide.position(&[1, 0, 2, 3]), stepped.position(&[2, 2, 3]));
    }
}
