//! Layers and the trait that binds them: parameters under the names that PyTorch gives them.
//!
//! ```
//! use meshwork::prelude::*;
//!
//! #[derive(Module)]
//! struct Classifier {
//!     fc1: Linear,
//!     dropout: Dropout,
//!     fc2: Linear,
//! }
//!
//! impl Classifier {
//!     fn forward(&self, x: &Tensor) -> Tensor {
//!         self.fc2.forward(&self.dropout.forward(&self.fc1.forward(x).relu()))
//!     }
//! }
//!
//! let model = Classifier { fc1: Linear::new(64, 32), dropout: Dropout::new(0.1), fc2: Linear::new(32, 10) };
//! model.init(0);
//! assert_eq!(model.state()[0].0, "fc1.weight");
//! ```

mod activation;
mod batch_norm;
mod buffer;
mod conv;
mod conv_transpose;
mod dropout;
mod embedding;
pub mod init;
mod layer;
mod linear;
mod loss;
mod mode;
mod module;
mod norm;
mod parameter;
mod plain;
mod pool;
mod sequential;
mod site;
mod state;
mod transformer;
mod visitor;

pub use activation::{
    Flatten, Gelu, GeluTanh, Identity, LeakyRelu, LogSigmoid, LogSoftmax, Relu, Sigmoid, Silu, Softmax, Softplus, Tanh,
};
pub use batch_norm::{BatchNorm1d, BatchNorm2d, BatchNorm3d};
pub use buffer::Buffer;
pub use conv::{Conv1d, Conv2d, Conv3d};
pub use conv_transpose::{ConvTranspose1d, ConvTranspose2d, ConvTranspose3d};
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use init::Init;
pub use layer::Layer;
pub use linear::Linear;
pub use loss::{BceWithLogitsLoss, CrossEntropyLoss, MseLoss};
pub use mode::Mode;
pub use module::Module;
pub use norm::{GroupNorm, LayerNorm, RmsNorm};
pub use parameter::Parameter;
pub use pool::{
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AvgPool1d, AvgPool2d, AvgPool3d, MaxPool1d, MaxPool2d, MaxPool3d,
};
pub use sequential::Sequential;
pub use site::RandomSite;
pub(crate) use state::nearest;
pub use state::{StateError, Wrong};
pub use transformer::{
    ActivationKind, Block, CacheOfLayer, ConfigError, FeedForward, KvCache, Norm, NormKind, Positions, SelfAttention,
    Transformer, TransformerConfig, rotary,
};
pub use visitor::{Leaf, Visitor};

/// Implements [`Module`] for a struct by visiting every field under its name.
pub use meshwork_derive::Module;
