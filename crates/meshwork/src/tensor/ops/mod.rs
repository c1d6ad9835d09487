//! The operations of tensors, by theme.

mod activation;
mod arithmetic;
mod attention;
mod conv;
mod index;
mod loss;
mod matmul;
mod norm;
mod pool;
mod random;
mod reduce;
mod shape;

pub use arithmetic::{Operand, where_};
pub use attention::AttentionOptions;
pub use conv::{ConvOptions, ConvTransposeOptions, PerDim};
pub use loss::{CrossEntropy, Reduction, bce_with_logits, mse_loss, nll_loss};
pub use norm::BatchStatistics;
pub use pool::PoolOptions;
pub use random::{bernoulli, manual_seed, normal, permutation, rand, randn, uniform};
pub(crate) use random::{keyed, next_site, random_step, seed, set_random_step};
pub use reduce::DimList;
pub use shape::{concat, stack};
