//! Reductions and running sums.

use crate::golden::case::Case;
use meshwork::Tensor;

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    let x = case.maybe_input("x")?;
    let result = match case.op.as_str() {
        "argmax" | "argmin" => position(case, x),
        "cumsum" => x.cumsum(case.int("dim")),
        "sum" | "mean" | "prod" | "amax" | "amin" | "var" => over_dims(case, x),
        _ => return None,
    };
    Some(vec![result])
}

fn over_dims(case: &Case, x: &Tensor) -> Tensor {
    let all: Vec<isize> = (0..x.rank() as isize).collect();
    let dims = case.maybe_ints("dims").unwrap_or(all);
    let (dims, keepdim) = (&dims[..], case.flag("keepdim"));
    let kept = |reduced: Tensor| if keepdim { with_ones(&reduced, x, dims) } else { reduced };
    match case.op.as_str() {
        "sum" if keepdim => x.sum_keepdim(dims),
        "sum" => x.sum(dims),
        "mean" if keepdim => x.mean_keepdim(dims),
        "mean" => x.mean(dims),
        "amax" if keepdim => x.amax_keepdim(dims),
        "amax" => x.amax(dims),
        "amin" => kept(x.amin(dims)),
        "prod" => kept(x.prod(dims)),
        _ => kept(x.var(dims, usize::from(case.flag("unbiased")))),
    }
}

/// Puts reduced dimensions back with size 1.
fn with_ones(reduced: &Tensor, x: &Tensor, dims: &[isize]) -> Tensor {
    let rank = x.rank() as isize;
    let is_reduced = |d: isize| dims.iter().any(|&r| r.rem_euclid(rank) == d);
    let shape: Vec<isize> = (0..rank).map(|d| if is_reduced(d) { 1 } else { x.size(d) as isize }).collect();
    reduced.reshape(&shape)
}

fn position(case: &Case, x: &Tensor) -> Tensor {
    let search = |x: &Tensor, dim| if case.op == "argmax" { x.argmax(dim) } else { x.argmin(dim) };
    let Some(dim) = case.maybe_int("dim") else { return search(&x.flatten(0), 0) };
    let found = search(x, dim);
    if case.flag("keepdim") { with_ones(&found, x, &[dim]) } else { found }
}
