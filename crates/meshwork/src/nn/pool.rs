//! Pooling.

use super::Module;
use super::layer::layers;
use crate::tensor::{PerDim, PoolOptions, Tensor};

macro_rules! windows {
    ($($name:ident $op:ident $doc:literal;)*) => {
        $(
            #[doc = $doc]
            ///
            /// The windows lie side by side unless a stride is given.
            #[derive(Clone, Debug, Module)]
            pub struct $name {
                options: PoolOptions,
            }

            impl $name {
                /// Windows of a size (`2`, `[3, 2]`), or as [`PoolOptions`] say.
                pub fn new(options: impl Into<PoolOptions>) -> $name {
                    $name { options: options.into() }
                }

                /// Distance between windows.
                pub fn stride(mut self, stride: impl Into<PerDim>) -> $name {
                    self.options.stride = Some(stride.into());
                    self
                }

                /// Border on both sides, at most half the kernel.
                pub fn padding(mut self, padding: impl Into<PerDim>) -> $name {
                    self.options.padding = padding.into();
                    self
                }

                /// Rounds the number of windows up instead of down.
                pub fn ceil_mode(mut self) -> $name {
                    self.options.ceil_mode = true;
                    self
                }

                /// One value for each window.
                #[track_caller]
                pub fn forward(&self, x: &Tensor) -> Tensor {
                    x.$op(self.options.clone())
                }
            }

            layers!($name);
        )*
    };
}

windows! {
    MaxPool1d max_pool1d "Maximum of every window over the last dimension of `[N, C, L]`.";
    MaxPool2d max_pool2d "Maximum of every window over the last two dimensions of `[N, C, H, W]`.";
    MaxPool3d max_pool3d "Maximum of every window over the last three dimensions of `[N, C, D, H, W]`.";
    AvgPool1d avg_pool1d "Mean of every window over the last dimension of `[N, C, L]`.";
    AvgPool2d avg_pool2d "Mean of every window over the last two dimensions of `[N, C, H, W]`.";
    AvgPool3d avg_pool3d "Mean of every window over the last three dimensions of `[N, C, D, H, W]`.";
}

macro_rules! dilated {
    ($($name:ident)*) => {
        $(impl $name {
            /// Distance between the elements of a window.
            pub fn dilation(mut self, dilation: impl Into<PerDim>) -> $name {
                self.options.dilation = dilation.into();
                self
            }
        })*
    };
}

dilated!(MaxPool1d MaxPool2d MaxPool3d);

macro_rules! adaptive {
    ($($name:ident $op:ident $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[derive(Clone, Debug, Module)]
            pub struct $name {
                output: PerDim,
            }

            impl $name {
                /// The sizes of the output.
                pub fn new(output: impl Into<PerDim>) -> $name {
                    $name { output: output.into() }
                }

                /// As many windows as the output has elements, as equal as possible.
                #[track_caller]
                pub fn forward(&self, x: &Tensor) -> Tensor {
                    x.$op(self.output.clone())
                }
            }

            layers!($name);
        )*
    };
}

adaptive! {
    AdaptiveMaxPool1d adaptive_max_pool1d "Maxima over the last dimension to an output of a given size.";
    AdaptiveMaxPool2d adaptive_max_pool2d "Maxima over the last two dimensions to an output of given sizes.";
    AdaptiveMaxPool3d adaptive_max_pool3d "Maxima over the last three dimensions to an output of given sizes.";
    AdaptiveAvgPool1d adaptive_avg_pool1d "Means over the last dimension to an output of a given size.";
    AdaptiveAvgPool2d adaptive_avg_pool2d "Means over the last two dimensions to an output of given sizes.";
    AdaptiveAvgPool3d adaptive_avg_pool3d "Means over the last three dimensions to an output of given sizes.";
}
