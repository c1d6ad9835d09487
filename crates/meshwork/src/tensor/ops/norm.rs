//! Normalisations.

use crate::tensor::{Tensor, no_grad, policy};
use meshwork_graph::ops::BinaryOp;

/// Mean and biased variance of a batch per channel, each `[C]`.
pub struct BatchStatistics {
    /// Mean over samples and positions.
    pub mean: Tensor,
    /// Biased variance over samples and positions.
    pub var: Tensor,
    /// Elements per channel.
    pub count: usize,
}

impl BatchStatistics {
    /// Running statistics moved toward those of the batch: `old + momentum · (new − old)`, with the unbiased
    /// variance, as PyTorch keeps them. Gradients do not flow.
    pub fn running(&self, mean: &Tensor, var: &Tensor, momentum: f64) -> (Tensor, Tensor) {
        no_grad(|| {
            let unbiased = self.count as f64 / (self.count.max(2) - 1) as f64;
            let new_var = &self.var * &self.var.constant_like(unbiased);
            let toward = |old: &Tensor, new: &Tensor| {
                let rest = old * &old.constant_like(1.0 - momentum);
                rest + new * &new.constant_like(momentum)
            };
            (toward(mean, &self.mean), toward(var, &new_var))
        })
    }
}

impl Tensor {
    /// `(x − mean) / sqrt(var + eps) · weight + bias`, all broadcast.
    #[track_caller]
    fn normalised(
        &self,
        mean: &Tensor,
        var: &Tensor,
        eps: f64,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
    ) -> Tensor {
        let scale = var.binary(BinaryOp::Add, &var.constant_like(eps)).rsqrt();
        self.binary(BinaryOp::Sub, mean).binary(BinaryOp::Mul, &scale).affine(weight, bias)
    }

    /// `x · weight + bias` with what there is of both.
    #[track_caller]
    fn affine(&self, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Tensor {
        let x = match weight {
            Some(weight) => self.binary(BinaryOp::Mul, weight),
            None => self.clone(),
        };
        match bias {
            Some(bias) => x.binary(BinaryOp::Add, bias),
            None => x,
        }
    }

    #[track_caller]
    fn maybe_per_channel(&self, value: Option<&Tensor>) -> Option<Tensor> {
        let value = value?;
        Some(value.per_channel(self))
    }

    /// A value per channel `[C]` as it broadcasts against `[N, C, …]`.
    #[track_caller]
    fn per_channel(&self, x: &Tensor) -> Tensor {
        let channels = x.shape().get(1).copied();
        assert!(
            self.rank() == 1 && channels == Some(self.shape()[0]),
            "{} is not one number for each channel of {}",
            self.ty(),
            x.ty()
        );
        let shape: Vec<isize> = (0..x.rank()).map(|d| if d == 1 { self.shape()[0] as isize } else { 1 }).collect();
        self.reshape(&shape)
    }

    /// Mean and variance of `[N, C, …]` per channel over samples and positions.
    #[track_caller]
    pub fn batch_statistics(&self) -> BatchStatistics {
        assert!(self.rank() >= 2, "batch statistics need [N, C, …], not {}", self.ty());
        let dims: Vec<isize> = (0..self.rank() as isize).filter(|&d| d != 1).collect();
        let count = self.numel() / self.shape()[1].max(1);
        let [x] = policy!("batch_statistics").cast([self]);
        BatchStatistics { mean: x.mean(&dims[..]), var: x.var(&dims[..], 0), count }
    }

    /// Batch normalisation of `[N, C, …]` with given mean and variance `[C]` (Ioffe and Szegedy, 2015).
    #[track_caller]
    pub fn batch_norm(
        &self,
        mean: &Tensor,
        var: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Tensor {
        let (weight, bias) = (self.maybe_per_channel(weight), self.maybe_per_channel(bias));
        let (mean, var) = (mean.per_channel(self), var.per_channel(self));
        let [x] = policy!("batch_norm").cast([self]);
        x.normalised(&mean, &var, eps, weight.as_ref(), bias.as_ref())
    }

    /// Layer normalisation over the last `dims` dimensions; weight and bias have their shape (Ba et al., 2016).
    #[track_caller]
    pub fn layer_norm(&self, dims: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Tensor {
        assert!((1..=self.rank()).contains(&dims), "layer_norm over the last {dims} dims of {}", self.ty());
        let dims: Vec<isize> = (1..=dims as isize).map(|d| -d).collect();
        let [x] = policy!("layer_norm").cast([self]);
        let mean = x.mean_keepdim(&dims[..]);
        let var = x.binary(BinaryOp::Sub, &mean).square().mean_keepdim(&dims[..]);
        x.normalised(&mean, &var, eps, weight, bias)
    }

    /// Group normalisation of `[N, C, …]`: channels in `groups` groups, weight and bias `[C]` (Wu and He, 2018).
    #[track_caller]
    pub fn group_norm(&self, groups: usize, weight: Option<&Tensor>, bias: Option<&Tensor>, eps: f64) -> Tensor {
        let fits = self.rank() >= 2 && groups > 0 && self.shape()[1].is_multiple_of(groups);
        assert!(fits, "group_norm: {} cannot be cut into {groups} groups of channels", self.ty());
        let shape: Vec<isize> = self.shape().iter().map(|&n| n as isize).collect();
        let inner: isize = shape[1..].iter().product::<isize>() / groups as isize;
        let [x] = policy!("group_norm").cast([self]);
        let x = x.reshape(&[shape[0], groups as isize, inner]).layer_norm(1, None, None, eps).reshape(&shape);
        x.affine(self.maybe_per_channel(weight).as_ref(), self.maybe_per_channel(bias).as_ref())
    }

    /// Root-mean-square normalisation over the last `dims` dimensions (Zhang and Sennrich, 2019).
    #[track_caller]
    pub fn rms_norm(&self, dims: usize, weight: Option<&Tensor>, eps: f64) -> Tensor {
        assert!((1..=self.rank()).contains(&dims), "rms_norm over the last {dims} dims of {}", self.ty());
        let dims: Vec<isize> = (1..=dims as isize).map(|d| -d).collect();
        let [x] = policy!("rms_norm").cast([self]);
        let square = x.square().mean_keepdim(&dims[..]);
        let scale = square.binary(BinaryOp::Add, &square.constant_like(eps)).rsqrt();
        x.binary(BinaryOp::Mul, &scale).affine(weight, None)
    }
}
