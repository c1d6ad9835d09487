//! Tensors on meshes.

use super::Tensor;
use super::node::{Content, State};
use super::still::hold_still;
use crate::mesh::{Mesh, Placement, mesh};
use meshwork_graph::canonical::samples_unit;
use meshwork_graph::mesh::Placements;
use meshwork_graph::ops::{Place, Reshape, ToDevice};
use meshwork_graph::{DType, Shape};
use meshwork_runtime::Value;

/// How a parameter or buffer lies on a mesh, whatever is computed.
#[derive(Clone)]
pub(crate) struct Lying {
    pub mesh: Mesh,
    pub value: Placements,
    /// What optimizers keep for it.
    pub state: Placements,
}

/// A value on a mesh.
#[derive(Clone)]
pub(crate) struct Spread {
    pub mesh: Mesh,
    pub placements: Placements,
    /// What is stored: one value for each of [`meshwork_graph::mesh::Mesh::stored`].
    pub values: Vec<Value>,
}

impl Tensor {
    /// The mesh that the tensor is on, if it is on one.
    pub fn mesh(&self) -> Option<Mesh> {
        mesh(self.node().device()?)
    }

    /// The value on a mesh, replicated or split along each of its axes. Sizes need not be divisible: parts are as even as
    /// the places allow where the dimension may be cut. Gradients flow back to where the value came from.
    ///
    /// # Panics
    /// When there is not one placement for each axis, a dimension does not exist, or a placement is partial: that comes from
    /// computing alone.
    #[track_caller]
    pub fn place(&self, mesh: &Mesh, placements: &[Placement]) -> Tensor {
        let axes = mesh.axes().len();
        assert!(placements.len() == axes, "one placement for each axis of {mesh}, not {placements:?}");
        let placements = placements.iter().map(|placement| resolved(*placement, self.shape())).collect();
        Tensor::record(Place { placements }, &[&self.onto(mesh)])
    }

    /// The same value with other placements on the mesh that it is on: [`Tensor::place`] there.
    ///
    /// # Panics
    /// When the tensor is on no mesh, and as [`Tensor::place`].
    #[track_caller]
    pub fn redistribute(&self, placements: &[Placement]) -> Tensor {
        let mesh = self.mesh().unwrap_or_else(|| panic!("{self:?} is on no mesh: place it on one first"));
        self.place(&mesh, placements)
    }

    /// How the tensor lies on its mesh, for each axis. Runs what is pending. `None` for a tensor on no mesh.
    pub fn placements(&self) -> Option<Vec<Placement>> {
        self.eval();
        match self.node().state(&hold_still()) {
            State::Ready { content: Content::Mesh(spread), .. } => Some(spread.placements.to_vec()),
            _ => None,
        }
    }

    /// A batch on a mesh: dimension 0 split along the axes `data` and `accumulate`, of tokens (integers `[N, T]`) also
    /// dimension 1 along `sequence`, the value replicated along the others.
    ///
    /// # Panics
    /// When the tensor has no dimension.
    #[track_caller]
    pub fn batch_on(&self, mesh: &Mesh) -> Tensor {
        assert!(self.rank() > 0, "a batch has its samples in dimension 0; this tensor has no dimension");
        let split = |(name, _): &(String, usize)| match name.as_str() {
            "data" | "accumulate" => Placement::split(0),
            "sequence" if self.rank() == 2 && self.dtype() == DType::I64 => Placement::split(1),
            _ => Placement::Replicated,
        };
        let placements: Vec<Placement> = mesh.axes().iter().map(split).collect();
        self.place(mesh, &placements)
    }

    /// The value on a mesh, however suits.
    #[track_caller]
    pub(crate) fn onto(&self, mesh: &Mesh) -> Tensor {
        match self.node().device() {
            Some(from) if from == mesh.id() => self.clone(),
            Some(from) => Tensor::record(ToDevice::new(from.0, mesh.id().0), &[self]),
            None => Tensor::record(Reshape { shape: self.ty().shape.clone() }, &[self]).at(mesh.id()),
        }
    }

    /// The value where another one is: on its mesh, however suits, or on its device.
    #[track_caller]
    pub(crate) fn brought_beside(&self, other: &Tensor) -> Tensor {
        match (other.mesh(), other.node().device()) {
            (Some(mesh), _) => self.onto(&mesh),
            (None, Some(_)) => self.to(&other.device()),
            (None, None) => self.clone(),
        }
    }

    /// A tensor from elsewhere as an operand on a mesh: a batch, if it has samples.
    #[track_caller]
    pub(crate) fn entering(&self, mesh: &Mesh) -> Tensor {
        if self.rank() > 0 { self.batch_on(mesh) } else { self.onto(mesh) }
    }
}

/// A placement that says where the dimension may be cut: by default between the blocks in which samples are summed, for
/// dimension 0, and anywhere for the others.
fn resolved(placement: Placement, shape: &[usize]) -> Placement {
    let usual = |dim: usize| match shape.get(dim) {
        Some(&extent) if dim == 0 => samples_unit(extent),
        _ => 1,
    };
    match placement {
        Placement::Split { dim, unit: 0 } => Placement::Split { dim, unit: usual(dim) },
        Placement::Sharded { dim, unit: 0 } => Placement::Sharded { dim, unit: usual(dim) },
        given => given,
    }
}

/// The bytes of a value from its stored parts.
pub(super) fn gather(spread: &Spread, shape: &Shape, size: usize, parts: &[Vec<u8>]) -> Vec<u8> {
    let grid = spread.mesh.grid();
    let mut whole = vec![0; shape.numel() * size];
    let strides = shape.strides();
    for (rank, bytes) in grid.stored(shape, &spread.placements).into_iter().zip(parts) {
        let region = grid.region(rank, shape, &spread.placements);
        let Some(last) = shape.rank().checked_sub(1) else { return bytes.clone() };
        let row = region.sizes[last] * size;
        if row == 0 {
            continue;
        }
        for (i, from) in bytes.chunks_exact(row).enumerate() {
            let (mut rest, mut at) = (i, region.starts[last]);
            for dim in (0..last).rev() {
                at += (region.starts[dim] + rest % region.sizes[dim]) * strides[dim] as usize;
                rest /= region.sizes[dim];
            }
            whole[at * size..at * size + row].copy_from_slice(from);
        }
    }
    whole
}
