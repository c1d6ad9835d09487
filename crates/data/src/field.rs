//! What a sample consists of, and the memory that holds many of them.

use serde::{Deserialize, Serialize};

/// The type of the elements of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FieldType {
    /// 32-bit floating point.
    F32,
    /// 64-bit signed integers, such as labels and tokens.
    I64,
    /// Bytes.
    U8,
}

/// One named part of every sample of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    /// The name, such as `image` or `label`.
    pub name: String,
    /// The type of the elements.
    pub dtype: FieldType,
    /// The shape of one sample: `[1, 28, 28]`, or `[]` for a scalar.
    pub shape: Vec<usize>,
}

impl Field {
    /// A field of this name, element type and shape of one sample.
    pub fn new(name: impl Into<String>, dtype: FieldType, shape: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dtype, shape: shape.into() }
    }

    /// The number of elements of one sample: the product of its shape, 1 for a scalar.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The values of one field for a number of samples, one after the other in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub enum Column {
    /// Values of a field of type [`FieldType::F32`].
    F32(Vec<f32>),
    /// Values of a field of type [`FieldType::I64`].
    I64(Vec<i64>),
    /// Values of a field of type [`FieldType::U8`].
    U8(Vec<u8>),
}

impl Column {
    /// A column without elements.
    pub fn empty(dtype: FieldType) -> Self {
        match dtype {
            FieldType::F32 => Self::F32(Vec::new()),
            FieldType::I64 => Self::I64(Vec::new()),
            FieldType::U8 => Self::U8(Vec::new()),
        }
    }

    /// The type of the elements.
    pub fn dtype(&self) -> FieldType {
        match self {
            Self::F32(_) => FieldType::F32,
            Self::I64(_) => FieldType::I64,
            Self::U8(_) => FieldType::U8,
        }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U8(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes the column `len` zeros, keeping its memory.
    pub(crate) fn reset(&mut self, len: usize) {
        fn zeros<T: Copy + Default>(values: &mut Vec<T>, len: usize) {
            values.clear();
            values.resize(len, T::default());
        }
        match self {
            Self::F32(values) => zeros(values, len),
            Self::I64(values) => zeros(values, len),
            Self::U8(values) => zeros(values, len),
        }
    }
}

impl From<Vec<f32>> for Column {
    fn from(values: Vec<f32>) -> Self {
        Self::F32(values)
    }
}

impl From<Vec<i64>> for Column {
    fn from(values: Vec<i64>) -> Self {
        Self::I64(values)
    }
}

impl From<Vec<u8>> for Column {
    fn from(values: Vec<u8>) -> Self {
        Self::U8(values)
    }
}
