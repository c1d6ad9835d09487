#![allow(missing_docs, unused)]
use crate::*;
use meshwork_graph::ops::*;
use meshwork_graph::{DType, Layout};
pub fn scratch_forward(op: &Conv, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    todo!()
}
pub fn scratch_input(op: &ConvInput, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    todo!()
}
pub fn scratch_weight(op: &ConvWeight, dtype: DType, inputs: &[&Layout], threads: usize) -> usize {
    todo!()
}
pub fn forward(op: &Conv, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    todo!()
}
pub fn input(op: &ConvInput, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    todo!()
}
pub fn weight(op: &ConvWeight, inputs: &[Operand], output: Output, scratch: &mut [u8], context: Context) {
    todo!()
}
