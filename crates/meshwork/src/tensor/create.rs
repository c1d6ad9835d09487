//! Making tensors.

use super::convert::{Element, bytes_of, scalar_bytes};
use super::device::default_device;
use super::{Content, Tensor};
use meshwork_graph::ops::{BinaryOp, Const, Expand, Iota, Reshape};
use meshwork_graph::{DType, Scalar, Shape, Type};

impl Tensor {
    /// A tensor of these elements in row-major order.
    ///
    /// # Panics
    /// When the number of elements is not that of the shape.
    #[track_caller]
    pub fn from_slice<T: Element>(values: &[T], shape: &[usize]) -> Tensor {
        let ty = Type::new(T::DTYPE, shape);
        assert_eq!(
            values.len(),
            ty.shape.numel(),
            "{} elements do not make a tensor of shape {}",
            values.len(),
            ty.shape
        );
        Tensor::ready(ty, Content::Device(default_device().upload(bytes_of(values))))
    }

    /// A tensor of raw elements in native byte order; those of bool are 0 or 1.
    ///
    /// # Panics
    /// When the number of bytes is not that of the type, or a bool is neither 0 nor 1.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8], dtype: DType, shape: &[usize]) -> Tensor {
        let ty = Type::new(dtype, shape);
        assert_eq!(bytes.len(), ty.bytes(), "{} bytes do not make a tensor {ty}", bytes.len());
        let wrong = bytes.iter().position(|&b| dtype == DType::Bool && b > 1);
        assert!(wrong.is_none(), "byte {} is no bool: they are 0 or 1", wrong.unwrap_or_default());
        Tensor::ready(ty, Content::Device(default_device().upload(bytes)))
    }

    /// A 0-d tensor whose value is an input of the program, not part of its structure: programs that differ in it
    /// alone are compiled once.
    pub fn scalar(value: f64, dtype: DType) -> Tensor {
        Tensor::ready(Type::new(dtype, []), Content::Scalar(scalar_bytes(value, dtype)))
    }

    /// A 0-d i64 tensor with these bits, an input of the program: the key of random values.
    pub(crate) fn key(bits: u64) -> Tensor {
        Tensor::ready(Type::new(DType::I64, []), Content::Scalar(bits.to_ne_bytes()))
    }

    /// A 0-d constant that is part of the structure of the program.
    pub(crate) fn constant(value: f64, dtype: DType) -> Tensor {
        let value = if dtype.is_float() { Scalar::Float(value) } else { Scalar::Int(value as i64) };
        Tensor::record(Const { value, dtype }, &[])
    }

    /// A 0-d tensor repeated to a shape.
    pub(crate) fn spread(&self, shape: &Shape) -> Tensor {
        if shape.rank() == 0 {
            return self.clone();
        }
        Tensor::record(Expand { shape: shape.clone() }, &[self])
    }

    /// A constant of this tensor's type.
    pub(crate) fn constant_like(&self, value: f64) -> Tensor {
        Tensor::constant(value, self.dtype()).spread(&self.ty().shape)
    }

    /// Zeros of this tensor's type, on its device.
    pub fn zeros_like(&self) -> Tensor {
        self.constant_like(0.0).beside(self)
    }

    /// Ones of this tensor's type, on its device.
    pub fn ones_like(&self) -> Tensor {
        self.constant_like(1.0).beside(self)
    }
}

/// A tensor of one number.
pub fn full(shape: &[usize], value: f64, dtype: DType) -> Tensor {
    Tensor::constant(value, dtype).spread(&Shape::new(shape)).committed()
}

/// A tensor of zeros.
pub fn zeros(shape: &[usize], dtype: DType) -> Tensor {
    full(shape, 0.0, dtype)
}

/// A tensor of ones.
pub fn ones(shape: &[usize], dtype: DType) -> Tensor {
    full(shape, 1.0, dtype)
}

/// The numbers 0, 1, …, n − 1.
pub fn arange(n: usize, dtype: DType) -> Tensor {
    counted(n, dtype).committed()
}

/// As [`arange`], computed wherever it is needed.
pub(crate) fn counted(n: usize, dtype: DType) -> Tensor {
    Tensor::record(Iota::new([n], 0, dtype), &[])
}

/// The position along `dim` at every element of a shape: one row of numbers, repeated as a view.
pub(crate) fn positions(shape: &Shape, dim: usize, dtype: DType) -> Tensor {
    let row = (0..shape.rank()).map(|d| if d == dim { shape[d] } else { 1 }).collect();
    let row = Tensor::record(Reshape { shape: row }, &[&counted(shape[dim], dtype)]);
    Tensor::record(Expand { shape: shape.clone() }, &[&row])
}

/// `n` numbers from `start` to `end` in equal steps, both included.
pub fn linspace(start: f64, end: f64, n: usize, dtype: DType) -> Tensor {
    let step = if n > 1 { (end - start) / (n - 1) as f64 } else { 0.0 };
    let positions = counted(n, dtype);
    let (step, start) = (positions.constant_like(step), positions.constant_like(start));
    let scaled = positions.binary(BinaryOp::Mul, &step);
    scaled.binary(BinaryOp::Add, &start).committed()
}

/// The identity matrix [n, n].
pub fn eye(n: usize, dtype: DType) -> Tensor {
    let shape = Shape::new(&[n, n]);
    let row = positions(&shape, 0, DType::I64);
    let column = positions(&shape, 1, DType::I64);
    row.binary(BinaryOp::Eq, &column).to_dtype(dtype).committed()
}

/// Class indices [...] as rows of zeros with a one: [..., classes].
#[track_caller]
pub fn one_hot(classes: &Tensor, num_classes: usize, dtype: DType) -> Tensor {
    assert!(!classes.dtype().is_float(), "one_hot needs integer class indices, not {}", classes.dtype());
    let mut shape = classes.ty().shape.clone();
    shape.0.push(1);
    let column = Tensor::record(Reshape { shape: shape.clone() }, &[classes]);
    *shape.0.last_mut().expect("just pushed") = num_classes;
    let column = Tensor::record(Expand { shape: shape.clone() }, &[&column]);
    let dim = shape.rank() - 1;
    let positions = positions(&shape, dim, classes.dtype());
    column.binary(BinaryOp::Eq, &positions).to_dtype(dtype)
}
