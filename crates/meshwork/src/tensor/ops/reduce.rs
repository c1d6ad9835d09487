//! Reductions.

use crate::tensor::{Tensor, policy};
use meshwork_graph::ops::{ArgReduce, BinaryOp, CumSum, Permute, Reduce, ReduceOp, Reshape};
use meshwork_graph::{DType, Dims, Shape};

/// Dimensions to reduce: one (`1`), several (`[0, 2]`), or all (`..`). Negative numbers count from the end.
pub trait DimList {
    /// The dimensions in ascending order, each once.
    fn dims(&self, tensor: &Tensor) -> Dims;
}

impl DimList for isize {
    #[track_caller]
    fn dims(&self, tensor: &Tensor) -> Dims {
        Dims::from_slice(&[tensor.dim(*self)])
    }
}

impl DimList for std::ops::RangeFull {
    fn dims(&self, tensor: &Tensor) -> Dims {
        (0..tensor.rank()).collect()
    }
}

impl DimList for &[isize] {
    #[track_caller]
    fn dims(&self, tensor: &Tensor) -> Dims {
        let mut dims: Dims = Dims::new();
        for &d in *self {
            let dim = tensor.dim(d);
            assert!(!dims.contains(&dim), "dim {d} is named twice");
            dims.push(dim);
        }
        dims.sort_unstable();
        dims
    }
}

impl<const N: usize> DimList for [isize; N] {
    #[track_caller]
    fn dims(&self, tensor: &Tensor) -> Dims {
        self.as_slice().dims(tensor)
    }
}

impl Tensor {
    #[track_caller]
    fn reduce(&self, op: ReduceOp, dims: &Dims) -> Tensor {
        if dims.is_empty() { self.clone() } else { Tensor::record(Reduce::new(op, dims), &[self]) }
    }

    /// The result of a reduction with its dimensions back, of size 1.
    #[track_caller]
    fn keepdim(&self, reduced: Tensor, dims: &Dims) -> Tensor {
        let shape = (0..self.rank()).map(|d| if dims.contains(&d) { 1 } else { self.shape()[d] }).collect();
        Tensor::record(Reshape { shape }, &[&reduced])
    }

    /// Integers and bool are summed as i64, as in PyTorch.
    fn summable(&self) -> Tensor {
        if self.dtype().is_float() { self.clone() } else { self.to_dtype(DType::I64) }
    }

    /// Sum over dimensions, which vanish. Integers and bool give i64.
    #[track_caller]
    pub fn sum(&self, dims: impl DimList) -> Tensor {
        let [x] = policy!("sum").cast([self]);
        x.summable().reduce(ReduceOp::Sum, &dims.dims(self))
    }

    /// Sum over dimensions, which stay with size 1.
    #[track_caller]
    pub fn sum_keepdim(&self, dims: impl DimList) -> Tensor {
        let [x] = policy!("sum_keepdim").cast([self]);
        let dims = dims.dims(self);
        self.keepdim(x.summable().reduce(ReduceOp::Sum, &dims), &dims)
    }

    /// Product over dimensions, which vanish. Integers and bool give i64.
    #[track_caller]
    pub fn prod(&self, dims: impl DimList) -> Tensor {
        let [x] = policy!("prod").cast([self]);
        x.summable().reduce(ReduceOp::Prod, &dims.dims(self))
    }

    /// Maximum over dimensions, which vanish; NaN if any element is. Equal maxima share the gradient.
    #[track_caller]
    pub fn amax(&self, dims: impl DimList) -> Tensor {
        self.reduce(ReduceOp::Max, &dims.dims(self))
    }

    /// Maximum over dimensions, which stay with size 1.
    #[track_caller]
    pub fn amax_keepdim(&self, dims: impl DimList) -> Tensor {
        let dims = dims.dims(self);
        self.keepdim(self.reduce(ReduceOp::Max, &dims), &dims)
    }

    /// Minimum over dimensions, which vanish; NaN if any element is. Equal minima share the gradient.
    #[track_caller]
    pub fn amin(&self, dims: impl DimList) -> Tensor {
        self.reduce(ReduceOp::Min, &dims.dims(self))
    }

    /// Mean over dimensions, which vanish: the sum divided by the count.
    #[track_caller]
    pub fn mean(&self, dims: impl DimList) -> Tensor {
        let dims = dims.dims(self);
        let [x] = policy!("mean").cast([self]);
        let sum = x.float().reduce(ReduceOp::Sum, &dims);
        sum.divided_by(self.count(&dims) as f64)
    }

    /// Mean over dimensions, which stay with size 1.
    #[track_caller]
    pub fn mean_keepdim(&self, dims: impl DimList) -> Tensor {
        let dims = dims.dims(self);
        let [x] = policy!("mean_keepdim").cast([self]);
        let sum = x.float().reduce(ReduceOp::Sum, &dims);
        self.keepdim(sum, &dims).divided_by(self.count(&dims) as f64)
    }

    /// Variance over dimensions, which vanish: the sum of squared distances from the mean divided by
    /// count − `correction` (1: unbiased, 0: biased).
    #[track_caller]
    pub fn var(&self, dims: impl DimList, correction: usize) -> Tensor {
        let dims = dims.dims(self);
        let [x] = policy!("var").cast([self]);
        let x = x.float();
        let mean = self.keepdim(x.reduce(ReduceOp::Sum, &dims), &dims).divided_by(self.count(&dims) as f64);
        let squares = x.binary(BinaryOp::Sub, &mean).square();
        squares.reduce(ReduceOp::Sum, &dims).divided_by(self.count(&dims) as f64 - correction as f64)
    }

    /// Position of the first maximum over dimensions, which vanish (i64). Over several it is the position in their
    /// row-major order.
    #[track_caller]
    pub fn argmax(&self, dims: impl DimList) -> Tensor {
        self.position(true, &dims.dims(self))
    }

    /// Position of the first minimum over dimensions, which vanish (i64). Over several it is the position in their
    /// row-major order.
    #[track_caller]
    pub fn argmin(&self, dims: impl DimList) -> Tensor {
        self.position(false, &dims.dims(self))
    }

    #[track_caller]
    fn position(&self, largest: bool, dims: &Dims) -> Tensor {
        if let [dim] = dims[..] {
            return Tensor::record(ArgReduce { largest, dim }, &[self]);
        }
        let kept: Dims = (0..self.rank()).filter(|d| !dims.contains(d)).collect();
        let order = kept.iter().chain(dims).copied().collect();
        let behind = Tensor::record(Permute { dims: order }, &[self]);
        let mut shape: Shape = kept.iter().map(|&d| self.shape()[d]).collect();
        shape.0.push(self.count(dims));
        let joined = Tensor::record(Reshape { shape }, &[&behind]);
        Tensor::record(ArgReduce { largest, dim: kept.len() }, &[&joined])
    }

    /// Running sum along `dim`. Integers and bool give i64.
    #[track_caller]
    pub fn cumsum(&self, dim: isize) -> Tensor {
        let [x] = policy!("cumsum").cast([self]);
        Tensor::record(CumSum { dim: self.dim(dim), reverse: false }, &[&x.summable()])
    }

    /// Elements over which a reduction runs.
    fn count(&self, dims: &Dims) -> usize {
        dims.iter().map(|&d| self.shape()[d]).product()
    }

    /// Division by a constant of the structure.
    pub(crate) fn divided_by(&self, count: f64) -> Tensor {
        self.binary(BinaryOp::Div, &self.constant_like(count))
    }
}
