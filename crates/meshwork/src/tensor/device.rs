//! Tensors on devices.

use super::Tensor;
use super::evaluate::evaluate;
use meshwork_graph::ops::{Reshape, ToDevice};
use meshwork_runtime::{Device, DeviceId, Event, synchronize_all};
use std::cell::RefCell;

thread_local! {
    static DEFAULT: RefCell<Option<Device>> = const { RefCell::new(None) };
}

/// The device that new tensors of this thread are made on: cpu:0, or that of [`with_default_device`].
///
/// # Panics
/// When `MESHWORK_CPU_DEVICES` makes no sense.
pub fn default_device() -> Device {
    let chosen = DEFAULT.with_borrow(Clone::clone);
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

/// The device with this identity.
pub(crate) fn device(id: DeviceId) -> Device {
    let gone = "a tensor's device has gone away: other CPU devices were set since; such tensors can only be read";
    Device::by_id(id).unwrap_or_else(|| panic!("{gone}"))
}

pub(crate) fn name(id: DeviceId) -> String {
    Device::by_id(id).map_or_else(|| "a device that has gone away".into(), |device| device.to_string())
}

impl Tensor {
    /// The device that the value is computed on, and lives on.
    ///
    /// # Panics
    /// When it has gone away.
    pub fn device(&self) -> Device {
        self.node().device().map_or_else(default_device, device)
    }

    /// The value on a device; this tensor if it is there already. Gradients flow back to where it came from.
    ///
    /// The copy waits for the value, and what needs the copy for the copy; all else goes on meanwhile.
    pub fn to(&self, device: &Device) -> Tensor {
        match self.node().device() {
            Some(from) if from == device.id() => self.clone(),
            Some(from) => Tensor::record(ToDevice { from: from.0, to: device.id().0 }, &[self]),
            // A value that can be computed anywhere needs no copy.
            None => Tensor::record(Reshape { shape: self.ty().shape.clone() }, &[self]).on(device.id()),
        }
    }

    /// Has the value computed on the default device, unless it has a device already.
    pub(crate) fn committed(self) -> Tensor {
        match self.node().device() {
            Some(_) => self,
            None => self.on(default_device().id()),
        }
    }

    /// Has a value that could be computed anywhere computed on the device of another tensor, if that has one.
    pub(crate) fn beside(self, other: &Tensor) -> Tensor {
        match other.node().device() {
            Some(device) => self.on(device),
            None => self,
        }
    }

    fn on(self, device: DeviceId) -> Tensor {
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
