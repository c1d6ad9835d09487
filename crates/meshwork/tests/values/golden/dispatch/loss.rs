//! Softmax and the losses.

use crate::golden::case::Case;
use meshwork::Tensor;
use meshwork::tensor::{CrossEntropy, Reduction, bce_with_logits, mse_loss, nll_loss};

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    let x = case.maybe_input("x")?;
    let weight = case.maybe_input("weight");
    let target = || case.input("target");
    Some(vec![match case.op.as_str() {
        "softmax" => x.softmax(case.int("dim")),
        "log_softmax" => x.log_softmax(case.int("dim")),
        "cross_entropy" => {
            let loss = CrossEntropy {
                weight,
                ignore_index: case.int("ignore_index") as i64,
                label_smoothing: case.float("label_smoothing"),
                reduction: reduction(case),
            };
            loss.loss(x, target())
        }
        "nll_loss" => nll_loss(x, target(), weight, case.int("ignore_index") as i64, reduction(case)),
        "mse_loss" => mse_loss(x, target(), reduction(case)),
        "bce_with_logits" => bce_with_logits(x, target(), weight, case.maybe_input("pos_weight"), reduction(case)),
        _ => return None,
    }])
}

fn reduction(case: &Case) -> Reduction {
    match case.text("reduction") {
        "mean" => Reduction::Mean,
        "sum" => Reduction::Sum,
        "none" => Reduction::None,
        other => panic!("reduction {other}"),
    }
}
