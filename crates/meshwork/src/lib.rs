//! Meshwork trains neural networks on everything you have, from one core to a cluster, and the result does not
//! depend on the layout: same seed, same data, same weights, bit for bit.

extern crate self as meshwork;

pub mod checkpoint;
mod inspect;
pub mod nn;
pub mod optim;
pub mod prelude;
pub mod tensor;
pub mod train;

pub use meshwork_cpu::{Level, Par, limits};
pub use meshwork_data as data;
pub use meshwork_graph as graph;
pub use meshwork_graph::{DType, Scalar, Shape};
pub use meshwork_runtime::{Device, DeviceError, Event, MemoryStats, cpu_groups};
pub use tensor::{
    Tensor, default_device, grad, manual_seed, no_grad, record_event, set_cpu_devices, set_cpu_groups, synchronize,
    synchronize_device, with_default_device,
};

/// Sets the number of threads that the CPU device's kernels use. Results do not depend on it, speed does.
///
/// # Errors
/// When the number is 0 or absurdly large.
pub fn set_num_threads(threads: usize) -> Result<(), DeviceError> {
    Device::cpu(0)?.set_num_threads(threads)
}
