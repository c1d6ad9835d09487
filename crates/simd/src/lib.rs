//! What depends on the instruction set of a processor and on nothing else: the [`Level`]s that kernels are compiled for, cache lines
//! to ask for, and the [`microkernel`]s of matrix products.
//!
//! It is a crate of its own because compilers take longer for the microkernels than for all other kernels, and they seldom change.

pub mod level;
pub mod line;
pub mod microkernel;

pub use level::Level;
