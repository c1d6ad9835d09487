//! Lazy tensors: operations are recorded, and run together when a value is needed.

mod autocast;
mod cache;
mod checkpoint;
mod convert;
mod create;
mod device;
mod evaluate;
mod grad;
mod kind;
mod mesh;
mod node;
mod ops;
mod part;
mod planning;
mod read;
mod still;

pub use autocast::{CAST_POLICIES, CastPolicy, Precision, autocast, cast_policy};
pub use checkpoint::checkpoint;
pub use convert::Element;
pub(crate) use create::counted;
pub use create::{arange, eye, full, linspace, one_hot, ones, zeros};
pub use device::{
    default_device, record_event, set_cpu_devices, set_cpu_groups, synchronize, synchronize_device, with_default_device,
};
pub use evaluate::{compile_count, last_plan, last_program};
pub use grad::{grad, grad_with};
pub use node::no_grad;
pub use ops::*;

pub(crate) use autocast::policy;
pub(crate) use create::positions;
pub(crate) use evaluate::evaluate;
pub(crate) use grad::gradients;
pub(crate) use mesh::Lying;
pub(crate) use node::{Content, Node};
pub(crate) use part::Part;
pub(crate) use planning::{forget_peaks, plan_only};

use crate::mesh::is_mesh;
use kind::Kind;
use meshwork_graph::{DType, Op, Type};
use meshwork_runtime::DeviceId;
use smallvec::SmallVec;
use std::sync::Arc;

/// An n-dimensional array whose value is computed when it is needed.
///
/// Operations record what is to be computed and return at once. Reading ([`Tensor::to_vec`], [`Tensor::item`],
/// printing), [`Tensor::eval`], [`crate::synchronize`] and an optimizer's step run everything that is alive and
/// pending together, as one program. Tensors are immutable; clones share the value and cost nothing.
///
/// Mistakes in shapes and dtypes panic at the line of the call.
pub struct Tensor {
    node: Arc<Node>,
}

impl Clone for Tensor {
    fn clone(&self) -> Self {
        Tensor::hold_again(self.node.clone())
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.node.let_go();
    }
}

impl Tensor {
    /// A tensor that holds a node, which is computed with everything else that is pending.
    pub(crate) fn hold(node: Arc<Node>) -> Tensor {
        node::remember(&node);
        Tensor::hold_again(node)
    }

    /// A tensor that holds a node which need not be remembered: it is computed already, or another tensor holds it.
    fn hold_again(node: Arc<Node>) -> Tensor {
        node.hold();
        Tensor { node }
    }

    /// A tensor of a value that is there.
    pub(crate) fn ready(ty: Type, content: Content) -> Tensor {
        Tensor::hold_again(Node::ready(ty, content).shared())
    }

    /// Whether both are the same value, not just equal.
    pub(crate) fn is(&self, other: &Tensor) -> bool {
        Arc::ptr_eq(&self.node, &other.node)
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Records an operation of the graph on tensors.
    ///
    /// # Panics
    /// At the caller's line, when the operands do not fit.
    #[track_caller]
    pub fn record(op: impl Into<Op>, inputs: &[&Tensor]) -> Tensor {
        Tensor::record_op(&mut op.into(), inputs)
    }

    #[track_caller]
    fn record_op(op: &mut Op, inputs: &[&Tensor]) -> Tensor {
        let mut devices = inputs.iter().filter_map(|t| t.node.device());
        if let Some(first) = devices.next() {
            device::assert_is_there(first);
            if let Some(other) = devices.find(|&device| device != first) {
                return Tensor::record_op(op, &entered(op, inputs, [first, other]).iter().collect::<Vec<_>>());
            }
        }
        let kinds: SmallVec<[&Kind; 3]> = inputs.iter().map(|t| &*t.node.kind).collect();
        if let Some(part) = part::common_part(inputs.iter().map(|t| t.node.part())) {
            part.apply(op, &kinds.iter().map(|kind| &kind.ty).collect::<Vec<_>>());
        }
        let kind = match Kind::of(op, &kinds) {
            Ok(kind) => kind,
            Err(e) => panic!("{e}"),
        };
        let off = node::grad_is_off();
        let requires_grad = !off && inputs.iter().any(|t| t.node.requires_grad);
        Tensor::hold(Node::pending(kind, inputs.iter().map(|t| &t.node), requires_grad, off))
    }

    /// Records a user's own operation.
    ///
    /// # Panics
    /// At the caller's line, when the operation refuses the operands.
    #[track_caller]
    pub fn custom(op: Arc<dyn meshwork_graph::ops::CustomOp>, inputs: &[&Tensor]) -> Tensor {
        Tensor::record(meshwork_graph::ops::Custom(op), inputs)
    }

    pub(crate) fn ty(&self) -> &Type {
        self.node.ty()
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.ty().shape
    }

    /// The size of dimension `dim`; negative numbers count from the end.
    #[track_caller]
    pub fn size(&self, dim: isize) -> usize {
        self.shape()[self.dim(dim)]
    }

    /// Number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.ty().shape.numel()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.ty().dtype
    }

    /// Whether gradients flow to or through the tensor.
    pub fn requires_grad(&self) -> bool {
        self.node.requires_grad
    }

    /// The same value as a variable of its own: gradients flow to it and not beyond it.
    ///
    /// # Panics
    /// When the dtype is not a floating-point one, or the tensor's device has gone away.
    #[track_caller]
    pub fn variable(&self) -> Tensor {
        assert!(self.dtype().is_float(), "a variable must have a floating-point dtype, not {}", self.dtype());
        self.alias(true)
    }

    /// The same value without history: gradients do not flow through it.
    ///
    /// # Panics
    /// When the tensor's device has gone away.
    #[track_caller]
    pub fn detach(&self) -> Tensor {
        self.alias(false)
    }

    /// The value as a leaf for gradients, held by a node of its own: unlike an alias it costs no copy, and once this
    /// tensor is dropped the leaf is the only owner of its memory.
    pub(crate) fn into_leaf(self, requires_grad: bool) -> Tensor {
        let leaf = self.node.leaf(requires_grad, &still::hold_still());
        Tensor::hold(leaf.shared())
    }

    #[track_caller]
    fn alias(&self, requires_grad: bool) -> Tensor {
        self.node.device().into_iter().for_each(device::assert_is_there);
        let op = meshwork_graph::ops::Reshape { shape: self.ty().shape.clone() };
        let kind = Kind::of(&op.into(), &[&self.node.kind]).unwrap_or_else(|e| unreachable!("the same shape: {e}"));
        Tensor::hold(Node::pending(kind, std::iter::once(&self.node), requires_grad, true))
    }

    /// A dimension given by a number that may count from the end.
    #[track_caller]
    pub(crate) fn dim(&self, dim: isize) -> usize {
        let rank = self.rank() as isize;
        let index = if dim < 0 { dim + rank } else { dim };
        assert!((0..rank).contains(&index), "dim {dim} of a tensor of shape {}", self.ty().shape);
        index as usize
    }

    /// Hands this tensor and everything else that is pending over to the device, without waiting.
    pub fn eval(&self) {
        let pending = self.node.is_pending(&still::hold_still());
        if pending {
            evaluate(Some(&self.node));
        }
    }
}

/// The operands, which are on different devices, all on the mesh that one of them is on: those on a device enter as a batch.
///
/// # Panics
/// When none is on a mesh, or they are on different ones.
#[track_caller]
fn entered(op: &Op, inputs: &[&Tensor], devices: [DeviceId; 2]) -> SmallVec<[Tensor; 3]> {
    let on_mesh = |t: &Tensor| t.node.device().is_some_and(is_mesh);
    let elsewhere = |t: &Tensor| t.node.device().is_some_and(|id| !is_mesh(id));
    let name = op.operation().name();
    let apart = |devices: [DeviceId; 2]| -> ! {
        let [first, other]: [String; 2] = devices.map(device::name);
        panic!("{name}: operands on {first} and {other}: bring them together with .to(&device)")
    };
    let mut meshes = inputs.iter().filter(|t| on_mesh(t)).filter_map(|t| t.node.device());
    let Some(first) = meshes.next() else { apart(devices) };
    if let Some(other) = meshes.find(|&mesh| mesh != first) {
        apart([first, other]);
    }
    let mesh = inputs.iter().find_map(|t| t.mesh()).expect("an operand on a mesh");
    inputs.iter().map(|t| if elsewhere(t) { t.entering(&mesh) } else { (*t).clone() }).collect()
}
