//! From a dtype at run time to a Rust type, and the few things that kernels do with numbers of any type.

use crate::narrow;
use crate::operand::Stored;
use half::{bf16, f16};
use meshwork_graph::Scalar;

/// A stored type that a scalar can be turned into.
pub trait Number: Stored {
    /// The nearest value, rounded once; integers wrap, bool is `!= 0`.
    fn from_scalar(scalar: Scalar) -> Self;
}

macro_rules! number {
    ($($type:ty: $scalar:ident => $value:expr;)*) => {
        $(
            impl Number for $type {
                #[inline(always)]
                fn from_scalar($scalar: Scalar) -> Self {
                    $value
                }
            }
        )*
    };
}

number! {
    f64: s => s.as_f64();
    f32: s => match s {
        Scalar::Float(x) => x as f32,
        Scalar::Int(x) => x as f32,
    };
    f16: s => narrow::f16_from_f32(narrow::round_to_odd(s.as_f64()));
    bf16: s => narrow::bf16_from_f32(narrow::round_to_odd(s.as_f64()));
    i64: s => s.as_i64();
    i32: s => s.as_i64() as i32;
    u8: s => s.as_i64() as u8;
    bool: s => s.as_f64() != 0.0;
}

/// `by_dtype!(dtype, T => expression)`: the expression with `T` as the Rust type of the dtype.
macro_rules! by_dtype {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype {
            meshwork_graph::DType::F64 => {
                type $name = f64;
                $body
            }
            meshwork_graph::DType::F32 => {
                type $name = f32;
                $body
            }
            meshwork_graph::DType::F16 => {
                type $name = half::f16;
                $body
            }
            meshwork_graph::DType::BF16 => {
                type $name = half::bf16;
                $body
            }
            meshwork_graph::DType::I64 => {
                type $name = i64;
                $body
            }
            meshwork_graph::DType::I32 => {
                type $name = i32;
                $body
            }
            meshwork_graph::DType::U8 => {
                type $name = u8;
                $body
            }
            meshwork_graph::DType::Bool => {
                type $name = bool;
                $body
            }
        }
    };
}

/// `by_size!(dtype, T => expression)`: the expression with `T` as an unsigned integer of the dtype's size, for
/// kernels that only move elements.
macro_rules! by_size {
    ($dtype:expr, $name:ident => $body:expr) => {
        match $dtype.size() {
            8 => {
                type $name = u64;
                $body
            }
            4 => {
                type $name = u32;
                $body
            }
            2 => {
                type $name = u16;
                $body
            }
            _ => {
                type $name = u8;
                $body
            }
        }
    };
}

/// Calls a function for the element type of a floating-point dtype; the text says what is defined for no other.
macro_rules! for_float {
    ($what:literal, $dtype:expr, $name:ident($($arg:expr),*)) => {
        match $dtype {
            meshwork_graph::DType::F32 => $name::<f32>($($arg),*),
            meshwork_graph::DType::F64 => $name::<f64>($($arg),*),
            meshwork_graph::DType::F16 => $name::<half::f16>($($arg),*),
            meshwork_graph::DType::BF16 => $name::<half::bf16>($($arg),*),
            other => panic!(concat!($what, " is not defined for {}"), other),
        }
    };
}

pub(crate) use {by_dtype, by_size, for_float};
