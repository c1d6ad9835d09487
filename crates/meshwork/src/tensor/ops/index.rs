//! Reading and adding at indices.

use crate::tensor::Tensor;
use meshwork_graph::ops::{Gather, IndexSelect, ScatterAdd};

impl Tensor {
    /// `y[…, i, …] = x[…, index[…, i, …], …]` along `dim`. The other sizes of `index` may be smaller than those of
    /// the tensor. An index out of range fails when the value is read.
    #[track_caller]
    pub fn gather(&self, dim: isize, index: &Tensor) -> Tensor {
        let dim = self.dim(dim);
        let x = self.cut_to(index, dim, "gather");
        Tensor::record(Gather::new(dim), &[&x, index])
    }

    /// The tensor with `source` added at `index` along `dim`; repeated indices add up.
    ///
    /// # Panics
    /// When index and source differ in shape, or their other sizes from the tensor's.
    #[track_caller]
    pub fn scatter_add(&self, dim: isize, index: &Tensor, source: &Tensor) -> Tensor {
        let dim = self.dim(dim);
        let fits = index.rank() == self.rank()
            && source.rank() == self.rank()
            && (0..self.rank()).all(|d| index.shape()[d] <= source.shape()[d]);
        assert!(fits, "scatter_add: source {} does not cover the indices {}", source.ty(), index.ty());
        let source = (0..self.rank()).fold(source.clone(), |s, d| s.narrow(d as isize, 0, index.shape()[d]));
        let same = |d: usize| d == dim || index.shape()[d] == self.shape()[d];
        if (0..self.rank()).all(same) {
            return Tensor::record(ScatterAdd::new(dim), &[self, index, &source]);
        }
        // Indices that cover a corner: the corner is computed alone and put back.
        let corner = self.cut_to(index, dim, "scatter_add");
        let added = Tensor::record(ScatterAdd::new(dim), &[&corner.zeros_like(), index, &source]);
        let pads: Vec<(usize, usize)> = (0..self.rank()).map(|d| (0, self.shape()[d] - added.shape()[d])).collect();
        self + &added.pad(&pads, 0.0)
    }

    /// The leading part of the tensor that indices along `dim` reach.
    #[track_caller]
    fn cut_to(&self, index: &Tensor, dim: usize, name: &str) -> Tensor {
        let fits =
            index.rank() == self.rank() && (0..self.rank()).all(|d| d == dim || index.shape()[d] <= self.shape()[d]);
        assert!(fits, "{name} along dim {dim}: indices {} do not fit {}", index.ty(), self.ty());
        (0..self.rank()).filter(|&d| d != dim).fold(self.clone(), |x, d| x.narrow(d as isize, 0, index.shape()[d]))
    }

    /// The slices of the tensor along `dim` that 1-d `index` names.
    #[track_caller]
    pub fn index_select(&self, dim: isize, index: &Tensor) -> Tensor {
        assert!(index.rank() <= 1, "index_select needs 1-d indices, not {}", index.ty());
        let index = if index.rank() == 0 { index.reshape(&[1]) } else { index.clone() };
        Tensor::record(IndexSelect::new(self.dim(dim)), &[self, &index])
    }

    /// Rows of a table `[V, D]` by indices of any shape `[…]`: `[…, D]`.
    #[track_caller]
    pub fn embedding(&self, indices: &Tensor) -> Tensor {
        assert!(self.rank() == 2, "an embedding table is [entries, size], not {}", self.ty());
        Tensor::record(IndexSelect::new(0), &[self, indices])
    }
}
