//! Modules that turn one tensor into another.

use super::Module;
use crate::tensor::Tensor;

/// A module with one input and one output, as [`super::Sequential`] strings them together.
pub trait Layer: Module + Send + Sync {
    /// The output for an input.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;
}

/// [`Layer`] for types whose own `forward` does the work, so that it can be called without the trait in scope.
macro_rules! layers {
    ($($ty:ty),* $(,)?) => {
        $(impl $crate::nn::Layer for $ty {
            #[track_caller]
            fn forward(&self, x: &$crate::tensor::Tensor) -> $crate::tensor::Tensor {
                <$ty>::forward(self, x)
            }
        })*
    };
}

pub(crate) use layers;

impl<L: Layer + ?Sized> Layer for Box<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        (**self).forward(x)
    }
}

impl<L: Layer + ?Sized> Layer for std::sync::Arc<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        (**self).forward(x)
    }
}
