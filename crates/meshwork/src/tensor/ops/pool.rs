//! Pooling.

use super::PerDim;
use crate::tensor::Tensor;
use meshwork_graph::ops::{AvgPool, MaxPool, Window, Windows};

/// The windows of a pooling. From a number or an array: windows of that size side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Elements of a window.
    pub kernel: PerDim,
    /// Distance between windows; that of the kernel if missing.
    pub stride: Option<PerDim>,
    /// Border on both sides, at most half the kernel.
    pub padding: PerDim,
    /// Distance between the elements of a window; for max pooling.
    pub dilation: PerDim,
    /// Round the number of windows up instead of down.
    pub ceil_mode: bool,
    /// Average pooling divides by the whole window even where it reaches over the border.
    pub count_include_pad: bool,
}

impl<K: Into<PerDim>> From<K> for PoolOptions {
    fn from(kernel: K) -> Self {
        PoolOptions {
            kernel: kernel.into(),
            stride: None,
            padding: 0.into(),
            dilation: 1.into(),
            ceil_mode: false,
            count_include_pad: true,
        }
    }
}

impl PoolOptions {
    #[track_caller]
    fn windows(&self, dims: usize) -> Windows {
        let kernel = self.kernel.spatial(dims);
        let stride = self.stride.as_ref().unwrap_or(&self.kernel).spatial(dims);
        let (padding, dilation) = (self.padding.spatial(dims), self.dilation.spatial(dims));
        (0..dims)
            .map(|d| Window::Fixed {
                kernel: kernel[d],
                stride: stride[d],
                padding: padding[d],
                dilation: dilation[d],
                ceil: self.ceil_mode,
            })
            .collect()
    }
}

macro_rules! pools {
    ($($dims:literal $avg:ident $max:ident $adaptive_avg:ident $adaptive_max:ident;)*) => {
        impl Tensor {
            $(
                #[doc = concat!("Mean of every window over the last ", $dims, " of `[N, C, …]`.")]
                #[track_caller]
                pub fn $avg(&self, options: impl Into<PoolOptions>) -> Tensor {
                    let options = options.into();
                    let pool = AvgPool { windows: options.windows($dims), count_include_pad: options.count_include_pad };
                    Tensor::record(pool, &[self])
                }

                #[doc = concat!("Maximum of every window over the last ", $dims, " of `[N, C, …]`; border never wins.")]
                #[track_caller]
                pub fn $max(&self, options: impl Into<PoolOptions>) -> Tensor {
                    Tensor::record(MaxPool { windows: options.into().windows($dims) }, &[self, self])
                }

                #[doc = concat!("Means of as many equal windows as the output asks for, over the last ", $dims, ".")]
                #[track_caller]
                pub fn $adaptive_avg(&self, output: impl Into<PerDim>) -> Tensor {
                    Tensor::record(AvgPool { windows: adaptive(output, $dims), count_include_pad: false }, &[self])
                }

                #[doc = concat!("Maxima of as many equal windows as the output asks for, over the last ", $dims, ".")]
                #[track_caller]
                pub fn $adaptive_max(&self, output: impl Into<PerDim>) -> Tensor {
                    Tensor::record(MaxPool { windows: adaptive(output, $dims) }, &[self, self])
                }
            )*
        }
    };
}

#[track_caller]
fn adaptive(output: impl Into<PerDim>, dims: usize) -> Windows {
    output.into().spatial(dims).into_iter().map(|output| Window::Adaptive { output }).collect()
}

pools! {
    1 avg_pool1d max_pool1d adaptive_avg_pool1d adaptive_max_pool1d;
    2 avg_pool2d max_pool2d adaptive_avg_pool2d adaptive_max_pool2d;
    3 avg_pool3d max_pool3d adaptive_avg_pool3d adaptive_max_pool3d;
}
