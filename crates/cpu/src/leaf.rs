#![allow(missing_docs, unused)]
use crate::*;
use meshwork_graph::ops::*;
use meshwork_graph::{DType, Layout};
pub fn constant(op: &Const, output: Output) {
    todo!()
}
pub fn iota(op: &Iota, output: Output, context: Context) {
    todo!()
}
