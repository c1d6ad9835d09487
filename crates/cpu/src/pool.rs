#![allow(missing_docs, unused)]
use crate::*;
use meshwork_graph::ops::*;
use meshwork_graph::{DType, Layout};
pub fn avg(op: &AvgPool, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
pub fn avg_input(op: &AvgPoolInput, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
pub fn max(op: &MaxPool, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
pub fn max_input(op: &MaxPoolInput, inputs: &[Operand], output: Output, context: Context) {
    todo!()
}
