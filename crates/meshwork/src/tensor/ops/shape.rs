//! Other shapes, orders and selections of the same elements.

use super::where_;
use crate::tensor::{Tensor, positions};
use meshwork_graph::ops::{BinaryOp, Concat, Pad, Permute, Reshape, Slice};
use meshwork_graph::{DType, Dims, Scalar, Shape};
use smallvec::SmallVec;

impl Tensor {
    /// The same elements in row-major order; one size may be −1 and is worked out.
    #[track_caller]
    pub fn reshape(&self, shape: &[isize]) -> Tensor {
        let known: usize = shape.iter().filter(|&&n| n != -1).map(|&n| n.max(0) as usize).product();
        let free = shape.iter().filter(|&&n| n == -1).count();
        if free > 1 || shape.iter().any(|&n| n < -1) {
            panic!("reshape: sizes are at least 0, and at most one is -1: {shape:?}");
        }
        if free == 1 && (known == 0 || !self.numel().is_multiple_of(known)) || free == 0 && known != self.numel() {
            panic!("reshape: {} has {} elements, {shape:?} does not", self.ty().shape, self.numel());
        }
        let sizes: Shape = shape.iter().map(|&n| if n == -1 { self.numel() / known } else { n as usize }).collect();
        if sizes == self.ty().shape {
            return self.clone();
        }
        Tensor::record(Reshape { shape: sizes }, &[self])
    }

    /// Joins all dimensions from `start` on.
    #[track_caller]
    pub fn flatten(&self, start: isize) -> Tensor {
        if self.rank() == 0 {
            return self.reshape(&[1]);
        }
        let start = self.dim(start);
        let mut shape: Vec<isize> = self.shape()[..start].iter().map(|&n| n as isize).collect();
        shape.push(self.shape()[start..].iter().product::<usize>() as isize);
        self.reshape(&shape)
    }

    /// A new dimension of size 1 before dimension `dim` (−1: at the end).
    #[track_caller]
    pub fn unsqueeze(&self, dim: isize) -> Tensor {
        let rank = self.rank() as isize + 1;
        let at = if dim < 0 { dim + rank } else { dim };
        assert!((0..rank).contains(&at), "unsqueeze: dim {dim} of a result with {rank} dims");
        let mut shape = self.ty().shape.clone();
        shape.0.insert(at as usize, 1);
        Tensor::record(Reshape { shape }, &[self])
    }

    /// Removes dimension `dim` if its size is 1.
    #[track_caller]
    pub fn squeeze(&self, dim: isize) -> Tensor {
        let dim = self.dim(dim);
        if self.shape()[dim] != 1 {
            return self.clone();
        }
        let mut shape = self.ty().shape.clone();
        shape.0.remove(dim);
        Tensor::record(Reshape { shape }, &[self])
    }

    /// Dimensions given by numbers that may count from the end.
    #[track_caller]
    fn each_dim(&self, dims: &[isize]) -> Dims {
        let mut found = Dims::new();
        for &d in dims {
            found.push(self.dim(d));
        }
        found
    }

    /// Dimensions in another order.
    #[track_caller]
    pub fn permute(&self, dims: &[isize]) -> Tensor {
        let dims = self.each_dim(dims);
        Tensor::record(Permute { dims }, &[self])
    }

    /// Two dimensions exchanged.
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Tensor {
        let mut dims: Dims = (0..self.rank()).collect();
        dims.swap(self.dim(a), self.dim(b));
        Tensor::record(Permute { dims }, &[self])
    }

    /// The transpose of a matrix.
    #[track_caller]
    pub fn t(&self) -> Tensor {
        assert!(self.rank() == 2, "t: {} is not a matrix", self.ty());
        self.transpose(0, 1)
    }

    /// Repeats dimensions of size 1 (and adds leading ones); −1 keeps a size.
    #[track_caller]
    pub fn expand(&self, shape: &[isize]) -> Tensor {
        let missing = shape.len().checked_sub(self.rank());
        let Some(missing) = missing else { panic!("expand: {} has more dims than {shape:?}", self.ty().shape) };
        let mut sizes = Vec::new();
        for (d, &n) in shape.iter().enumerate() {
            sizes.push(match usize::try_from(n) {
                Ok(n) => n,
                Err(_) if n == -1 && d >= missing => self.shape()[d - missing],
                Err(_) => panic!("expand: size {n} of {shape:?}"),
            });
        }
        self.broadcast_to(&sizes)
    }

    #[track_caller]
    fn sliced(&self, change: impl FnOnce(&mut Slice)) -> Tensor {
        let rank = self.rank();
        let mut slice = Slice {
            starts: Dims::from_elem(0, rank),
            sizes: self.ty().shape.0.clone(),
            steps: SmallVec::from_elem(1, rank),
        };
        change(&mut slice);
        Tensor::record(slice, &[self])
    }

    /// `size` slices of `dim` from `start`.
    ///
    /// # Panics
    /// When they do not lie inside.
    #[track_caller]
    pub fn narrow(&self, dim: isize, start: usize, size: usize) -> Tensor {
        let dim = self.dim(dim);
        if start == 0 && size == self.shape()[dim] {
            return self.clone();
        }
        self.sliced(|s| (s.starts[dim], s.sizes[dim]) = (start, size))
    }

    /// Every `step`-th slice of `dim` from `start` up to and without `stop`, as in Python: negative positions count
    /// from the end, positions beyond the ends are cut, and `step` is at least 1.
    #[track_caller]
    pub fn slice(&self, dim: isize, start: Option<isize>, stop: Option<isize>, step: usize) -> Tensor {
        assert!(step > 0, "slice: a step is at least 1");
        let dim = self.dim(dim);
        let size = self.shape()[dim] as isize;
        let position = |p: isize| (if p < 0 { p + size } else { p }).clamp(0, size);
        let (start, stop) = (position(start.unwrap_or(0)), position(stop.unwrap_or(size)));
        let count = (stop - start).max(0) as usize;
        self.sliced(|s| {
            s.starts[dim] = if count == 0 { 0 } else { start as usize };
            s.sizes[dim] = count.div_ceil(step);
            s.steps[dim] = step as isize;
        })
    }

    /// The slice number `index` of `dim`, which vanishes.
    #[track_caller]
    pub fn select(&self, dim: isize, index: isize) -> Tensor {
        let at = self.dim(dim);
        let size = self.shape()[at] as isize;
        let i = if index < 0 { index + size } else { index };
        assert!((0..size).contains(&i), "select: index {index} of dim {dim} of {}", self.ty().shape);
        self.narrow(dim, i as usize, 1).squeeze(at as isize)
    }

    /// Parts of `dim` of the given sizes, which must add up.
    #[track_caller]
    pub fn split(&self, sizes: &[usize], dim: isize) -> Vec<Tensor> {
        let whole = self.size(dim);
        assert!(sizes.iter().sum::<usize>() == whole, "split: sizes {sizes:?} do not add up to {whole}");
        let mut start = 0;
        sizes
            .iter()
            .map(|&size| {
                let part = self.narrow(dim, start, size);
                start += size;
                part
            })
            .collect()
    }

    /// At most `count` parts of `dim` of equal size; the last one may be smaller.
    #[track_caller]
    pub fn chunk(&self, count: usize, dim: isize) -> Vec<Tensor> {
        assert!(count > 0, "chunk: at least one part");
        let whole = self.size(dim);
        let size = whole.div_ceil(count).max(1);
        let sizes: Vec<usize> = (0..whole.div_ceil(size).max(1)).map(|i| size.min(whole - i * size)).collect();
        self.split(&sizes, dim)
    }

    /// Constants around: for every dimension (before, behind).
    #[track_caller]
    pub fn pad(&self, amounts: &[(usize, usize)], value: f64) -> Tensor {
        assert!(amounts.len() == self.rank(), "pad: {} amounts for the dims of {}", amounts.len(), self.ty());
        let value = if self.dtype().is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
        let pad = Pad {
            low: amounts.iter().map(|a| a.0).collect(),
            high: amounts.iter().map(|a| a.1).collect(),
            interior: Dims::from_elem(0, self.rank()),
            value,
        };
        Tensor::record(pad, &[self])
    }

    /// Dimensions reversed.
    #[track_caller]
    pub fn flip(&self, dims: &[isize]) -> Tensor {
        let dims = self.each_dim(dims);
        self.sliced(|s| {
            for &d in &dims {
                s.starts[d] = s.sizes[d].saturating_sub(1);
                s.steps[d] = -1;
            }
        })
    }

    /// Dimension `dim` turned by `shift`: element i goes to i + shift, around the end.
    #[track_caller]
    pub fn roll(&self, shift: isize, dim: isize) -> Tensor {
        let size = self.size(dim);
        if size == 0 {
            return self.clone();
        }
        let cut = size - shift.rem_euclid(size as isize) as usize;
        if cut == size {
            return self.clone();
        }
        concat(&[&self.narrow(dim, cut, size - cut), &self.narrow(dim, 0, cut)], dim)
    }

    /// The matrices in the last two dims with zeros above the given diagonal.
    #[track_caller]
    pub fn tril(&self, diagonal: isize) -> Tensor {
        self.triangle(|row, column| column.binary(BinaryOp::Le, &(row + diagonal as i64)))
    }

    /// The matrices in the last two dims with zeros below the given diagonal.
    #[track_caller]
    pub fn triu(&self, diagonal: isize) -> Tensor {
        self.triangle(|row, column| column.binary(BinaryOp::Ge, &(row + diagonal as i64)))
    }

    #[track_caller]
    fn triangle(&self, keep: impl Fn(&Tensor, &Tensor) -> Tensor) -> Tensor {
        assert!(self.rank() >= 2, "a triangle of {} needs two dims", self.ty());
        let shape = Shape::new(&self.shape()[self.rank() - 2..]);
        let row = positions(&shape, 0, DType::I64);
        let column = positions(&shape, 1, DType::I64);
        where_(&keep(&row, &column), self, &self.zeros_like())
    }
}

/// Tensors behind each other along `dim`.
#[track_caller]
pub fn concat(tensors: &[&Tensor], dim: isize) -> Tensor {
    let Some(first) = tensors.first() else { panic!("concat needs at least one tensor") };
    let dtype = tensors.iter().fold(first.dtype(), |d, t| d.promote(t.dtype()));
    let same: Vec<Tensor> = tensors.iter().map(|t| t.to_dtype(dtype)).collect();
    let same: Vec<&Tensor> = same.iter().collect();
    Tensor::record(Concat { dim: first.dim(dim) }, &same)
}

/// Tensors of one shape side by side along a new dimension `dim`.
#[track_caller]
pub fn stack(tensors: &[&Tensor], dim: isize) -> Tensor {
    let mut raised: Vec<Tensor> = Vec::new();
    for t in tensors {
        raised.push(t.unsqueeze(dim));
    }
    let raised: Vec<&Tensor> = raised.iter().collect();
    let rank = raised.first().map_or(0, |t| t.rank()) as isize;
    concat(&raised, if dim < 0 { dim + rank } else { dim })
}
