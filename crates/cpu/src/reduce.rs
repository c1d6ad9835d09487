#![allow(missing_docs, unused)]
use crate::*;
use meshwork_graph::ops::*;
use meshwork_graph::{DType, Layout};
pub fn scratch(op: &Reduce, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    todo!()
}
pub fn run(op: &Reduce, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    todo!()
}
