//! Ranks as threads of one process, which read and write each other's buffers.

mod group;
mod pending;
mod world;

pub use group::Group;
pub use pending::LocalPending;
pub use world::{World, spawn};
