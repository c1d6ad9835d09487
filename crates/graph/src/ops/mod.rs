//! The operations: one file for everything mathematical about each.

mod arg;
mod attention;
mod barrier;
mod chain;
mod concat;
mod conv;
mod custom;
mod device;
mod dot;
mod element;
mod epilogue;
mod fused;
mod index;
mod leaf;
mod pad;
mod place;
mod pool;
mod random;
mod reduce;
mod scan;
mod view;

pub use arg::*;
pub use attention::*;
pub use barrier::*;
pub use chain::*;
pub use concat::*;
pub use conv::*;
pub use custom::*;
pub use device::*;
pub use dot::*;
pub use element::*;
pub use epilogue::*;
pub use fused::*;
pub use index::*;
pub use leaf::*;
pub use pad::*;
pub use place::*;
pub use pool::*;
pub use random::*;
pub use reduce::*;
pub use scan::*;
pub use view::*;

pub(crate) use leaf::restrict;
pub(crate) use pool::keep_windows;
