//! Meshes of devices: tensors that are spread over several devices and used as if they were on one.
//!
//! A [`Mesh`] is a grid of devices with named axes. [`Tensor::place`](crate::Tensor::place) says for each axis whether a
//! tensor is replicated or split along it; what is computed from it is on the mesh too, and how is worked out when it runs.
//! Where a value is needed in another placement, the collective is put in. No placement changes a bit of any result.
//!
//! ```
//! use meshwork::mesh::{Mesh, Placement};
//! use meshwork::prelude::*;
//! use meshwork::tensor::randn;
//!
//! meshwork::set_cpu_devices(2)?;
//! let mesh = Mesh::new([("data", 2)], &Device::cpus()?)?;
//! let (x, w) = (randn(&[8, 3]), randn(&[4, 3]));
//! let spread = x.place(&mesh, &[Placement::split(0)]).linear(&w.place(&mesh, &[Placement::Replicated]), None);
//! assert_eq!(spread.to_bytes(), x.linear(&w, None).to_bytes());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod footprint;
mod plan;
mod registry;
mod rule;

pub use footprint::{Footprint, PlacedParameter, placed_parameters};
pub use meshwork_graph::mesh::{Merge, Placement};
pub use plan::{Plan, PlanError, Zero};
pub use rule::Rule;

pub(crate) use registry::{is_mesh, mesh};

use crate::Device;
use meshwork_graph::mesh::Mesh as Grid;
use meshwork_runtime::DeviceId;
use std::fmt;
use std::sync::Arc;

/// Devices in a grid with named axes. Clones are the same mesh.
#[derive(Clone)]
pub struct Mesh {
    inner: Arc<Inner>,
}

struct Inner {
    id: DeviceId,
    grid: Grid,
    devices: Vec<Device>,
}

/// Why there is no such mesh.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeshError {
    /// Not as many devices as ranks.
    #[error("a mesh of {axes} has {ranks} ranks, but {devices} devices were given: one for each rank")]
    Devices {
        /// The axes.
        axes: String,
        /// Their product.
        ranks: usize,
        /// Devices given.
        devices: usize,
    },
    /// An axis without ranks.
    #[error("the axis {0:?} of a mesh has size 0: it must have at least 1")]
    Empty(String),
    /// Two axes of one name.
    #[error("two axes of a mesh are called {0:?}")]
    Twice(String),
    /// No axis at all.
    #[error("a mesh needs at least one axis")]
    NoAxes,
}

impl Mesh {
    /// A mesh with these axes, outermost first: rank 0 is the first device, and the last axis goes fastest. A device may be
    /// given several times: it computes the parts of several ranks.
    ///
    /// # Errors
    /// When the product of the sizes is not the number of devices, a size is 0, or two axes have one name.
    pub fn new<'a>(axes: impl IntoIterator<Item = (&'a str, usize)>, devices: &[Device]) -> Result<Mesh, MeshError> {
        let axes: Vec<(String, usize)> = axes.into_iter().map(|(name, size)| (name.to_string(), size)).collect();
        let mut names: Vec<&str> = Vec::new();
        for (name, size) in &axes {
            if *size == 0 {
                return Err(MeshError::Empty(name.clone()));
            }
            if names.contains(&name.as_str()) {
                return Err(MeshError::Twice(name.clone()));
            }
            names.push(name);
        }
        if axes.is_empty() {
            return Err(MeshError::NoAxes);
        }
        let ranks: usize = axes.iter().map(|(_, size)| size).product();
        if ranks != devices.len() {
            return Err(MeshError::Devices { axes: describe(&axes), ranks, devices: devices.len() });
        }
        let grid = Grid { axes, devices: devices.iter().map(|device| device.id().0).collect() };
        Ok(registry::register(|id| Mesh { inner: Arc::new(Inner { id, grid, devices: devices.to_vec() }) }))
    }

    /// Names and sizes of the axes.
    pub fn axes(&self) -> &[(String, usize)] {
        &self.inner.grid.axes
    }

    /// The position of an axis.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes().iter().position(|(other, _)| other == name)
    }

    /// The size of an axis; 1 if there is none of that name.
    pub fn axis_size(&self, name: &str) -> usize {
        self.axis(name).map_or(1, |axis| self.axes()[axis].1)
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.grid().size()
    }

    /// The device of each rank.
    pub fn devices(&self) -> &[Device] {
        &self.inner.devices
    }

    pub(crate) fn id(&self) -> DeviceId {
        self.inner.id
    }

    pub(crate) fn grid(&self) -> &Grid {
        &self.inner.grid
    }
}

impl PartialEq for Mesh {
    fn eq(&self, other: &Mesh) -> bool {
        self.id() == other.id()
    }
}

fn describe(axes: &[(String, usize)]) -> String {
    axes.iter().map(|(name, size)| format!("{name}={size}")).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "mesh({})", describe(self.axes()))
    }
}

impl fmt::Debug for Mesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
