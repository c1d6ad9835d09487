//! Normalisations.

use crate::golden::case::Case;
use meshwork::Tensor;

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    let (weight, bias) = (case.maybe_input("weight"), case.maybe_input("bias"));
    let dims = || case.sizes("normalized_shape").len();
    let x = case.maybe_input("x")?;
    Some(match case.op.as_str() {
        "batch_norm" => batch_norm(case, x),
        "layer_norm" => vec![x.layer_norm(dims(), weight, bias, case.float("eps"))],
        "group_norm" => vec![x.group_norm(case.int("num_groups") as usize, weight, bias, case.float("eps"))],
        "rms_norm" => vec![x.rms_norm(dims(), weight, case.float("eps"))],
        _ => return None,
    })
}

/// The output, and the running statistics after it.
fn batch_norm(case: &Case, x: &Tensor) -> Vec<Tensor> {
    let (mean, var) = (case.input("running_mean"), case.input("running_var"));
    let (weight, bias, eps) = (case.maybe_input("weight"), case.maybe_input("bias"), case.float("eps"));
    if !case.flag("training") {
        return vec![x.batch_norm(mean, var, weight, bias, eps), mean.clone(), var.clone()];
    }
    let batch = x.batch_statistics();
    let output = x.batch_norm(&batch.mean, &batch.var, weight, bias, eps);
    let (mean, var) = batch.running(mean, var, case.float("momentum"));
    vec![output, mean, var]
}
