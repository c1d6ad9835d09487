use super::check::twice;
use crate::common::numbers::Numbers;
use meshwork::Tensor;

fn input(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(-1.0, 1.0, shape)
}

#[test]
fn matmul() {
    let shapes: [(&[usize], &[usize]); 9] = [
        (&[3], &[3]),
        (&[2, 3], &[3]),
        (&[3], &[3, 2]),
        (&[2, 3], &[3, 4]),
        (&[2, 3, 2], &[2, 2, 3]),
        (&[2, 1, 2, 3], &[3, 3, 2]),
        (&[2, 3, 2], &[2]),
        (&[3], &[2, 3, 2]),
        (&[2, 2, 3], &[3, 2]),
    ];
    for (left, right) in shapes {
        let inputs = [input(1, left), input(2, right)];
        twice(&format!("matmul of {left:?} and {right:?}"), &inputs, |x| x[0].matmul(&x[1]));
    }
    twice("matmul of transposes", &[input(3, &[3, 2]), input(4, &[4, 3])], |x| x[0].t().matmul(&x[1].t()));
    twice("matmul with itself", &[input(5, &[3, 3])], |x| x[0].matmul(&x[0]));
}

#[test]
fn linear() {
    let inputs = [input(6, &[2, 3, 4]), input(7, &[5, 4]), input(8, &[5])];
    twice("linear", &inputs, |x| x[0].linear(&x[1], Some(&x[2])));
    twice("linear without bias", &inputs[..2], |x| x[0].linear(&x[1], None));
}
