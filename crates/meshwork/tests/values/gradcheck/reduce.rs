use super::check::{once, twice};
use crate::common::numbers::Numbers;
use meshwork::Tensor;

const DIMS: [&[isize]; 6] = [&[0], &[1], &[-1], &[0, 2], &[1, 2], &[0, 1, 2]];

fn input() -> [Tensor; 1] {
    [Numbers::new(1).distinct(&[2, 3, 4])]
}

#[test]
fn sums_and_means() {
    for dims in DIMS {
        twice("sum", &input(), |x| x[0].square().sum(dims));
        twice("sum_keepdim", &input(), |x| x[0].exp().sum_keepdim(dims));
        twice("mean", &input(), |x| x[0].square().mean(dims));
        twice("mean_keepdim", &input(), |x| x[0].exp().mean_keepdim(dims));
    }
    twice("sum of all", &input(), |x| x[0].sin().sum(..));
    once("sum of nothing", &[Numbers::new(2).f64s(0.0, 1.0, &[3, 0])], |x| x[0].sum(1));
}

#[test]
fn variances() {
    for dims in DIMS {
        twice("var", &input(), |x| x[0].var(dims, 1));
        twice("biased var", &input(), |x| x[0].var(dims, 0));
    }
}

#[test]
fn extremes() {
    for dims in DIMS {
        twice("amax", &input(), |x| x[0].amax(dims));
        twice("amin", &input(), |x| x[0].amin(dims));
        twice("amax_keepdim", &input(), |x| x[0].amax_keepdim(dims));
    }
}

#[test]
fn products() {
    let nonzero = [Numbers::new(3).f64s(0.4, 1.6, &[2, 3, 4])];
    for dims in DIMS {
        twice("prod", &nonzero, |x| x[0].prod(dims));
    }
    let zeros = [Tensor::from_slice(&[2.0f64, 0.0, 3.0, 0.0, 0.0, 4.0, 1.5, 2.0, -1.0], &[3, 3])];
    once("prod with zeros", &zeros, |x| x[0].prod(1));
}

#[test]
fn running_sums() {
    for dim in 0..3 {
        twice("cumsum", &input(), |x| x[0].sin().cumsum(dim));
    }
}
