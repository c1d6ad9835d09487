//! Convolutions.

use super::layer::layers;
use super::{Module, Parameter, init};
use crate::tensor::{ConvOptions, PerDim, Tensor};

macro_rules! convolutions {
    ($($name:ident $dims:literal $op:ident $input:literal $weight:literal $output:literal;)*) => {
        $(
            #[doc = concat!("Convolution of `", $input, "` to `", $output, "`.")]
            ///
            #[doc = concat!("Weight `", $weight, "` and bias `[O]` begin as U(±1/√fan_in) with fan_in the inputs that one")]
            /// output sees, as in PyTorch.
            #[derive(Debug, Module)]
            pub struct $name {
                #[doc = concat!("`", $weight, "`")]
                pub weight: Parameter,
                /// `[O]`
                pub bias: Option<Parameter>,
                options: ConvOptions,
                in_channels: usize,
            }

            impl $name {
                /// Stride 1, no padding, one group, with bias.
                #[track_caller]
                pub fn new(in_channels: usize, out_channels: usize, kernel: impl Into<PerDim>) -> $name {
                    let (weight, bias) = parameters(in_channels, out_channels, &kernel.into().spatial($dims), 1);
                    $name { weight, bias: Some(bias), options: ConvOptions::default(), in_channels }
                }

                /// Step of the window.
                pub fn stride(mut self, stride: impl Into<PerDim>) -> $name {
                    self.options.stride = stride.into();
                    self
                }

                /// Zeros added on both sides.
                pub fn padding(mut self, padding: impl Into<PerDim>) -> $name {
                    self.options.padding = padding.into();
                    self
                }

                /// Distance between the taps of the kernel.
                pub fn dilation(mut self, dilation: impl Into<PerDim>) -> $name {
                    self.options.dilation = dilation.into();
                    self
                }

                /// Cuts the channels into groups that do not see each other.
                ///
                /// # Panics
                /// When it does not divide the numbers of channels.
                #[track_caller]
                pub fn groups(mut self, groups: usize) -> $name {
                    let shape = self.weight.shape();
                    let (weight, bias) = parameters(self.in_channels, shape[0], &shape[2..], groups);
                    (self.weight, self.options.groups) = (weight, groups);
                    self.bias = self.bias.map(|_| bias);
                    self
                }

                /// Without bias, as before a normalisation.
                pub fn no_bias(self) -> $name {
                    $name { bias: None, ..self }
                }

                #[doc = concat!("`", $input, "` to `", $output, "`.")]
                ///
                /// # Panics
                /// When the shape does not fit the weight.
                #[track_caller]
                pub fn forward(&self, x: &Tensor) -> Tensor {
                    x.$op(&self.weight.value(), self.bias.as_ref().map(Parameter::value).as_ref(), &self.options)
                }
            }

            layers!($name);
        )*
    };
}

/// Weight `[O, C/groups, …]` and bias `[O]`.
#[track_caller]
fn parameters(channels: usize, out: usize, kernel: &[usize], groups: usize) -> (Parameter, Parameter) {
    weight_and_bias(channels, out, [out, channels], kernel, groups)
}

/// Weight `[first, second/groups, …]`, where those are the numbers of channels in either order, and bias `[out]`, both
/// uniform by the weight's fan-in.
#[track_caller]
pub(super) fn weight_and_bias(
    channels: usize,
    out: usize,
    [first, second]: [usize; 2],
    kernel: &[usize],
    groups: usize,
) -> (Parameter, Parameter) {
    assert!(
        groups > 0 && channels.is_multiple_of(groups) && out.is_multiple_of(groups),
        "{groups} groups do not divide {channels} input and {out} output channels"
    );
    let shape: Vec<usize> = [first, second / groups].iter().chain(kernel).copied().collect();
    let bound = 1.0 / (init::fan_in(&shape).max(1) as f64).sqrt();
    let weight = Parameter::new(&shape, init::kaiming_uniform(5f64.sqrt()));
    (weight, Parameter::new(&[out], init::uniform(bound)))
}

convolutions! {
    Conv1d 1 conv1d "[N, C, L]" "[O, C/groups, K]" "[N, O, L']";
    Conv2d 2 conv2d "[N, C, H, W]" "[O, C/groups, KH, KW]" "[N, O, H', W']";
    Conv3d 3 conv3d "[N, C, D, H, W]" "[O, C/groups, KD, KH, KW]" "[N, O, D', H', W']";
}
