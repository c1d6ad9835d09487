#![allow(missing_docs, unused)]
use crate::*;
use meshwork_graph::ops::*;
pub fn constant(op: &Const, output: Output) {
    todo!()
}
pub fn iota(op: &Iota, mut output: Output, context: Context) {
    for (i, v) in output.slice::<i64>().iter_mut().enumerate() {
        *v = i as i64;
    }
}
