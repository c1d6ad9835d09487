//! The pure part of Meshwork: dtypes, shapes, operations, the graph and its passes.
#![forbid(unsafe_code)]

pub mod philox;
