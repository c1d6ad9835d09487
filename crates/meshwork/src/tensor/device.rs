//! Tensors on devices.

use super::Tensor;
use super::evaluate::evaluate;
use crate::mesh::mesh;
use meshwork_graph::ops::{Reshape, ToDevice};
use meshwork_runtime::{Device, DeviceError, DeviceId, Event, synchronize_all};
use std::cell::RefCell;

thread_local! {
    static DEFAULT: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// The device that new tensors of this thread are made on: cpu:0, or that of [`with_default_device`].
///
/// # Panics
/// When `MESHWORK_CPU_DEVICES` makes no sense, or the chosen device has gone away.
#[track_caller]
pub fn default_device() -> Device {
    let chosen = DEFAULT.with_borrow(Clone::clone);
    chosen.iter().for_each(|device| assert_is_there(device.id()));
    chosen.unwrap_or_else(|| Device::cpu(0).unwrap_or_else(|e| panic!("{e}")))
}

/// Runs `body` with another device for new tensors.
pub fn with_default_device<R>(device: &Device, body: impl FnOnce() -> R) -> R {
    struct Restore(Option<Device>);
    impl Drop for Restore {
        fn drop(&mut self) {
            DEFAULT.set(self.0.take());
        }
    }
    let _restore = Restore(DEFAULT.replace(Some(device.clone())));
    body()
}

/// Divides the cores among `count` CPU devices, as evenly as they go; more devices than cores share them. Hands
/// everything pending on this thread over and waits for all work of the devices of before, which go away: what they
/// have computed can be read, and nothing else.
///
/// # Errors
/// When the number is 0 or absurdly large.
pub fn set_cpu_devices(count: usize) -> Result<(), DeviceError> {
    evaluate(None);
    meshwork_runtime::set_cpu_devices(count)
}

/// As [`set_cpu_devices`], with the numbers of the cores that each device has. Devices may share cores.
///
/// # Errors
/// When there is no group, one is empty or names a core that this process cannot use, or names one twice.
pub fn set_cpu_groups(groups: &[&[usize]]) -> Result<(), DeviceError> {
    evaluate(None);
    meshwork_runtime::set_cpu_groups(groups)
}

const GONE: &str =
    "the device has gone away: other CPU devices were set since; what it has computed can be read, and nothing else";

/// The device with this identity.
#[track_caller]
pub(crate) fn device(id: DeviceId) -> Device {
    Device::by_id(id).unwrap_or_else(|| panic!("{GONE}"))
}

/// Checks that the device has not gone away.
#[track_caller]
pub(crate) fn assert_is_there(id: DeviceId) {
    match mesh(id) {
        Some(mesh) => assert!(!mesh.devices().iter().any(|device| Device::has_gone(device.id())), "{GONE}"),
        None => assert!(!Device::has_gone(id), "{GONE}"),
    }
}

pub(crate) fn name(id: DeviceId) -> String {
    if let Some(mesh) = mesh(id) {
        return mesh.to_string();
    }
    Device::by_id(id).map_or_else(|| "a device that has gone away".into(), |device| device.to_string())
}

impl Tensor {
    /// The device that the value is computed on, and lives on; of a mesh the first one.
    ///
    /// # Panics
    /// When it has gone away.
    #[track_caller]
    pub fn device(&self) -> Device {
        match self.node().device() {
            Some(id) => mesh(id).map_or_else(|| device(id), |mesh| mesh.devices()[0].clone()),
            None => default_device(),
        }
    }

    /// The value on a device; this tensor if it is there already. Gradients flow back to where it came from.
    ///
    /// The copy waits for the value, and what needs the copy for the copy; all else goes on meanwhile.
    ///
    /// # Panics
    /// When one of the devices has gone away.
    #[track_caller]
    pub fn to(&self, device: &Device) -> Tensor {
        assert_is_there(device.id());
        match self.node().device() {
            Some(from) if from == device.id() => self.clone(),
            Some(from) => Tensor::record(ToDevice::new(from.0, device.id().0), &[self]),
            // A value that can be computed anywhere needs no copy.
            None => Tensor::record(Reshape { shape: self.ty().shape.clone() }, &[self]).at(device.id()),
        }
    }

    /// Has the value computed on the default device, unless it has a device already.
    #[track_caller]
    pub(crate) fn committed(self) -> Tensor {
        match self.node().device() {
            Some(_) => self,
            None => self.at(default_device().id()),
        }
    }

    /// Has a value that could be computed anywhere computed on the device of another tensor, if that has one.
    #[track_caller]
    pub(crate) fn beside(self, other: &Tensor) -> Tensor {
        match other.node().device() {
            Some(device) => self.at(device),
            None => self,
        }
    }

    #[track_caller]
    pub(super) fn at(self, device: DeviceId) -> Tensor {
        assert_is_there(device);
        self.node().commit(device);
        self
    }
}

/// Runs everything pending on this thread and waits until all devices are done.
pub fn synchronize() {
    evaluate(None);
    synchronize_all();
}

/// Runs everything pending on this thread and waits until this device is done, copies into it included. Other devices
/// go on.
pub fn synchronize_device(device: &Device) {
    evaluate(None);
    device.synchronize();
}

/// Hands everything pending on this thread over, and records an event that is complete when this device is done with
/// all that it was given.
pub fn record_event(device: &Device) -> Event {
    evaluate(None);
    device.record_event()
}
