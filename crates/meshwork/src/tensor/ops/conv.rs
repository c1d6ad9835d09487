//! Convolutions and transposed convolutions.

use crate::tensor::{CastPolicy, Tensor, policy};
use meshwork_graph::ops::{BinaryOp, Conv, ConvGeometry, ConvInput, Reshape, Spatial};

/// A number for every spatial dimension: one for all (`2`) or one each (`[2, 1]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PerDim {
    /// The same for all.
    All(usize),
    /// One for each, outermost first.
    Each(Spatial),
}

impl From<usize> for PerDim {
    fn from(n: usize) -> Self {
        PerDim::All(n)
    }
}

impl<const N: usize> From<[usize; N]> for PerDim {
    fn from(n: [usize; N]) -> Self {
        PerDim::Each(Spatial::from_slice(&n))
    }
}

impl From<&[usize]> for PerDim {
    fn from(n: &[usize]) -> Self {
        PerDim::Each(Spatial::from_slice(n))
    }
}

impl PerDim {
    /// The numbers for `dims` spatial dimensions.
    #[track_caller]
    pub(crate) fn spatial(&self, dims: usize) -> Spatial {
        match self {
            PerDim::All(n) => Spatial::from_elem(*n, dims),
            PerDim::Each(each) => {
                assert!(each.len() == dims, "{each:?} has {} numbers for {dims} spatial dims", each.len());
                each.clone()
            }
        }
    }
}

/// Stride, padding, dilation and groups of a convolution; by default 1, 0, 1, 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// Step of the window.
    pub stride: PerDim,
    /// Zeros added on both sides.
    pub padding: PerDim,
    /// Distance between the taps of the kernel.
    pub dilation: PerDim,
    /// Channels are cut into this many groups that do not see each other.
    pub groups: usize,
}

impl Default for ConvOptions {
    fn default() -> Self {
        ConvOptions { stride: 1.into(), padding: 0.into(), dilation: 1.into(), groups: 1 }
    }
}

/// As [`ConvOptions`], with `output_padding`: extra rows at the end of the output, which a strided forward
/// convolution would have ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvTransposeOptions {
    /// Step of the window.
    pub stride: PerDim,
    /// Rows removed on both sides of the output.
    pub padding: PerDim,
    /// Rows added at the end of the output.
    pub output_padding: PerDim,
    /// Distance between the taps of the kernel.
    pub dilation: PerDim,
    /// Channels are cut into this many groups that do not see each other.
    pub groups: usize,
}

impl Default for ConvTransposeOptions {
    fn default() -> Self {
        let (zero, one) = (PerDim::All(0), PerDim::All(1));
        ConvTransposeOptions {
            stride: one.clone(),
            padding: zero.clone(),
            output_padding: zero,
            dilation: one,
            groups: 1,
        }
    }
}

impl Tensor {
    /// Adds a value per channel, dimension 1.
    #[track_caller]
    fn add_channels(&self, bias: Option<&Tensor>) -> Tensor {
        let Some(bias) = bias else { return self.clone() };
        assert!(
            bias.shape() == [self.shape()[1]],
            "bias {} of an output {}: one number for each of the {} channels",
            bias.ty(),
            self.ty(),
            self.shape()[1]
        );
        let shape = (0..self.rank()).map(|d| if d == 1 { self.shape()[1] } else { 1 }).collect();
        self.binary(BinaryOp::Add, &Tensor::record(Reshape { shape }, &[bias]))
    }

    #[track_caller]
    fn conv(
        &self,
        policy: CastPolicy,
        dims: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions,
    ) -> Tensor {
        let ([x, weight], bias) = (policy.cast([self, weight]), bias.map(|bias| policy.cast([bias])));
        let geometry = ConvGeometry {
            stride: options.stride.spatial(dims),
            padding: options.padding.spatial(dims),
            dilation: options.dilation.spatial(dims),
            groups: options.groups,
        };
        Tensor::record(Conv::new(geometry), &[&x, &weight]).add_channels(bias.as_ref().map(|[bias]| bias))
    }

    /// `[N, C, L]`, weight `[O, C/groups, K]`, bias `[O]` to `[N, O, L']`.
    #[track_caller]
    pub fn conv1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Tensor {
        self.conv(policy!("conv1d"), 1, weight, bias, options)
    }

    /// `[N, C, H, W]`, weight `[O, C/groups, KH, KW]`, bias `[O]` to `[N, O, H', W']`.
    #[track_caller]
    pub fn conv2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Tensor {
        self.conv(policy!("conv2d"), 2, weight, bias, options)
    }

    /// `[N, C, D, H, W]`, weight `[O, C/groups, KD, KH, KW]`, bias `[O]` to `[N, O, D', H', W']`.
    #[track_caller]
    pub fn conv3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvOptions) -> Tensor {
        self.conv(policy!("conv3d"), 3, weight, bias, options)
    }

    #[track_caller]
    fn conv_transpose(
        &self,
        policy: CastPolicy,
        dims: usize,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvTransposeOptions,
    ) -> Tensor {
        let ([x, weight], bias) = (policy.cast([self, weight]), bias.map(|bias| policy.cast([bias])));
        let fits = self.rank() == dims + 2 && weight.rank() == dims + 2;
        assert!(fits, "conv_transpose{dims}d: input {} and weight {} need {} dims", self.ty(), weight.ty(), dims + 2);
        let geometry = ConvGeometry {
            stride: options.stride.spatial(dims),
            padding: options.padding.spatial(dims),
            dilation: options.dilation.spatial(dims),
            groups: options.groups,
        };
        let extra = options.output_padding.spatial(dims);
        let mut size = Spatial::new();
        for d in 0..dims {
            let (stride, dilation) = (geometry.stride[d], geometry.dilation[d]);
            assert!(
                extra[d] < stride.max(dilation),
                "output_padding {} must be smaller than stride {stride} or dilation {dilation}",
                extra[d]
            );
            let (input, kernel) = (self.shape()[d + 2], weight.shape()[d + 2]);
            let full = (input.max(1) - 1) * stride + dilation * (kernel.max(1) - 1) + 1 + extra[d];
            let Some(rest) = full.checked_sub(2 * geometry.padding[d]) else {
                panic!("conv_transpose{dims}d: padding {} leaves no output of {full}", geometry.padding[d])
            };
            size.push(rest);
        }
        Tensor::record(ConvInput::new(geometry, size), &[&x, &weight]).add_channels(bias.as_ref().map(|[bias]| bias))
    }

    /// `[N, C, L]`, weight `[C, O/groups, K]`, bias `[O]` to `[N, O, L']`: the gradient of a convolution as a layer.
    #[track_caller]
    pub fn conv_transpose1d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTransposeOptions) -> Tensor {
        self.conv_transpose(policy!("conv_transpose1d"), 1, weight, bias, options)
    }

    /// `[N, C, H, W]`, weight `[C, O/groups, KH, KW]`, bias `[O]` to `[N, O, H', W']`.
    #[track_caller]
    pub fn conv_transpose2d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTransposeOptions) -> Tensor {
        self.conv_transpose(policy!("conv_transpose2d"), 2, weight, bias, options)
    }

    /// `[N, C, D, H, W]`, weight `[C, O/groups, KD, KH, KW]`, bias `[O]` to `[N, O, D', H', W']`.
    #[track_caller]
    pub fn conv_transpose3d(&self, weight: &Tensor, bias: Option<&Tensor>, options: &ConvTransposeOptions) -> Tensor {
        self.conv_transpose(policy!("conv_transpose3d"), 3, weight, bias, options)
    }
}
