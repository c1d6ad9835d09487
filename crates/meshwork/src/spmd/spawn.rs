//! Starting ranks.

use super::{CommError, Group, World};
use crate::Device;
use crate::tensor::with_default_device;

/// Runs a body on each of `world_size` ranks, and gives what they return, in the order of the ranks.
///
/// Each rank is a thread with a CPU device of its own, on which its tensors are made, if there are as many devices
/// ([`crate::set_cpu_devices`]); otherwise ranks share them in turn. Who waits in vain for half a minute fails.
///
/// # Errors
/// When a rank panics, with the first failure of the world: its panic, or why its collective failed.
///
/// # Panics
/// When there is no rank, or `MESHWORK_CPU_DEVICES` makes no sense.
#[track_caller]
pub fn spawn<T: Send>(world_size: usize, body: impl Fn(Group) -> T + Sync) -> Result<Vec<T>, CommError> {
    spawn_in(World::new(world_size), body)
}

/// As [`spawn`], with another deadline for instance.
///
/// # Errors
/// As [`spawn`].
///
/// # Panics
/// As [`spawn`].
#[track_caller]
pub fn spawn_in<T: Send>(world: World, body: impl Fn(Group) -> T + Sync) -> Result<Vec<T>, CommError> {
    let devices = Device::cpus().unwrap_or_else(|e| panic!("{e}"));
    world.spawn(|comm| {
        let group = Group::of_world(comm, &devices);
        let device = group.device().clone();
        with_default_device(&device, || body(group))
    })
}
