//! Values that belong to a module's state but are not trained.

use super::{Leaf, Module, Visitor};
use crate::DType;
use crate::tensor::{Lying, Tensor, no_grad, with_default_device};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// A value that is saved with the module and has no gradient. Clones are the same buffer.
#[derive(Clone)]
pub struct Buffer {
    inner: Arc<Inner>,
}

struct Inner {
    shape: Vec<usize>,
    dtype: DType,
    initial: Vec<u8>,
    value: Mutex<Tensor>,
    lying: Mutex<Option<Lying>>,
}

impl Buffer {
    /// A buffer that begins with these values, which are read at once.
    pub fn new(value: &Tensor) -> Buffer {
        let initial = value.to_bytes();
        let own = with_default_device(&value.device(), || Tensor::from_bytes(&initial, value.dtype(), value.shape()));
        let inner = Inner {
            shape: value.shape().to_vec(),
            dtype: value.dtype(),
            initial,
            value: Mutex::new(own),
            lying: Mutex::new(None),
        };
        Buffer { inner: Arc::new(inner) }
    }

    /// The sizes, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.inner.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.inner.dtype
    }

    /// The value.
    pub fn value(&self) -> Tensor {
        self.lock().clone()
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
            "a buffer {dtype}{shape:?} cannot become {}{:?}",
            value.dtype(),
            value.shape()
        );
        let value = match self.lying() {
            Some(lying) => no_grad(|| value.place(&lying.mesh, &lying.value)),
            None => value,
        };
        *self.lock() = value.into_leaf(false);
    }

    fn lying(&self) -> Option<Lying> {
        self.inner.lying.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Brings it to a mesh, where its values stay as this says; or no longer.
    pub(crate) fn lie(&self, lying: Option<Lying>) {
        let value = self.value();
        *self.inner.lying.lock().unwrap_or_else(|e| e.into_inner()) = lying;
        self.set(value);
    }

    /// Goes back to the first value.
    pub fn reset(&self) {
        let initial = || Tensor::from_bytes(&self.inner.initial, self.dtype(), self.shape());
        self.set(with_default_device(&self.value().device(), initial));
    }

    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.inner).addr()
    }

    fn lock(&self) -> MutexGuard<'_, Tensor> {
        self.inner.value.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Module for Buffer {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.leaf(Leaf::Buffer(self));
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({}{:?})", self.dtype(), self.shape())
    }
}
