//! The pure part of Meshwork: dtypes, shapes, operations, the graph and its passes. No threads, no I/O.
#![forbid(unsafe_code)]

pub mod batch;
pub mod canonical;
pub mod dtype;
pub mod graph;
mod growth;
pub mod mesh;
pub mod op;
pub mod ops;
pub mod passes;
pub mod philox;
pub mod plan;
mod print;
pub mod program;
pub mod region;
pub mod rule;
pub mod shape;

pub use dtype::{DType, Scalar};
pub use graph::{Graph, Node, NodeId};
pub use op::{Backward, Op, OpError, Operation};
pub use print::human_bytes;
pub use rule::{Factor, Kind, SplitRule};
pub use shape::{Dims, Layout, Shape, Type};
