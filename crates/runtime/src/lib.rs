//! Devices, their queues and buffers; runs compiled programs and copies values between devices.
//!
//! A [`Device`] has its own threads and memory and two queues: one computes, one copies values in. Work is handed over
//! and starts when what it needs is there; the hand-over returns at once with [`Value`]s that can be read, or used by
//! further work on any device, before they are computed.

mod ahead;
mod buffer;
mod copy;
mod cores;
mod device;
mod event;
mod execute;
mod free;
mod link;
mod load;
mod memory;
mod order;
mod registry;
pub mod trace;
mod value;
mod worker;

pub use buffer::{Buffer, MemoryStats};
pub use device::{Device, DeviceId};
pub use event::Event;
pub use execute::Binding;
pub use link::{Link, LinkError, link, set_link};
pub use load::{DeviceLoad, QueueLoad};
pub use meshwork_queue::RunError;
pub use order::{Held, one_at_a_time};
pub use registry::{DeviceError, cpu_groups, set_cpu_devices, set_cpu_groups, synchronize_all, wait_for_room};
pub use value::{Ready, Value};
pub use worker::Width;
