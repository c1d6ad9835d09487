//! Kernels have the bits of the canonical order. One program, for what links takes longest.

mod attention;
mod batch;
mod chain;
mod common;
mod conv;
mod dot;
mod epilogue;
mod pool;
