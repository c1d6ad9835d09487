#![allow(missing_docs, unused)]
use crate::*;
use meshwork_graph::ops::*;
use meshwork_graph::{DType, Layout};
pub fn run(op: &CumSum, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
