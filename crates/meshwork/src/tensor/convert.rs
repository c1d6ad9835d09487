//! Rust element types.

use meshwork_cpu::Stored;
use meshwork_graph::DType;

/// A Rust type that tensors can be made of and read as.
pub trait Element: Stored + Default + std::fmt::Display {}

impl Element for f64 {}
impl Element for f32 {}
impl Element for half::f16 {}
impl Element for half::bf16 {}
impl Element for i64 {}
impl Element for i32 {}
impl Element for u8 {}
impl Element for bool {}

/// The bytes of a slice in native order.
pub(crate) fn bytes_of<T: Stored>(values: &[T]) -> &[u8] {
    // SAFETY: stored types are plain data without padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// A number in the bytes of a dtype, from the start of the array.
pub(crate) fn scalar_bytes(value: f64, dtype: DType) -> [u8; 8] {
    let mut bytes = [0; 8];
    let mut put = |b: &[u8]| bytes[..b.len()].copy_from_slice(b);
    match dtype {
        DType::F64 => put(&value.to_ne_bytes()),
        DType::F32 => put(&(value as f32).to_ne_bytes()),
        DType::F16 => put(&half::f16::from_f64(value).to_ne_bytes()),
        DType::BF16 => put(&half::bf16::from_f64(value).to_ne_bytes()),
        DType::I64 => put(&(value as i64).to_ne_bytes()),
        DType::I32 => put(&(value as i32).to_ne_bytes()),
        DType::U8 => put(&[value as u8]),
        DType::Bool => put(&[u8::from(value != 0.0)]),
    }
    bytes
}
