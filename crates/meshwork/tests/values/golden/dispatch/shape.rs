//! Operations that move elements.

use crate::golden::case::Case;
use meshwork::Tensor;
use meshwork::tensor::{concat, stack};

pub fn call(case: &Case) -> Option<Vec<Tensor>> {
    let x = *case.all_inputs().first()?;
    let one = |tensor: Tensor| vec![tensor];
    Some(match case.op.as_str() {
        "concat" => one(concat(&case.all_inputs(), case.int("dim"))),
        "stack" => one(stack(&case.all_inputs(), case.int("dim"))),
        "split" => split(case, x),
        "slice" => {
            let (start, stop) = (case.maybe_int("start"), case.maybe_int("stop"));
            one(x.slice(case.int("dim"), start, stop, case.int("step") as usize))
        }
        "pad" => one(pad(case, x)),
        "flip" => one(x.flip(&case.ints("dims"))),
        "roll" => {
            let turns = case.ints("shifts").into_iter().zip(case.ints("dims"));
            one(turns.fold(x.clone(), |x, (shift, dim)| x.roll(shift, dim)))
        }
        "permute" => one(x.permute(&case.ints("dims"))),
        "reshape" => one(x.reshape(&case.ints("shape"))),
        "permute_reshape" => one(x.permute(&case.ints("dims")).reshape(&case.ints("shape"))),
        "expand" => one(x.expand(&case.ints("shape"))),
        "tril" => one(x.tril(case.int("diagonal"))),
        "triu" => one(x.triu(case.int("diagonal"))),
        _ => return None,
    })
}

fn split(case: &Case, x: &Tensor) -> Vec<Tensor> {
    let dim = case.int("dim");
    match case.maybe_int("split_sizes") {
        Some(size) => {
            let (whole, size) = (x.size(dim), size as usize);
            let sizes: Vec<usize> = (0..whole.div_ceil(size)).map(|i| size.min(whole - i * size)).collect();
            x.split(&sizes, dim)
        }
        None => x.split(&case.sizes("split_sizes"), dim),
    }
}

/// PyTorch's list begins with the last dimension.
fn pad(case: &Case, x: &Tensor) -> Tensor {
    let list = case.sizes("pad");
    let mut amounts = vec![(0, 0); x.rank()];
    for (amount, pair) in amounts.iter_mut().rev().zip(list.chunks(2)) {
        *amount = (pair[0], pair[1]);
    }
    x.pad(&amounts, case.float("value"))
}
