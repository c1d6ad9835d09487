//! A dense array with the plainest possible operations: what the library is compared with.

use meshwork::Tensor;

#[derive(Clone, Debug)]
pub struct Array {
    pub shape: Vec<usize>,
    pub data: Vec<f64>,
}

/// All multi-indices of a shape in row-major order.
pub fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &size in shape {
        all = all.into_iter().flat_map(|index| (0..size).map(move |i| [&index[..], &[i]].concat())).collect();
    }
    all
}

impl Array {
    /// The array whose elements `f` gives.
    pub fn of(shape: &[usize], f: impl FnMut(&[usize]) -> f64) -> Array {
        let mut f = f;
        Array { shape: shape.to_vec(), data: indices(shape).iter().map(|index| f(index)).collect() }
    }

    /// Small whole numbers, different in neighbouring places.
    pub fn numbered(shape: &[usize], seed: u64) -> Array {
        let mut state = seed;
        Array::of(shape, |_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 40) % 17) as f64 / 4.0 - 2.0
        })
    }

    pub fn at(&self, index: &[usize]) -> f64 {
        assert_eq!(index.len(), self.shape.len());
        let position = index.iter().zip(&self.shape).fold(0, |p, (&i, &n)| {
            assert!(i < n, "{index:?} of {:?}", self.shape);
            p * n + i
        });
        self.data[position]
    }

    /// The element at an index of a shape that this one broadcasts to.
    pub fn broadcast_at(&self, index: &[usize]) -> f64 {
        let missing = index.len() - self.shape.len();
        let own: Vec<usize> =
            index[missing..].iter().zip(&self.shape).map(|(&i, &n)| if n == 1 { 0 } else { i }).collect();
        self.at(&own)
    }

    pub fn tensor(&self) -> Tensor {
        Tensor::from_slice(&self.data, &self.shape)
    }
}

/// The tensor must have the array's shape and elements, up to rounding in f64.
pub fn assert_equal(found: &Tensor, expected: &Array) {
    assert_eq!(found.shape(), expected.shape);
    for (i, (f, e)) in found.to_f64().iter().zip(&expected.data).enumerate() {
        let same = f == e || (f.is_nan() && e.is_nan()) || (f - e).abs() <= 1e-12 * e.abs().max(1.0);
        assert!(same, "element {i} is {f} instead of {e}");
    }
}
