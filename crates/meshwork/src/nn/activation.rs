//! Activation functions and other layers without parameters.

use super::Module;
use super::layer::layers;
use crate::tensor::Tensor;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Module)]
            pub struct $name;

            impl $name {
                /// The function, elementwise.
                #[track_caller]
                pub fn forward(&self, x: &Tensor) -> Tensor {
                    x.$op()
                }
            }

            layers!($name);
        )*
    };
}

functions! {
    /// max(x, 0).
    Relu => relu;
    /// x · Φ(x), exactly (Hendrycks and Gimpel, 2016).
    Gelu => gelu;
    /// The tanh approximation of [`Gelu`], as GPT-2 uses it.
    GeluTanh => gelu_tanh;
    /// x · sigmoid(x).
    Silu => silu;
    /// The hyperbolic tangent.
    Tanh => tanh;
    /// 1 / (1 + exp(−x)).
    Sigmoid => sigmoid;
    /// log(sigmoid(x)), without overflow.
    LogSigmoid => log_sigmoid;
    /// log(1 + exp(x)), without overflow.
    Softplus => softplus;
    /// The input as it is.
    Identity => clone;
}

macro_rules! along {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq, Module)]
            pub struct $name {
                dim: isize,
            }

            impl $name {
                /// Along a dimension; negative numbers count from the end.
                pub fn new(dim: isize) -> $name {
                    $name { dim }
                }

                /// The function along the dimension.
                #[track_caller]
                pub fn forward(&self, x: &Tensor) -> Tensor {
                    x.$op(self.dim)
                }
            }

            layers!($name);
        )*
    };
}

along! {
    /// exp(x) normalised to sum 1 along a dimension.
    Softmax => softmax;
    /// The logarithm of [`Softmax`].
    LogSoftmax => log_softmax;
}

/// max(x, 0) + slope · min(x, 0) (Maas, Hannun and Ng, 2013).
#[derive(Clone, Copy, Debug, PartialEq, Module)]
pub struct LeakyRelu {
    negative_slope: f64,
}

impl Default for LeakyRelu {
    /// Slope 0.01.
    fn default() -> Self {
        LeakyRelu::new(0.01)
    }
}

impl LeakyRelu {
    /// With this slope below 0.
    pub fn new(negative_slope: f64) -> LeakyRelu {
        LeakyRelu { negative_slope }
    }

    /// The function, elementwise.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.relu() - (-x).relu() * x.constant_like(self.negative_slope)
    }
}

/// Joins all dimensions but the first, as between convolutions and linear layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Module)]
pub struct Flatten {
    start: isize,
}

impl Default for Flatten {
    fn default() -> Self {
        Flatten { start: 1 }
    }
}

impl Flatten {
    /// From dimension `start` on.
    pub fn from_dim(start: isize) -> Flatten {
        Flatten { start }
    }

    /// `[N, …]` to `[N, product of the others]`.
    #[track_caller]
    pub fn forward(&self, x: &Tensor) -> Tensor {
        x.flatten(self.start)
    }
}

layers!(LeakyRelu, Flatten);
