//! Random shapes, strides and arguments against naive loops in f64.

mod array;
mod elementwise;
mod fusing;
mod matmul;
mod reduce;
mod shape;
mod views;
mod windows;
