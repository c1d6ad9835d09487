use super::array::{Array, assert_equal};
use super::views::viewed;
use meshwork::tensor::where_;
use meshwork::{DType, Tensor};
use proptest::prelude::*;

/// An array that broadcasts with `shape`: some leading dims are gone, some sizes are 1.
fn partner(shape: &[usize], gone: usize, ones: u8, seed: u64) -> Array {
    let kept = &shape[gone.min(shape.len())..];
    let sizes: Vec<usize> = kept.iter().enumerate().map(|(d, &n)| if ones >> d & 1 == 1 { 1 } else { n }).collect();
    Array::numbered(&sizes, seed)
}

proptest! {
    #[test]
    fn two_operands_broadcast((x, a) in viewed(), gone in 0usize..3, ones in any::<u8>(), seed in any::<u64>()) {
        let b = partner(&a.shape, gone, ones, seed);
        let y = b.tensor();
        type Binary = (fn(&Tensor, &Tensor) -> Tensor, fn(f64, f64) -> f64);
        let operations: [Binary; 8] = [
            (|x, y| x + y, |a, b| a + b),
            (|x, y| x - y, |a, b| a - b),
            (|x, y| y - x, |a, b| b - a),
            (|x, y| x * y, |a, b| a * b),
            (|x, y| x / y, |a, b| a / b),
            (|x, y| x.maximum(y), f64::max),
            (|x, y| x.minimum(y), f64::min),
            (|x, y| x.le(y).to_dtype(DType::F64), |a, b| f64::from(a <= b)),
        ];
        for (f, g) in operations {
            assert_equal(&f(&x, &y), &Array::of(&a.shape, |i| g(a.at(i), b.broadcast_at(i))));
        }
        let picked = where_(&x.gt(&y), &x, &y);
        assert_equal(&picked, &Array::of(&a.shape, |i| a.at(i).max(b.broadcast_at(i))));
    }

    #[test]
    fn fused_chains((x, a) in viewed()) {
        let y = ((&x * 2.0).exp() - x.abs().sqrt() * 0.5).tanh() + x.relu().square();
        let expected = Array::of(&a.shape, |i| {
            let v = a.at(i);
            ((v * 2.0).exp() - v.abs().sqrt() * 0.5).tanh() + v.max(0.0) * v.max(0.0)
        });
        assert_equal(&y, &expected);
    }

    #[test]
    fn casts_of_views((x, a) in viewed()) {
        assert_equal(&x.to_dtype(DType::F32).to_dtype(DType::F64), &a);
        assert_equal(&(&x * 4.0).to_dtype(DType::I32).to_dtype(DType::F64), &Array::of(&a.shape, |i| a.at(i) * 4.0));
        assert_equal(&x.to_dtype(DType::Bool).to_dtype(DType::F64), &Array::of(&a.shape, |i| f64::from(a.at(i) != 0.0)));
    }
}
