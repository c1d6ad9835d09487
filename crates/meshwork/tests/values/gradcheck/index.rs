use super::check::twice;
use crate::common::numbers::Numbers;
use meshwork::Tensor;

fn input(seed: u64, shape: &[usize]) -> Tensor {
    Numbers::new(seed).f64s(-1.0, 1.0, shape)
}

#[test]
fn gather() {
    let index = Numbers::new(1).indices(4, &[2, 5]);
    twice("gather", &[input(2, &[3, 4])], |x| x[0].exp().gather(1, &index));
    let index = Numbers::new(3).indices(3, &[5, 4]);
    twice("gather of rows", &[input(4, &[3, 4])], |x| x[0].gather(0, &index).square());
}

#[test]
fn scatter_add() {
    let index = Numbers::new(5).indices(4, &[3, 6]);
    let inputs = [input(6, &[3, 4]), input(7, &[3, 6])];
    twice("scatter_add", &inputs, |x| x[0].scatter_add(1, &index, &x[1].exp()).square());
    let index = Numbers::new(8).indices(4, &[2, 3]);
    let inputs = [input(9, &[3, 4]), input(10, &[2, 3])];
    twice("scatter_add into a corner", &inputs, |x| x[0].scatter_add(1, &index, &x[1]).square());
}

#[test]
fn index_select() {
    let index = Numbers::new(11).indices(3, &[4]);
    for dim in 0..3 {
        twice("index_select", &[input(12, &[3, 3, 3])], |x| x[0].index_select(dim, &index).square());
    }
}

#[test]
fn embedding() {
    let indices = Numbers::new(13).indices(4, &[3, 5]);
    twice("embedding", &[input(14, &[4, 3])], |x| x[0].embedding(&indices).square());
}
