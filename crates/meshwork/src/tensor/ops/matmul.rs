//! Matrix products.

use crate::tensor::{Tensor, policy};
use meshwork_graph::canonical::Blocking;
use meshwork_graph::ops::{BinaryOp, Dot};
use meshwork_graph::{Dims, Shape};

impl Tensor {
    /// The matrix product as PyTorch and NumPy define it: 1-d operands are vectors, 2-d ones matrices, and further
    /// leading dimensions are batches that broadcast.
    #[track_caller]
    pub fn matmul(&self, other: &Tensor) -> Tensor {
        let [a, b] = policy!("matmul").cast([self, other]);
        let dtype = a.dtype().promote(b.dtype());
        let (a, b) = (a.to_dtype(dtype), b.to_dtype(dtype));
        let (m, n) = (a.rank(), b.rank());
        assert!(m > 0 && n > 0, "matmul: 0-d operands {} and {}; multiply them instead", a.ty().shape, b.ty().shape);
        let inner = |t: &Tensor| if t.rank() == 1 { t.shape()[0] } else { t.shape()[t.rank() - 2] };
        assert!(
            a.shape()[m - 1] == inner(&b),
            "matmul: {} by {}: the last dim of the left ({}) and the {} dim of the right ({}) must be equal",
            a.ty().shape,
            b.ty().shape,
            a.shape()[m - 1],
            if n == 1 { "only" } else { "second last" },
            inner(&b)
        );
        if n <= 2 {
            return a.contract(&b, &[], m - 1, 0);
        }
        if m == 1 {
            return b.contract(&a, &[], n - 2, 0);
        }
        let (left, right) = (Shape::new(&a.shape()[..m - 2]), Shape::new(&b.shape()[..n - 2]));
        let Some(batch) = left.broadcast(&right) else {
            panic!("matmul: batches {left} of {} and {right} of {} do not broadcast", a.ty().shape, b.ty().shape);
        };
        let whole = |t: &Tensor| {
            let mut shape = batch.clone();
            shape.0.extend_from_slice(&t.shape()[t.rank() - 2..]);
            t.broadcast_to(&shape)
        };
        let dims: Dims = (0..batch.rank()).collect();
        let rank = batch.rank();
        whole(&a).contract(&whole(&b), &dims, rank + 1, rank)
    }

    #[track_caller]
    fn contract(&self, other: &Tensor, batch: &[usize], left: usize, right: usize) -> Tensor {
        let dot = Dot {
            lhs_batch: Dims::from_slice(batch),
            rhs_batch: Dims::from_slice(batch),
            lhs_contract: Dims::from_slice(&[left]),
            rhs_contract: Dims::from_slice(&[right]),
            blocking: Blocking::Features,
        };
        Tensor::record(dot, &[self, other])
    }

    /// x · weightᵀ + bias: `[…, in]`, weight `[out, in]`, bias `[out]` to `[…, out]`.
    #[track_caller]
    pub fn linear(&self, weight: &Tensor, bias: Option<&Tensor>) -> Tensor {
        let fits = weight.rank() == 2 && self.rank() > 0 && self.shape()[self.rank() - 1] == weight.shape()[1];
        assert!(
            fits,
            "linear: input {} does not fit weight {} [out, in]: the last dim of the input must be `in`",
            self.ty(),
            weight.ty()
        );
        let policy = policy!("linear");
        let [x, weight] = policy.cast([self, weight]);
        let y = x.contract(&weight, &[], self.rank() - 1, 1);
        match bias.map(|bias| policy.cast([bias])) {
            Some([bias]) => y.binary(BinaryOp::Add, &bias),
            None => y,
        }
    }
}
