use super::array::{Array, assert_equal, indices};
use super::views::viewed;
use proptest::prelude::*;

/// The reduction of the elements over the dims in `mask`, from `start`.
fn reduced(a: &Array, mask: u8, start: f64, f: impl Fn(f64, f64) -> f64) -> Array {
    let rank = a.shape.len();
    let is_reduced = |d: usize| mask >> d & 1 == 1;
    let shape: Vec<usize> = (0..rank).filter(|&d| !is_reduced(d)).map(|d| a.shape[d]).collect();
    let mut result = Array::of(&shape, |_| start);
    for index in indices(&a.shape) {
        let kept: Vec<usize> = (0..rank).filter(|&d| !is_reduced(d)).map(|d| index[d]).collect();
        let position = kept.iter().zip(&shape).fold(0, |p, (&i, &n)| p * n + i);
        result.data[position] = f(result.data[position], a.at(&index));
    }
    result
}

proptest! {
    #[test]
    fn over_random_dims((x, a) in viewed(), mask in 0u8..128) {
        let dims: Vec<isize> = (0..a.shape.len()).filter(|d| mask >> d & 1 == 1).map(|d| d as isize).collect();
        let dims = &dims[..];
        let count: usize = dims.iter().map(|&d| a.shape[d as usize]).product();
        assert_equal(&x.sum(dims), &reduced(&a, mask, 0.0, |s, v| s + v));
        assert_equal(&x.prod(dims), &reduced(&a, mask, 1.0, |s, v| s * v));
        if count > 0 {
            assert_equal(&x.amax(dims), &reduced(&a, mask, f64::NEG_INFINITY, f64::max));
            assert_equal(&x.amin(dims), &reduced(&a, mask, f64::INFINITY, f64::min));
            let mut mean = reduced(&a, mask, 0.0, |s, v| s + v);
            mean.data.iter_mut().for_each(|v| *v /= count as f64);
            assert_equal(&x.mean(dims), &mean);
        }
        let kept = x.sum_keepdim(dims);
        prop_assert_eq!(kept.rank(), a.shape.len());
        prop_assert_eq!(kept.to_f64(), x.sum(dims).to_f64());
    }

    #[test]
    fn along_one_dim((x, a) in viewed(), dim in 0usize..4) {
        prop_assume!(!a.shape.is_empty());
        let dim = dim % a.shape.len();
        let running = Array::of(&a.shape, |index| {
            let mut from = index.to_vec();
            (0..=index[dim]).map(|i| { from[dim] = i; a.at(&from) }).sum()
        });
        assert_equal(&x.cumsum(dim as isize), &running);
        if a.shape[dim] > 0 {
            let mut shape = a.shape.clone();
            let size = shape.remove(dim);
            let best = |sign: f64| Array::of(&shape, |index| {
                let value = |i: usize| sign * a.at(&[&index[..dim], &[i], &index[dim..]].concat());
                (1..size).fold(0, |best, i| if value(i) > value(best) { i } else { best }) as f64
            });
            assert_equal(&x.argmax(dim as isize), &best(1.0));
            assert_equal(&x.argmin(dim as isize), &best(-1.0));
        }
    }
}

#[test]
fn positions_over_several_dims_count_in_row_major_order() {
    let x = meshwork::Tensor::from_slice(&[3i64, 9, 1, 4, 9, 2, 0, 5, 7, 8, 6, 5], &[2, 3, 2]);
    assert_eq!(x.argmax(..).to_vec::<i64>(), [1]);
    assert_eq!(x.argmin(..).to_vec::<i64>(), [6]);
    // Over dims 0 and 2 of each of the three rows: [3, 9, 0, 5], [1, 4, 7, 8], [9, 2, 6, 5].
    assert_eq!(x.argmax([0, -1]).to_vec::<i64>(), [1, 3, 0]);
    assert_eq!(x.argmin([0, 2]).to_vec::<i64>(), [2, 0, 1]);
}
