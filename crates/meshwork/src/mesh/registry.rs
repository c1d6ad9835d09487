//! All meshes that there are. A mesh has a number of the kind that devices have, so that a tensor on a mesh is on one thing.

use super::Mesh;
use meshwork_runtime::DeviceId;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of the first mesh: devices are counted from 1 and do not come so far.
const FIRST: u32 = 1 << 31;

static MESHES: Mutex<Vec<Mesh>> = Mutex::new(Vec::new());

fn meshes() -> MutexGuard<'static, Vec<Mesh>> {
    MESHES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mesh of these axes and devices: made if there is none.
pub(super) fn register(make: impl FnOnce(DeviceId) -> Mesh) -> Mesh {
    let mut meshes = meshes();
    let new = make(DeviceId(FIRST + meshes.len() as u32));
    if let Some(known) = meshes.iter().find(|mesh| mesh.grid() == new.grid()) {
        return known.clone();
    }
    meshes.push(new.clone());
    new
}

/// Whether a number is that of a mesh.
pub(crate) fn is_mesh(id: DeviceId) -> bool {
    id.0 >= FIRST
}

/// The mesh of a number.
pub(crate) fn mesh(id: DeviceId) -> Option<Mesh> {
    let number = id.0.checked_sub(FIRST)?;
    meshes().get(number as usize).cloned()
}
