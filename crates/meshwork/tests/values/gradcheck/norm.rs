use super::check::twice;
use crate::common::numbers::Numbers;
use meshwork::Tensor;

fn input(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(-1.0, 2.0, shape)
}

#[test]
fn batch_norm() {
    let inputs = [input(1, &[3, 2, 2, 2]), input(2, &[2]), input(3, &[2])];
    twice("batch_norm in training", &inputs, |x| {
        let batch = x[0].batch_statistics();
        x[0].batch_norm(&batch.mean, &batch.var, Some(&x[1]), Some(&x[2]), 1e-3)
    });
    let (mean, var) = (input(4, &[2]), Numbers::new(5).f64s(0.5, 1.5, &[2]));
    twice("batch_norm in use", &inputs, |x| x[0].batch_norm(&mean, &var, Some(&x[1]), Some(&x[2]), 1e-3));
}

#[test]
fn layer_norm() {
    let inputs = [input(6, &[2, 3, 4]), input(7, &[4]), input(8, &[4])];
    twice("layer_norm", &inputs, |x| x[0].layer_norm(1, Some(&x[1]), Some(&x[2]), 1e-3));
    twice("layer_norm of two dims", &inputs[..1], |x| x[0].layer_norm(2, None, None, 1e-3));
}

#[test]
fn group_norm() {
    let inputs = [input(9, &[2, 4, 3]), input(10, &[4]), input(11, &[4])];
    twice("group_norm", &inputs, |x| x[0].group_norm(2, Some(&x[1]), Some(&x[2]), 1e-3));
}

#[test]
fn rms_norm() {
    let inputs = [input(12, &[2, 3, 4]), input(13, &[4])];
    twice("rms_norm", &inputs, |x| x[0].rms_norm(1, Some(&x[1]), 1e-3));
}
