//! Transposed convolutions.

use super::conv::weight_and_bias;
use super::layer::layers;
use super::{Module, Parameter};
use crate::tensor::{ConvTransposeOptions, PerDim, Tensor};

macro_rules! transposed_convolutions {
    ($($name:ident $dims:literal $op:ident $input:literal $weight:literal $output:literal;)*) => {
        $(
            #[doc = concat!("Transposed convolution (the gradient of a convolution) of `", $input, "` to `", $output, "`.")]
            ///
            #[doc = concat!("Weight `", $weight, "` and bias `[O]` begin as U(±1/√fan_in), where fan_in is the product of all")]
            /// sizes of the weight but the first, as in PyTorch.
            #[derive(Debug, Module)]
            pub struct $name {
                #[doc = concat!("`", $weight, "`")]
                pub weight: Parameter,
                /// `[O]`
                pub bias: Option<Parameter>,
                options: ConvTransposeOptions,
                out_channels: usize,
            }

            impl $name {
                /// Stride 1, no padding, one group, with bias.
                #[track_caller]
                pub fn new(in_channels: usize, out_channels: usize, kernel: impl Into<PerDim>) -> $name {
                    let (weight, bias) = parameters(in_channels, out_channels, &kernel.into().spatial($dims), 1);
                    $name { weight, bias: Some(bias), options: ConvTransposeOptions::default(), out_channels }
                }

                /// Distance between the places where the inputs go.
                pub fn stride(mut self, stride: impl Into<PerDim>) -> $name {
                    self.options.stride = stride.into();
                    self
                }

                /// Rows removed on both sides of the output.
                pub fn padding(mut self, padding: impl Into<PerDim>) -> $name {
                    self.options.padding = padding.into();
                    self
                }

                /// Rows added at the end of the output, fewer than the stride or the dilation.
                pub fn output_padding(mut self, output_padding: impl Into<PerDim>) -> $name {
                    self.options.output_padding = output_padding.into();
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
                    let (weight, bias) = parameters(shape[0], self.out_channels, &shape[2..], groups);
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

/// Weight `[C, O/groups, …]` and bias `[O]`.
#[track_caller]
fn parameters(channels: usize, out: usize, kernel: &[usize], groups: usize) -> (Parameter, Parameter) {
    weight_and_bias(channels, out, [channels, out], kernel, groups)
}

transposed_convolutions! {
    ConvTranspose1d 1 conv_transpose1d "[N, C, L]" "[C, O/groups, K]" "[N, O, L']";
    ConvTranspose2d 2 conv_transpose2d "[N, C, H, W]" "[C, O/groups, KH, KW]" "[N, O, H', W']";
    ConvTranspose3d 3 conv_transpose3d "[N, C, D, H, W]" "[C, O/groups, KD, KH, KW]" "[N, O, D', H', W']";
}
