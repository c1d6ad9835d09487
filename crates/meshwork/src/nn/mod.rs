//! Layers and the trait that binds them: parameters under the names that PyTorch gives them.

mod buffer;
mod conv;
pub mod init;
mod layer;
mod linear;
mod mode;
mod module;
mod parameter;
mod plain;
mod sequential;
mod site;
mod state;
mod visitor;

pub use buffer::Buffer;
pub use conv::{Conv1d, Conv2d, Conv3d};
pub use init::Init;
pub use layer::Layer;
pub use linear::Linear;
pub use mode::Mode;
pub use module::Module;
pub use parameter::Parameter;
pub use sequential::Sequential;
pub use site::RandomSite;
pub use state::{StateError, Wrong};
pub use visitor::{Leaf, Visitor};

/// Implements [`Module`] for a struct by visiting every field under its name.
pub use meshwork_derive::Module;
