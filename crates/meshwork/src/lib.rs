//! Meshwork trains neural networks on everything you have, from one core to a cluster, and the result does not
//! depend on the layout: same seed, same data, same weights, bit for bit.

extern crate self as meshwork;

pub mod checkpoint;
pub mod generate;
pub mod hugging_face;
mod inspect;
pub mod mesh;
pub mod monitor;
pub mod nn;
pub mod optim;
pub mod parallel;
pub mod prelude;
pub mod spmd;
pub mod tensor;
pub mod train;

pub use meshwork_cpu::{Level, Par, limits};
pub use meshwork_data as data;
pub use meshwork_graph as graph;
pub use meshwork_graph::{DType, Scalar, Shape};
/// Timelines: every kernel, copy and wait of a stretch of a program.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use meshwork::{Tensor, synchronize, trace};
///
/// # let folder = std::env::temp_dir().join(format!("meshwork-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let timeline = trace::start(folder.join("run.json"))?;
/// let a = Tensor::from_slice(&[0.5_f32; 64 * 64], &[64, 64]);
/// let product = a.matmul(&a);
/// synchronize();
/// let spans = timeline.stop()?;
/// assert!(spans > 0);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[doc(inline)]
pub use meshwork_runtime::trace;
pub use meshwork_runtime::{
    Device, DeviceError, DeviceLoad, Event, Link, LinkError, MemoryStats, QueueLoad, cpu_groups, link, set_link,
};
pub use tensor::{
    Tensor, default_device, grad, manual_seed, no_grad, record_event, set_cpu_devices, set_cpu_groups, synchronize,
    synchronize_device, with_default_device,
};

/// Sets the number of threads that the kernels of each CPU device use. Results do not depend on it, speed does.
///
/// # Errors
/// When the number is 0 or absurdly large, or `MESHWORK_CPU_DEVICES` makes no sense.
pub fn set_num_threads(threads: usize) -> Result<(), DeviceError> {
    Device::cpus()?.iter().try_for_each(|device| device.set_num_threads(threads))
}
