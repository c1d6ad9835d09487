//! Element types and scalars.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// 64-bit IEEE float.
    F64,
    /// 32-bit IEEE float, the default.
    F32,
    /// 16-bit IEEE float; arithmetic runs in f32 and is rounded after every operation.
    F16,
    /// bfloat16; arithmetic runs in f32 and is rounded after every operation.
    BF16,
    /// Signed 64-bit integer, the type of indices and labels.
    I64,
    /// Signed 32-bit integer.
    I32,
    /// Unsigned byte.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl DType {
    /// All element types.
    pub const ALL: [DType; 8] =
        [DType::F64, DType::F32, DType::F16, DType::BF16, DType::I64, DType::I32, DType::U8, DType::Bool];

    /// Bytes of one element.
    pub fn size(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::U8 | DType::Bool => 1,
        }
    }

    /// Whether the type is a floating-point one, and so has gradients.
    pub fn is_float(self) -> bool {
        matches!(self, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
    }

    /// The type that a mixed expression has (the wider of the two kinds, as in NumPy and PyTorch:
    /// floats win over integers, integers over bool).
    pub fn promote(self, other: DType) -> DType {
        use DType::*;
        if self == other {
            return self;
        }
        let rank = |t: DType| match t {
            Bool => 0,
            U8 => 1,
            I32 => 2,
            I64 => 3,
            F16 | BF16 => 4,
            F32 => 5,
            F64 => 6,
        };
        match (self, other) {
            (F16, BF16) | (BF16, F16) => F32,
            _ if rank(self) > rank(other) => self,
            _ => other,
        }
    }

    /// The short name: `f32`, `i64`, `bool`, …
    pub fn name(self) -> &'static str {
        match self {
            DType::F64 => "f64",
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I64 => "i64",
            DType::I32 => "i32",
            DType::U8 => "u8",
            DType::Bool => "bool",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A number outside of tensors: a constant of the graph, or the value of a scalar input.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// For every floating-point dtype.
    Float(f64),
    /// For every integer dtype and bool.
    Int(i64),
}

impl Scalar {
    /// The value as f64.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Float(v) => v,
            Scalar::Int(v) => v as f64,
        }
    }

    /// The value as i64 (floats truncate toward zero).
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Float(v) => v as i64,
            Scalar::Int(v) => v,
        }
    }
}

/// Scalars are equal when their bits are, so that they can be part of a graph's structure.
impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Scalar::Float(a), Scalar::Float(b)) => a.to_bits() == b.to_bits(),
            (Scalar::Int(a), Scalar::Int(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for Scalar {}

impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        match self {
            Scalar::Float(v) => (0u8, v.to_bits()).hash(state),
            Scalar::Int(v) => (1u8, v).hash(state),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Float(v) => write!(f, "{v}"),
            Scalar::Int(v) => write!(f, "{v}"),
        }
    }
}
