//! Operations with indices.

use crate::golden::case::Case;
use meshwork::tensor::{arange, one_hot, where_};
use meshwork::{DType, Tensor};

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    Some(vec![match case.op.as_str() {
        "embedding" => embedding(case),
        "gather" => case.input("x").gather(case.int("dim"), case.input("index")),
        "scatter_add" => case.input("x").scatter_add(case.int("dim"), case.input("index"), case.input("source")),
        "index_select" => case.input("x").index_select(case.int("dim"), case.input("index")),
        "one_hot" => one_hot(case.input("index"), case.int("num_classes") as usize, DType::I64),
        _ => return None,
    }])
}

/// The row of the padding index is read, but gets no gradient.
fn embedding(case: &Case) -> Tensor {
    let (weight, indices) = (case.input("weight"), case.input("indices"));
    let Some(padding) = case.maybe_int("padding_idx") else { return weight.embedding(indices) };
    let rows = arange(weight.size(0), DType::I64).unsqueeze(1);
    where_(&rows.eq(padding as i64), &weight.detach(), weight).embedding(indices)
}
