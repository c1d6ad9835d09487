//! Modules that turn one tensor into another.

use super::Module;
use crate::tensor::Tensor;

/// A module with one input and one output, as [`super::Sequential`] strings them together.
pub trait Layer: Module + Send + Sync {
    /// The output for an input.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor;

    /// Parts that can be computed again for their gradients instead of being kept: the blocks of a transformer, segments of a
    /// [`super::Sequential`].
    fn recomputable(&self) -> usize {
        0
    }

    /// Has so many parts computed again ([`checkpoint`](crate::tensor::checkpoint)), the first ones, which would be kept
    /// longest. Bits do not depend on it.
    fn set_recompute(&self, parts: usize) {
        let _ = parts;
    }
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

    fn recomputable(&self) -> usize {
        (**self).recomputable()
    }

    fn set_recompute(&self, parts: usize) {
        (**self).set_recompute(parts);
    }
}

impl<L: Layer + ?Sized> Layer for std::sync::Arc<L> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Tensor {
        (**self).forward(x)
    }

    fn recomputable(&self) -> usize {
        (**self).recomputable()
    }

    fn set_recompute(&self, parts: usize) {
        (**self).set_recompute(parts);
    }
}
