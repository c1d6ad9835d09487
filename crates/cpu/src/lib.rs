//! CPU kernels: functions on raw elements that take an explicit [`Par`] (whose threads to use).
//!
//! Every kernel gives the same bits for any number of threads and any [`Level`]; see `meshwork_graph::canonical`.

pub mod arg;
pub mod attention;
pub mod chain;
pub mod concat;
pub mod conv;
pub mod copy;
pub mod dot;
pub mod element;
pub mod epilogue;
pub mod gemm;
pub mod index;
pub mod kernel;
pub mod leaf;
pub mod level;
pub mod limits;
pub mod math;
pub mod narrow;
pub mod number;
pub mod operand;
pub mod pad;
pub mod par;
pub mod pool;
pub mod random;
pub mod reduce;
pub mod scan;
pub mod stream;
#[cfg(test)]
mod testing;
pub mod walk;

pub use meshwork_simd::Level;
pub use operand::{Operand, Output, Shared, Stored};
pub use par::Par;

/// What a kernel may use while it runs.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The threads.
    pub par: &'a Par,
    /// The instructions.
    pub level: Level,
}
