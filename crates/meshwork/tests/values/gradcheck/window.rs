//! Convolutions and pooling.

use super::check::twice;
use crate::common::numbers::Numbers;
use meshwork::Tensor;
use meshwork::tensor::{ConvOptions, ConvTransposeOptions, PoolOptions};

fn input(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(-1.0, 1.0, shape)
}

#[test]
fn convolutions() {
    let plain = ConvOptions::default();
    let inputs = [input(1, &[2, 2, 5]), input(2, &[3, 2, 3]), input(3, &[3])];
    twice("conv1d", &inputs, |x| x[0].conv1d(&x[1], Some(&x[2]), &plain));
    let options = ConvOptions { stride: [2, 1].into(), padding: [1, 0].into(), dilation: [1, 2].into(), groups: 2 };
    let inputs = [input(4, &[2, 4, 4, 5]), input(5, &[2, 2, 2, 2])];
    twice("conv2d", &inputs, |x| x[0].conv2d(&x[1], None, &options));
    let options = ConvOptions { padding: 1.into(), stride: 2.into(), ..plain };
    let inputs = [input(6, &[1, 2, 3, 2, 4]), input(7, &[2, 2, 2, 1, 3])];
    twice("conv3d", &inputs, |x| x[0].conv3d(&x[1], None, &options));
}

#[test]
fn transposed_convolutions() {
    let plain = ConvTransposeOptions::default();
    let inputs = [input(1, &[2, 2, 4]), input(2, &[2, 3, 3]), input(3, &[3])];
    twice("conv_transpose1d", &inputs, |x| x[0].conv_transpose1d(&x[1], Some(&x[2]), &plain));
    let options = ConvTransposeOptions {
        stride: [2, 3].into(),
        padding: [1, 0].into(),
        output_padding: [1, 2].into(),
        dilation: [1, 2].into(),
        groups: 2,
    };
    let inputs = [input(4, &[1, 4, 3, 2]), input(5, &[4, 1, 2, 2])];
    twice("conv_transpose2d", &inputs, |x| x[0].conv_transpose2d(&x[1], None, &options));
    let options = ConvTransposeOptions { stride: 2.into(), ..plain };
    let inputs = [input(6, &[1, 2, 2, 1, 2]), input(7, &[2, 2, 1, 2, 2])];
    twice("conv_transpose3d", &inputs, |x| x[0].conv_transpose3d(&x[1], None, &options));
}

#[test]
fn average_pools() {
    let (line, plane, space) = (input(1, &[2, 2, 7]), input(2, &[2, 2, 5, 4]), input(3, &[1, 2, 3, 4, 3]));
    let padded = |include| PoolOptions {
        padding: 1.into(),
        stride: Some(2.into()),
        count_include_pad: include,
        ..PoolOptions::from(3)
    };
    twice("avg_pool1d", std::slice::from_ref(&line), |x| x[0].exp().avg_pool1d(2));
    for include in [true, false] {
        twice("avg_pool2d", std::slice::from_ref(&plane), |x| x[0].exp().avg_pool2d(padded(include)));
        twice("avg_pool3d", std::slice::from_ref(&space), |x| x[0].exp().avg_pool3d(padded(include)));
    }
    twice("adaptive_avg_pool1d", &[line], |x| x[0].exp().adaptive_avg_pool1d(3));
    twice("adaptive_avg_pool2d", &[plane], |x| x[0].exp().adaptive_avg_pool2d([3, 7]));
    twice("adaptive_avg_pool3d", &[space], |x| x[0].exp().adaptive_avg_pool3d([2, 3, 1]));
}

#[test]
fn maximum_pools() {
    let distinct = |shape: &[usize]| [Numbers::new(9).distinct(shape)];
    let padded =
        || PoolOptions { padding: 1.into(), stride: Some(1.into()), dilation: 2.into(), ..PoolOptions::from(2) };
    twice("max_pool1d", &distinct(&[2, 2, 7]), |x| x[0].square().max_pool1d(padded()));
    twice("max_pool2d", &distinct(&[2, 2, 5, 4]), |x| x[0].sin().max_pool2d([2, 3]));
    twice("max_pool3d", &distinct(&[1, 2, 3, 4, 3]), |x| x[0].max_pool3d(2).square());
    twice("adaptive_max_pool1d", &distinct(&[2, 2, 7]), |x| x[0].adaptive_max_pool1d(3).square());
    twice("adaptive_max_pool2d", &distinct(&[2, 1, 5, 4]), |x| x[0].adaptive_max_pool2d([3, 3]).square());
    twice("adaptive_max_pool3d", &distinct(&[1, 2, 3, 4, 3]), |x| x[0].adaptive_max_pool3d([2, 3, 1]).square());
}
