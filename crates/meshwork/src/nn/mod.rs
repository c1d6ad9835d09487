//! Layers and the trait that binds them: parameters under the names that PyTorch gives them.

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
pub use state::{StateError, Wrong};
pub use visitor::{Leaf, Visitor};

/// Implements [`Module`] for a struct by visiting every field under its name.
pub use meshwork_derive::Module;
