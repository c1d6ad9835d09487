//! Which CPU devices there are.

use crate::cores;
use crate::device::{Device, DeviceId, MAX_THREADS};
use crate::link::{LinkError, link};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

/// What is wrong with a request for a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// A thread count that no device can have.
    #[error("{0} threads: a device needs 1 to {MAX_THREADS} (this machine has {1} cores)")]
    Threads(usize, usize),
    /// A device that does not exist.
    #[error("cpu:{0} does not exist: {1}; set_cpu_devices, or MESHWORK_CPU_DEVICES, makes more")]
    NoSuchDevice(usize, String),
    /// A number of devices that cannot be.
    #[error("{0} CPU devices: there can be 1 to {MAX_DEVICES}, also more than there are cores")]
    Count(usize),
    /// A group of cores that cannot be a device.
    #[error("{0}")]
    Group(String),
    /// A value of `MESHWORK_CPU_DEVICES` that means nothing.
    #[error("MESHWORK_CPU_DEVICES={0:?}: it must be a number of devices from 1 to {MAX_DEVICES}")]
    Environment(String),
    /// A link between devices that cannot be.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Most CPU devices of a process.
const MAX_DEVICES: usize = 1024;

/// The lowest number that a device may have which has not gone away.
static OLDEST: AtomicU32 = AtomicU32::new(0);

struct Registry {
    /// The cores of each device. Without groups there is one device, whose threads may use any core.
    groups: Result<Option<Vec<Vec<usize>>>, DeviceError>,
    /// The devices that have been asked for, by index.
    started: FxHashMap<usize, Device>,
    /// The same by their identity.
    by_id: FxHashMap<DeviceId, Device>,
    /// Devices started so far.
    count: u32,
}

fn registry() -> MutexGuard<'static, Registry> {
    static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(|| {
        let groups = match std::env::var("MESHWORK_CPU_DEVICES") {
            Err(_) => Ok(None),
            Ok(text) => {
                let count = text.trim().parse().ok().filter(|count| (1..=MAX_DEVICES).contains(count));
                count.map(equal_groups).ok_or(DeviceError::Environment(text))
            }
        };
        let (started, by_id) = Default::default();
        Mutex::new(Registry { groups, started, by_id, count: 0 })
    });
    REGISTRY.lock().unwrap_or_else(|e| e.into_inner())
}

fn equal_groups(count: usize) -> Option<Vec<Vec<usize>>> {
    if count > cores::all().len() {
        let cores = cores::all().len();
        eprintln!("meshwork: {count} CPU devices share {cores} cores: results are the same, their speeds are not");
    }
    (count > 1).then(|| cores::groups(count))
}

impl Registry {
    fn device(&mut self, index: usize) -> Result<Device, DeviceError> {
        if let Some(device) = self.started.get(&index) {
            return Ok(device.clone());
        }
        let groups = self.groups.as_ref().map_err(Clone::clone)?;
        link()?;
        let count = groups.as_ref().map_or(1, Vec::len);
        if index >= count {
            let there = if count == 1 {
                "there is one CPU device, cpu:0".into()
            } else {
                format!("there are {count} CPU devices")
            };
            return Err(DeviceError::NoSuchDevice(index, there));
        }
        self.count += 1;
        let device = match groups {
            None => Device::start(DeviceId(self.count), index, cores::all(), false, 0),
            Some(groups) => {
                let others = cores::elsewhere(groups, index);
                Device::start(DeviceId(self.count), index, &groups[index], true, others)
            }
        };
        self.started.insert(index, device.clone());
        self.by_id.insert(device.id(), device.clone());
        Ok(device)
    }

    /// Other groups; the devices of before go away with what is still on them.
    fn replace(groups: Option<Vec<Vec<usize>>>) {
        synchronize_all();
        let mut registry = registry();
        registry.groups = Ok(groups);
        OLDEST.store(registry.count + 1, Ordering::Relaxed);
        let gone = (std::mem::take(&mut registry.started), std::mem::take(&mut registry.by_id));
        drop(registry);
        drop(gone);
    }
}

impl Device {
    /// The CPU device number `index`. At first there is one, cpu:0, with all cores; `MESHWORK_CPU_DEVICES`,
    /// [`set_cpu_devices`] and [`set_cpu_groups`] make several.
    ///
    /// # Errors
    /// When there are fewer devices, or the environment asks for a number of them that makes no sense.
    pub fn cpu(index: usize) -> Result<Device, DeviceError> {
        registry().device(index)
    }

    /// All CPU devices, in order.
    ///
    /// # Errors
    /// When the environment asks for a number of them that makes no sense.
    pub fn cpus() -> Result<Vec<Device>, DeviceError> {
        let mut registry = registry();
        let count = registry.groups.as_ref().map_err(Clone::clone)?.as_ref().map_or(1, Vec::len);
        (0..count).map(|index| registry.device(index)).collect()
    }

    /// Whether the device with this identity has gone away, because other devices were set.
    pub fn has_gone(id: DeviceId) -> bool {
        id.0 < OLDEST.load(Ordering::Relaxed)
    }

    /// The device with this identity, unless it has gone away.
    pub fn by_id(id: DeviceId) -> Option<Device> {
        registry().by_id.get(&id).cloned()
    }
}

/// Divides the cores among `count` CPU devices, as evenly as they go; more devices than cores share them. Waits for all
/// work of the devices of before, which go away: what was on them can be read, and nothing else.
///
/// # Errors
/// When the number is 0 or absurdly large.
pub fn set_cpu_devices(count: usize) -> Result<(), DeviceError> {
    if !(1..=MAX_DEVICES).contains(&count) {
        return Err(DeviceError::Count(count));
    }
    Registry::replace(equal_groups(count));
    Ok(())
}

/// As [`set_cpu_devices`], with the numbers of the cores that each device has. Devices may share cores.
///
/// # Errors
/// When there is no group, one is empty or names a core that this process cannot use, or names one twice.
pub fn set_cpu_groups(groups: &[&[usize]]) -> Result<(), DeviceError> {
    if !(1..=MAX_DEVICES).contains(&groups.len()) {
        return Err(DeviceError::Count(groups.len()));
    }
    let known = cores::all();
    for (i, group) in groups.iter().enumerate() {
        let wrong = |what: String| Err(DeviceError::Group(format!("the cores {group:?} of cpu:{i}: {what}")));
        if group.is_empty() {
            return wrong("a device needs at least one".into());
        }
        if let Some(core) = group.iter().find(|core| !known.contains(core)) {
            return wrong(format!("there is no core {core} for this process; there are {known:?}"));
        }
        if let Some(k) = (0..group.len()).find(|&k| group[..k].contains(&group[k])) {
            return wrong(format!("core {} is named twice", group[k]));
        }
    }
    Registry::replace(Some(groups.iter().map(|group| group.to_vec()).collect()));
    Ok(())
}

/// The cores of each CPU device.
///
/// # Errors
/// When the environment asks for a number of devices that makes no sense.
pub fn cpu_groups() -> Result<Vec<Vec<usize>>, DeviceError> {
    let groups = registry().groups.clone()?;
    Ok(groups.unwrap_or_else(|| vec![cores::all().to_vec()]))
}

fn started() -> Vec<Device> {
    registry().started.values().cloned().collect()
}

/// Waits until all work that was handed over to any device is done. Errors reach those who read the values.
pub fn synchronize_all() {
    started().iter().for_each(Device::synchronize);
}

/// Waits while several hand-overs wait for a device already: whoever records does not run far ahead, and the memory that
/// waiting work holds stays bounded. A kernel that hands work over does not wait.
pub fn wait_for_room() {
    if !meshwork_queue::is_serving() {
        started().iter().for_each(Device::wait_for_room);
    }
}
