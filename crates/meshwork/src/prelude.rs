//! What programs that train something usually need: `use meshwork::prelude::*;`.

pub use crate::nn::*;
pub use crate::optim::{self, Gradients, Optimizer, Schedule};
pub use crate::tensor::{Precision, Tensor, autocast, grad, manual_seed, no_grad, synchronize};
pub use crate::{DType, Device, sequential};
