use super::array::{Array, assert_equal};
use meshwork::Tensor;
use proptest::prelude::*;

/// A tensor with these elements whose last two dims lie transposed in memory, where asked for.
fn laid_out(a: &Array, transposed: bool) -> Tensor {
    if !transposed || a.shape.len() < 2 {
        return a.tensor();
    }
    let (m, n) = (a.shape.len() - 2, a.shape.len() - 1);
    let mut shape = a.shape.clone();
    shape.swap(m, n);
    let turned = Array::of(&shape, |index| {
        let mut from = index.to_vec();
        from.swap(m, n);
        a.at(&from)
    });
    turned.tensor().transpose(-2, -1)
}

/// Batches, m, k, n and which batch dims are 1 on either side.
fn product(a: &Array, b: &Array) -> Array {
    let matrix = |x: &Array| x.shape[x.shape.len() - 2..].to_vec();
    let ((m, k), n) = ((matrix(a)[0], matrix(a)[1]), matrix(b)[1]);
    let (left, right) = (&a.shape[..a.shape.len() - 2], &b.shape[..b.shape.len() - 2]);
    let rank = left.len().max(right.len());
    let size = |s: &[usize], d: usize| if d + s.len() < rank { 1 } else { s[d + s.len() - rank] };
    let mut shape: Vec<usize> =
        (0..rank).map(|d| if size(left, d) == 1 { size(right, d) } else { size(left, d) }).collect();
    shape.extend([m, n]);
    let read = |x: &Array, batch: &[usize], i: usize, j: usize| x.broadcast_at(&[batch, &[i, j]].concat());
    Array::of(&shape, |index| {
        let (batch, at) = index.split_at(rank);
        (0..k).map(|l| read(a, batch, at[0], l) * read(b, batch, l, at[1])).sum()
    })
}

proptest! {
    #[test]
    fn batches_broadcast(
        batch in prop::collection::vec(0usize..4, 0..3),
        (m, k, n) in (0usize..7, 0usize..20, 0usize..7),
        (left_gone, right_gone) in (0usize..3, 0usize..3),
        (left_ones, right_ones) in (any::<u8>(), any::<u8>()),
        (turn_left, turn_right) in any::<(bool, bool)>(),
        seed in any::<u64>(),
    ) {
        let side = |gone: usize, ones: u8, rows: usize, columns: usize| -> Vec<usize> {
            let kept = batch.iter().enumerate().skip(gone);
            kept.map(|(d, &n)| if ones >> d & 1 == 1 { 1 } else { n }).chain([rows, columns]).collect()
        };
        let a = Array::numbered(&side(left_gone, left_ones, m, k), seed);
        let b = Array::numbered(&side(right_gone, right_ones, k, n), seed ^ 1);
        assert_equal(&laid_out(&a, turn_left).matmul(&laid_out(&b, turn_right)), &product(&a, &b));
    }

    #[test]
    fn matrices(m in 1usize..40, k in 1usize..300, n in 1usize..40, turns in any::<(bool, bool)>(), seed in any::<u64>()) {
        let (a, b) = (Array::numbered(&[m, k], seed), Array::numbered(&[k, n], seed ^ 1));
        assert_equal(&laid_out(&a, turns.0).matmul(&laid_out(&b, turns.1)), &product(&a, &b));
    }

    #[test]
    fn vectors(rows in 0usize..5, k in 0usize..30, seed in any::<u64>()) {
        let (v, w) = (Array::numbered(&[k], seed), Array::numbered(&[k], seed ^ 1));
        let dot = Array::of(&[], |_| (0..k).map(|i| v.data[i] * w.data[i]).sum());
        assert_equal(&v.tensor().matmul(&w.tensor()), &dot);
        let a = Array::numbered(&[2, rows, k], seed ^ 2);
        let image = Array::of(&[2, rows], |i| (0..k).map(|l| a.at(&[i[0], i[1], l]) * v.data[l]).sum());
        assert_equal(&a.tensor().matmul(&v.tensor()), &image);
        assert_equal(&v.tensor().matmul(&a.tensor().transpose(-2, -1)), &image);
    }
}
