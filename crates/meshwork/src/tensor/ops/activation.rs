//! Activation functions, softmax and dropout.

use super::where_;
use crate::tensor::{Tensor, keyed, no_grad, policy};
use meshwork_graph::ops::{BinaryOp, Distribution};

impl Tensor {
    /// The Gaussian error linear unit, exactly: x · Φ(x) (Hendrycks and Gimpel, 2016).
    #[track_caller]
    pub fn gelu(&self) -> Tensor {
        policy!("gelu").apply(self, |x| {
            let half = x.constant_like(0.5);
            let scaled = x.binary(BinaryOp::Mul, &x.constant_like(std::f64::consts::FRAC_1_SQRT_2));
            let cdf = scaled.erf().binary(BinaryOp::Add, &x.ones_like()).binary(BinaryOp::Mul, &half);
            x.binary(BinaryOp::Mul, &cdf)
        })
    }

    /// The tanh approximation of [`Tensor::gelu`], as GPT-2 uses it.
    #[track_caller]
    pub fn gelu_tanh(&self) -> Tensor {
        policy!("gelu_tanh").apply(self, |x| {
            let cubic = x.square().binary(BinaryOp::Mul, x).binary(BinaryOp::Mul, &x.constant_like(0.044715));
            let inner = x.binary(BinaryOp::Add, &cubic);
            let inner = inner.binary(BinaryOp::Mul, &x.constant_like((2.0 / std::f64::consts::PI).sqrt()));
            let gate = inner.tanh().binary(BinaryOp::Add, &x.ones_like());
            x.binary(BinaryOp::Mul, &x.constant_like(0.5)).binary(BinaryOp::Mul, &gate)
        })
    }

    /// x · sigmoid(x).
    #[track_caller]
    pub fn silu(&self) -> Tensor {
        policy!("silu").apply(self, |x| x.binary(BinaryOp::Mul, &x.sigmoid()))
    }

    /// log(1 + exp(x)), without overflow.
    #[track_caller]
    pub fn softplus(&self) -> Tensor {
        // max(x, 0) + log(1 + exp(−|x|)), both written so that their slopes at 0 add up to ½.
        policy!("softplus").apply(self, |x| {
            let zero = x.zeros_like();
            let negative = x.binary(BinaryOp::Lt, &zero);
            let positive_part = where_(&negative, &zero, x);
            let minus_abs = where_(&negative, x, &-x);
            positive_part.binary(BinaryOp::Add, &minus_abs.exp().log1p())
        })
    }

    /// log(sigmoid(x)), without overflow.
    #[track_caller]
    pub fn log_sigmoid(&self) -> Tensor {
        policy!("log_sigmoid").apply(self, |x| -&(-x).softplus())
    }

    /// exp(x) normalised to sum 1 along `dim`. The largest element is subtracted first.
    #[track_caller]
    pub fn softmax(&self, dim: isize) -> Tensor {
        let [x] = policy!("softmax").cast([self]);
        let e = x.shifted(dim).exp();
        let sum = e.sum_keepdim(dim);
        e.binary(BinaryOp::Div, &sum)
    }

    /// The logarithm of [`Tensor::softmax`], computed without its loss of accuracy.
    #[track_caller]
    pub fn log_softmax(&self, dim: isize) -> Tensor {
        let [x] = policy!("log_softmax").cast([self]);
        let shifted = x.shifted(dim);
        let log_sum = shifted.exp().sum_keepdim(dim).log();
        shifted.binary(BinaryOp::Sub, &log_sum)
    }

    /// x − max(x): softmax does not depend on the shift, so no gradient flows through it.
    #[track_caller]
    fn shifted(&self, dim: isize) -> Tensor {
        let x = self.float();
        if x.size(dim) == 0 {
            return x;
        }
        let max = no_grad(|| x.amax_keepdim(dim));
        x.binary(BinaryOp::Sub, &max)
    }

    /// Sets each element to 0 with probability `p` and scales the others by 1 / (1 − p). Which ones depends on `key`
    /// and the element's index alone.
    ///
    /// # Panics
    /// When `p` is not in 0..=1.
    #[track_caller]
    pub fn dropout(&self, p: f64, key: u64) -> Tensor {
        assert!((0.0..=1.0).contains(&p), "a dropout probability is in 0..=1, not {p}");
        if p == 1.0 {
            return self.binary(BinaryOp::Mul, &self.zeros_like());
        }
        policy!("dropout").apply(self, |x| {
            let chance = keyed(Distribution::Uniform, x.shape(), x.dtype(), key);
            let kept = chance.binary(BinaryOp::Ge, &x.constant_like(p));
            let scaled = x.binary(BinaryOp::Mul, &x.constant_like(1.0 / (1.0 - p)));
            where_(&kept, &scaled, &x.zeros_like())
        })
    }
}
