#![allow(missing_docs, unused)]
use crate::*;
use meshwork_graph::ops::*;
use meshwork_graph::{DType, Layout};
pub fn gather(op: &Gather, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
pub fn scatter_add(op: &ScatterAdd, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
pub fn select(op: &IndexSelect, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
pub fn add(op: &IndexAdd, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
