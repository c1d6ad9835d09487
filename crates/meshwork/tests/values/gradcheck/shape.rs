use super::check::twice;
use crate::common::numbers::Numbers;
use meshwork::Tensor;
use meshwork::tensor::{concat, stack};

fn input(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(-1.0, 1.0, shape)
}

#[test]
fn views() {
    type View = fn(&Tensor) -> Tensor;
    let views: [(&str, View); 19] = [
        ("reshape", |x| x.reshape(&[6, -1])),
        ("permute", |x| x.permute(&[2, 0, -2])),
        ("permute and reshape", |x| x.permute(&[2, 0, 1]).reshape(&[8, 3])),
        ("transpose", |x| x.transpose(0, 2)),
        ("flatten", |x| x.flatten(1)),
        ("unsqueeze and squeeze", |x| x.unsqueeze(-1).unsqueeze(0).squeeze(-1)),
        ("expand", |x| x.unsqueeze(1).expand(&[2, 5, -1, -1])),
        ("narrow", |x| x.narrow(2, 1, 2)),
        ("slice", |x| x.slice(2, Some(-4), None, 2)),
        ("slice with leftover", |x| x.slice(2, Some(0), Some(4), 3)),
        ("empty slice", |x| x.slice(2, Some(2), Some(2), 1)),
        ("select", |x| x.select(-1, -2)),
        ("flip", |x| x.flip(&[0, -1])),
        ("roll", |x| x.roll(5, 1)),
        ("tril", |x| x.tril(1)),
        ("triu", |x| x.triu(-1)),
        ("pad", |x| x.pad(&[(1, 0), (0, 2), (3, 1)], 0.5)),
        ("flip and slice", |x| x.flip(&[2]).slice(2, Some(1), None, 2)),
        ("chunk", |x| x.chunk(3, 2).remove(1)),
    ];
    for (name, view) in views {
        twice(name, &[input(1, &[2, 3, 4])], |x| view(&x[0]).square());
        twice(&format!("{name} of a permutation"), &[input(2, &[4, 2, 3])], |x| view(&x[0].permute(&[1, 2, 0])).exp());
    }
    twice("t", &[input(3, &[2, 3])], |x| x[0].t().square());
}

#[test]
fn joins() {
    let inputs = [input(4, &[2, 3]), input(5, &[2, 0]), input(6, &[2, 2])];
    twice("concat", &inputs, |x| concat(&[&x[0], &x[1], &x[2], &x[0]], 1).square());
    let inputs = [input(7, &[2, 3]), input(8, &[2, 3])];
    for dim in [0, 1, 2, -1] {
        twice("stack", &inputs, |x| stack(&[&x[0], &x[1]], dim).square());
    }
}

#[test]
fn splits() {
    twice("split", &[input(9, &[5, 2])], |x| {
        let parts = x[0].split(&[2, 0, 3], 0);
        parts[0].square().sum(..) + parts[2].exp().sum(..)
    });
}

/// A value that is used twice gets both gradients.
#[test]
fn shared_values() {
    twice("a shared value", &[input(10, &[3, 3])], |x| {
        let y = x[0].sin();
        &y * x[0].t() + y.sum_keepdim(0).matmul(&y) / (&y + 3.0)
    });
}
