//! What kernels read and write: raw elements with a layout.

use meshwork_graph::{DType, Layout, Shape};
use std::marker::PhantomData;

/// A Rust type that is stored as a dtype.
///
/// # Safety
/// `DTYPE` must have the size and alignment of the type, and all bit patterns that kernels store must be valid.
pub unsafe trait Stored: Copy + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;
}

macro_rules! stored {
    ($($type:ty => $dtype:ident),*) => {
        $(
            // SAFETY: the primitive type is what the dtype means.
            unsafe impl Stored for $type {
                const DTYPE: DType = DType::$dtype;
            }
        )*
    };
}

stored!(f64 => F64, f32 => F32, half::f16 => F16, half::bf16 => BF16, i64 => I64, i32 => I32, u8 => U8, bool => Bool);

/// An operand of a kernel: elements in memory and where they lie. Strides may be anything.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    data: *const u8,
    /// Element type.
    pub dtype: DType,
    /// Shape, strides and offset, in elements from the start of the buffer.
    pub layout: &'a Layout,
}

// SAFETY: operands are only read, and `new` demands that nobody writes meanwhile (except the running kernel
// itself where it works in place, element by element).
unsafe impl Send for Operand<'_> {}
// SAFETY: as above.
unsafe impl Sync for Operand<'_> {}

impl<'a> Operand<'a> {
    /// An operand at `data`, the start of its buffer.
    ///
    /// # Safety
    /// Every element of `layout` must lie inside the buffer, which must be aligned for the dtype, initialised,
    /// alive for `'a`, and not written by others while the kernel runs.
    pub unsafe fn new(data: *const u8, dtype: DType, layout: &'a Layout) -> Self {
        Operand { data, dtype, layout }
    }

    /// A dense operand over a slice.
    pub fn of<T: Stored>(data: &'a [T], layout: &'a Layout) -> Self {
        assert!(layout.is_contiguous() && layout.offset + layout.shape.numel() <= data.len(), "layout outside of data");
        Operand { data: data.as_ptr().cast(), dtype: T::DTYPE, layout }
    }

    /// The start of the buffer; element `i` of the layout is at `position(i)` from here.
    pub fn base<T: Stored>(&self) -> *const T {
        assert_eq!(T::DTYPE, self.dtype, "dtype of an operand");
        self.data.cast()
    }

    /// The start of the buffer.
    pub fn bytes(&self) -> *const u8 {
        self.data
    }

    /// The first element of the layout.
    pub fn first<T: Stored>(&self) -> *const T {
        // SAFETY: the offset lies inside the buffer, or there are no elements.
        unsafe { self.base::<T>().add(self.layout.offset) }
    }

    /// The elements as a slice.
    ///
    /// # Panics
    /// When they are not dense in row-major order.
    pub fn slice<T: Stored>(&self) -> &'a [T] {
        assert!(self.layout.is_contiguous(), "this kernel needs dense operands");
        // SAFETY: `new` promises that the elements are there.
        unsafe { std::slice::from_raw_parts(self.first::<T>(), self.layout.shape.numel()) }
    }

    /// The elements as bytes.
    ///
    /// # Panics
    /// When they are not dense in row-major order.
    pub fn contents(&self) -> &'a [u8] {
        assert!(self.layout.is_contiguous(), "this kernel needs dense operands");
        let size = self.dtype.size();
        // SAFETY: `new` promises that the elements are there.
        unsafe {
            let first = self.data.add(self.layout.offset * size);
            std::slice::from_raw_parts(first, self.layout.shape.numel() * size)
        }
    }

    /// The shape.
    pub fn shape(&self) -> &'a Shape {
        &self.layout.shape
    }
}

/// The result of a kernel: dense, row-major.
pub struct Output<'a> {
    data: *mut u8,
    /// Element type.
    pub dtype: DType,
    /// Shape.
    pub shape: &'a Shape,
    life: PhantomData<&'a mut u8>,
}

impl<'a> Output<'a> {
    /// A result at `data`.
    ///
    /// # Safety
    /// There must be room for the elements, aligned for the dtype, alive for `'a` and used by nobody else.
    /// An operand of an elementwise kernel may lie at the very same place with the dense layout.
    pub unsafe fn new(data: *mut u8, dtype: DType, shape: &'a Shape) -> Self {
        Output { data, dtype, shape, life: PhantomData }
    }

    /// A result over a slice.
    pub fn of<T: Stored>(data: &'a mut [T], shape: &'a Shape) -> Self {
        assert_eq!(data.len(), shape.numel(), "elements of the output");
        Output { data: data.as_mut_ptr().cast(), dtype: T::DTYPE, shape, life: PhantomData }
    }

    /// The first element.
    pub fn first<T: Stored>(&mut self) -> *mut T {
        assert_eq!(T::DTYPE, self.dtype, "dtype of the output");
        self.data.cast()
    }

    /// The elements as bytes.
    pub fn contents(&mut self) -> &mut [u8] {
        // SAFETY: as for `slice`.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.shape.numel() * self.dtype.size()) }
    }

    /// The place of the first element.
    pub fn bytes(&self) -> *mut u8 {
        self.data
    }

    /// The elements.
    pub fn slice<T: Stored>(&mut self) -> &mut [T] {
        // SAFETY: `new` promises room for the elements and that nobody else uses them. Every kernel writes
        // all of them, and any bit pattern in the room is a number.
        unsafe { std::slice::from_raw_parts_mut(self.first::<T>(), self.shape.numel()) }
    }
}

/// A pointer that tasks on several threads write through, each to elements of its own.
#[derive(Clone, Copy)]
pub struct Shared<T>(pub *mut T);

// SAFETY: the user of the pointer keeps the tasks' elements disjoint.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The pointer. (A closure that reads the field instead would capture the bare pointer, which no thread may share.)
    #[inline(always)]
    pub fn pointer(&self) -> *mut T {
        self.0
    }

    /// The elements `start..start + len`.
    ///
    /// # Safety
    /// They must lie inside the allocation and be used by one task at a time.
    #[allow(clippy::mut_from_ref)]
    #[inline(always)]
    pub unsafe fn slice<'a>(&self, start: usize, len: usize) -> &'a mut [T] {
        // SAFETY: the caller promises it.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}
