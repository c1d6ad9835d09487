//! CPU kernels: functions on raw elements that take an explicit [`Par`] (whose threads to use).
//!
//! Every kernel gives the same bits for any number of threads and any [`Level`]; see `meshwork_graph::canonical`.

pub mod conv;
pub mod dot;
pub mod gemm;
pub mod operand;
pub mod par;
pub mod pool;
pub mod simd;

pub use operand::{Operand, Output, Shared, Stored};
pub use par::Par;
pub use simd::Level;

/// What a kernel may use while it runs.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The threads.
    pub par: &'a Par,
    /// The instructions.
    pub level: Level,
}
