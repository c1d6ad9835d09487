//! Trained values.

use super::{Init, Leaf, Module, RandomSite, Visitor};
use crate::DType;
use crate::tensor::{Lying, Tensor, no_grad, with_default_device};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A tensor that is trained. Clones are the same parameter, so two layers that hold clones share (tie) it.
///
/// Its values are made at the first use, or by [`Module::init`], which names it by its path. A parameter used
/// without `init` is seeded by [`crate::manual_seed`] and named by its number among this thread's parameters.
#[derive(Clone)]
pub struct Parameter {
    inner: Arc<Inner>,
}

struct Inner {
    shape: Vec<usize>,
    dtype: DType,
    init: Init,
    site: RandomSite,
    trained: AtomicBool,
    /// A leaf for gradients; the same one between two calls of `set`.
    value: Mutex<Option<Tensor>>,
    lying: Mutex<Option<Lying>>,
}

impl Parameter {
    /// An f32 parameter.
    pub fn new(shape: &[usize], init: Init) -> Parameter {
        Parameter::of_dtype(shape, DType::F32, init)
    }

    /// A parameter of another floating-point dtype.
    ///
    /// # Panics
    /// When the dtype is not a floating-point one, or the initialiser does not fit the shape.
    #[track_caller]
    pub fn of_dtype(shape: &[usize], dtype: DType, init: Init) -> Parameter {
        assert!(dtype.is_float(), "a parameter must have a floating-point dtype, not {dtype}");
        init.check(shape);
        let inner = Inner {
            shape: shape.to_vec(),
            dtype,
            init,
            site: RandomSite::new("parameter"),
            trained: AtomicBool::new(true),
            value: Mutex::new(None),
            lying: Mutex::new(None),
        };
        Parameter { inner: Arc::new(inner) }
    }

    /// A parameter that begins with given values, and goes back to them on [`Module::init`].
    #[track_caller]
    pub fn from_tensor(value: &Tensor) -> Parameter {
        Parameter::of_dtype(value.shape(), value.dtype(), Init::given(value))
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.inner.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.inner.dtype
    }

    /// Number of elements.
    pub fn numel(&self) -> usize {
        self.inner.shape.iter().product()
    }

    /// The value, to which gradients flow.
    pub fn value(&self) -> Tensor {
        self.lock().get_or_insert_with(|| self.initial()).clone()
    }

    /// Replaces the value, without its history.
    ///
    /// # Panics
    /// When the shape or dtype is another.
    #[track_caller]
    pub fn set(&self, value: Tensor) {
        let (shape, dtype) = (self.shape(), self.dtype());
        assert!(
            value.shape() == shape && value.dtype() == dtype,
            "a parameter {dtype}{shape:?} cannot become {}{:?}",
            value.dtype(),
            value.shape()
        );
        let value = match self.lying() {
            Some(lying) => no_grad(|| value.place(&lying.mesh, &lying.value)),
            None => value,
        };
        *self.lock() = Some(value.into_leaf(self.requires_grad()));
    }

    /// How the parameter lies on a mesh, if it is on one.
    pub(crate) fn lying(&self) -> Option<Lying> {
        self.inner.lying.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Brings it to a mesh, where its values stay as this says; or no longer.
    pub(crate) fn lie(&self, lying: Option<Lying>) {
        let value = self.value();
        *self.inner.lying.lock().unwrap_or_else(|e| e.into_inner()) = lying;
        self.set(value);
    }

    /// Something that is kept for every element of the parameter, where it belongs.
    pub(crate) fn state_beside(&self, state: Tensor) -> Tensor {
        match self.lying() {
            Some(lying) => no_grad(|| state.place(&lying.mesh, &lying.state)),
            None => state,
        }
    }

    /// As [`state_beside`](Self::state_beside), from wherever it is.
    pub(crate) fn bring_state(&self, state: Tensor) -> Tensor {
        match self.lying() {
            Some(_) => self.state_beside(state),
            None => no_grad(|| state.to(&self.value().device())),
        }
    }

    /// Whether [`Module::gradients`] asks for its gradient. True at first.
    pub fn requires_grad(&self) -> bool {
        self.inner.trained.load(Ordering::Relaxed)
    }

    /// Freezes the parameter, or thaws it again.
    pub fn set_requires_grad(&self, requires_grad: bool) {
        self.inner.trained.store(requires_grad, Ordering::Relaxed);
        let mut value = self.lock();
        *value = value.take().map(|value| value.into_leaf(requires_grad));
    }

    /// Whether both are the same parameter, not just equal.
    pub fn is(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Initialises under a name, anew if need be.
    pub(crate) fn init(&self, seed: u64, name: &str) {
        self.inner.site.assign(seed, name);
        let initial = match self.current() {
            Some(value) => with_default_device(&value.device(), || self.initial()),
            None => self.initial(),
        };
        self.set(initial);
    }

    /// The value if there is one already.
    pub(crate) fn current(&self) -> Option<Tensor> {
        self.lock().clone()
    }

    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    fn initial(&self) -> Tensor {
        let key = || self.inner.site.key_of(0, 0);
        no_grad(|| self.inner.init.tensor(self.shape(), self.dtype(), key).committed()).into_leaf(self.requires_grad())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Tensor>> {
        self.inner.value.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Module for Parameter {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.leaf(Leaf::Parameter(self));
    }
}

impl fmt::Debug for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parameter({}{:?})", self.dtype(), self.shape())
    }
}
