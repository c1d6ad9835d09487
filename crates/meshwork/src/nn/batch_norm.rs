//! Batch normalisation.

use super::layer::layers;
use super::{Buffer, Mode, Module, Parameter, init};
use crate::DType;
use crate::tensor::{Tensor, no_grad};

macro_rules! batch_norms {
    ($($ranks:pat => $name:ident $input:literal;)*) => {
        $(
            #[doc = concat!("Batch normalisation of `", $input, "` per channel (Ioffe and Szegedy, 2015).")]
            ///
            /// In training it uses mean and variance of the batch and moves the running ones toward them; in
            /// evaluation it uses those. Without running statistics it always uses the batch.
            #[derive(Debug, Module)]
            pub struct $name {
                /// `[C]`, ones at first
                pub weight: Option<Parameter>,
                /// `[C]`, zeros at first
                pub bias: Option<Parameter>,
                /// Mean, `[C]`
                pub running_mean: Option<Buffer>,
                /// Unbiased variance, `[C]`
                pub running_var: Option<Buffer>,
                /// Batches seen in training, i64
                pub num_batches_tracked: Option<Buffer>,
                eps: f64,
                momentum: f64,
                mode: Mode,
            }

            impl $name {
                /// eps 1e-5, momentum 0.1, with weight, bias and running statistics.
                pub fn new(channels: usize) -> $name {
                    $name {
                        weight: Some(Parameter::new(&[channels], init::constant(1.0))),
                        bias: Some(Parameter::new(&[channels], init::constant(0.0))),
                        running_mean: Some(Buffer::new(&Tensor::from_slice(&vec![0f32; channels], &[channels]))),
                        running_var: Some(Buffer::new(&Tensor::from_slice(&vec![1f32; channels], &[channels]))),
                        num_batches_tracked: Some(Buffer::new(&Tensor::from_slice(&[0i64], &[]))),
                        eps: 1e-5,
                        momentum: 0.1,
                        mode: Mode::default(),
                    }
                }

                /// Added to the variance.
                pub fn eps(self, eps: f64) -> $name {
                    $name { eps, ..self }
                }

                /// How far the running statistics move toward those of a batch, in 0..=1.
                #[track_caller]
                pub fn momentum(self, momentum: f64) -> $name {
                    assert!((0.0..=1.0).contains(&momentum), "a momentum is in 0..=1, not {momentum}");
                    $name { momentum, ..self }
                }

                /// Without weight and bias.
                pub fn no_affine(self) -> $name {
                    $name { weight: None, bias: None, ..self }
                }

                /// Without running statistics: the batch's own are used in evaluation, too.
                pub fn no_running_statistics(self) -> $name {
                    $name { running_mean: None, running_var: None, num_batches_tracked: None, ..self }
                }

                #[doc = concat!("`", $input, "` to the same.")]
                ///
                /// # Panics
                /// When the shape does not fit, or a batch in training has only one value per channel.
                #[track_caller]
                pub fn forward(&self, x: &Tensor) -> Tensor {
                    let fits = matches!(x.rank(), $ranks);
                    assert!(fits, "{} needs {}, not {x:?}", stringify!($name), $input);
                    BatchNorm {
                        affine: [&self.weight, &self.bias].map(|p| p.as_ref().map(Parameter::value)),
                        running: self.running_mean.as_ref().zip(self.running_var.as_ref()),
                        num_batches: self.num_batches_tracked.as_ref(),
                        eps: self.eps,
                        momentum: self.momentum,
                        training: self.mode.is_training(),
                    }
                    .forward(x)
                }
            }

            layers!($name);
        )*
    };
}

/// What the three have in common.
struct BatchNorm<'a> {
    affine: [Option<Tensor>; 2],
    running: Option<(&'a Buffer, &'a Buffer)>,
    num_batches: Option<&'a Buffer>,
    eps: f64,
    momentum: f64,
    training: bool,
}

impl BatchNorm<'_> {
    #[track_caller]
    fn forward(self, x: &Tensor) -> Tensor {
        let [weight, bias] = &self.affine;
        if let (false, Some((mean, var))) = (self.training, self.running) {
            return x.batch_norm(&mean.value(), &var.value(), weight.as_ref(), bias.as_ref(), self.eps);
        }
        let batch = x.batch_statistics();
        assert!(
            !self.training || batch.count > 1,
            "batch normalisation in training needs more than one value per channel, not {x:?}"
        );
        if let Some((mean, var)) = self.running {
            let (new_mean, new_var) = batch.running(&mean.value(), &var.value(), self.momentum);
            mean.set(new_mean.to_dtype(DType::F32));
            var.set(new_var.to_dtype(DType::F32));
        }
        if let Some(count) = self.num_batches {
            count.set(no_grad(|| count.value() + 1i64));
        }
        x.batch_norm(&batch.mean, &batch.var, weight.as_ref(), bias.as_ref(), self.eps)
    }
}

batch_norms! {
    2 | 3 => BatchNorm1d "[N, C] or [N, C, L]";
    4 => BatchNorm2d "[N, C, H, W]";
    5 => BatchNorm3d "[N, C, D, H, W]";
}
