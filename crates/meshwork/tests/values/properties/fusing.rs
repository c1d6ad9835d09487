//! Random programs as a whole against their operations one by one, in bits.

use meshwork::tensor::where_;
use meshwork::{DType, Tensor, grad};
use proptest::prelude::*;

/// What an operation does, and which values it reads.
type Call = (u8, usize, usize);

/// Values of elements `[R, C]`, of rows `[R]` and `[R, 1]`, and of columns `[C]`.
struct Values {
    list: Vec<Tensor>,
    class: Tensor,
    /// Whether every value is computed as soon as it is recorded.
    at_once: bool,
}

impl Values {
    fn push(&mut self, value: Tensor) {
        if self.at_once {
            value.to_bytes();
        }
        self.list.push(value);
    }

    fn call(&mut self, (op, a, b): Call) {
        let (rows, columns) = (self.list[0].shape()[0], self.list[0].shape()[1]);
        let (a, b) = (&self.list[a % self.list.len()], &self.list[b % self.list.len()]);
        let is_full = a.shape() == [rows, columns];
        let fits = a.shape() == b.shape()
            || is_full && b.shape() != [rows]
            || is_full && rows == columns
            || b.shape() == [rows, columns] && a.shape() != [rows];
        let value = match op % 20 {
            0 => a.tanh(),
            1 => a.exp(),
            2 => -a,
            3 => a.relu(),
            4 => a.to_dtype(DType::BF16).to_dtype(a.dtype()),
            5 if a.shape() == [rows] => a.unsqueeze(1),
            5 | 6 if is_full => a.sum(1),
            7 if is_full => a.sum_keepdim(1),
            8 if is_full => a.amax_keepdim(1),
            9 if is_full => a.mean_keepdim(1),
            10 if is_full => a.sum(0),
            11 if is_full => a.gather(1, &self.class),
            12 if a.shape() == [rows, 1] => {
                let zeros = self.list[0].zeros_like();
                zeros.scatter_add(1, &self.class, a)
            }
            13 if is_full => a.log_softmax(1),
            14 if is_full && rows == columns => a.t(),
            15 if fits => where_(&a.gt(b), a, b),
            16 if fits => a / b,
            17 if is_full => a.log_softmax(0),
            18 if is_full => a.softmax(0),
            _ if fits => a * b + a,
            _ => a.abs(),
        };
        self.push(value);
    }
}

fn run(shape: [usize; 2], dtype: DType, calls: &[Call], at_once: bool) -> Vec<Vec<u64>> {
    let [rows, columns] = shape;
    let data: Vec<f32> = (0..rows * columns).map(|i| ((i * 37 + 11) % 101) as f32 / 50.0 - 1.0).collect();
    let class: Vec<i64> = (0..rows).map(|i| (i * 7 % columns) as i64).collect();
    let x = Tensor::from_slice(&data, &shape).to_dtype(dtype);
    x.to_bytes();
    let x = x.variable();
    let mut values = Values { list: vec![], class: Tensor::from_slice(&class, &[rows, 1]), at_once };
    values.push(x.clone());
    values.push(&x * 0.5);
    calls.iter().for_each(|&call| values.call(call));
    let loss = values.list.last().expect("there are values").sum(..);
    if at_once {
        loss.to_bytes();
    }
    let gradient = grad(&loss, &[&x]).remove(0);
    // Only some values are still held when the whole program runs.
    let mut kept: Vec<Tensor> = values.list.into_iter().step_by(3).collect();
    kept.extend([loss, gradient]);
    let bits = |x: f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    kept.iter().map(|value| value.to_f64().into_iter().map(bits).collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn a_program_is_its_operations(
        shape in prop::sample::select(vec![[5, 5], [1, 7], [33, 10], [2, 200], [9, 1], [3, 1030], [24, 40]]),
        dtype in prop::sample::select(vec![DType::F32, DType::F64, DType::F16]),
        calls in prop::collection::vec((any::<u8>(), any::<usize>(), any::<usize>()), 3..30),
    ) {
        prop_assert_eq!(run(shape, dtype, &calls, false), run(shape, dtype, &calls, true));
    }
}
