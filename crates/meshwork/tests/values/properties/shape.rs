use super::array::{Array, assert_equal, indices};
use super::views::viewed;
use meshwork::Tensor;
use meshwork::tensor::{concat, stack};
use proptest::prelude::*;

proptest! {
    #[test]
    fn views((x, a) in viewed()) {
        assert_equal(&x, &a);
    }

    #[test]
    fn reshapes_keep_the_order((x, a) in viewed(), parts in prop::collection::vec(1usize..6, 0..4)) {
        let flat = Array { shape: vec![a.data.len()], data: a.data.clone() };
        assert_equal(&x.flatten(0), &if a.shape.is_empty() { Array { shape: vec![1], ..flat.clone() } } else { flat });
        // Sizes that divide what is left; the rest is worked out.
        let mut left = a.data.len();
        prop_assume!(left > 0);
        let mut shape: Vec<isize> = Vec::new();
        for part in parts {
            let size = if left % part == 0 { part } else { 1 };
            shape.push(size as isize);
            left /= size;
        }
        shape.push(-1);
        let mut expected = a.clone();
        expected.shape = shape.iter().map(|&n| if n == -1 { left } else { n as usize }).collect();
        assert_equal(&x.reshape(&shape), &expected);
        let back: Vec<isize> = a.shape.iter().map(|&n| n as isize).collect();
        assert_equal(&(x.reshape(&shape) * 1.0).reshape(&back), &a);
    }

    #[test]
    fn parts_join_to_the_whole((x, a) in viewed(), dim in 0usize..4, cut in 0usize..6, count in 1usize..5) {
        prop_assume!(!a.shape.is_empty());
        let dim = dim % a.shape.len();
        let (size, axis) = (a.shape[dim], dim as isize);
        let parts = x.split(&[cut.min(size), size - cut.min(size)], axis);
        assert_equal(&concat(&parts.iter().collect::<Vec<&Tensor>>(), axis), &a);
        let parts = x.chunk(count, axis);
        prop_assert!(parts.len() <= count);
        assert_equal(&concat(&parts.iter().collect::<Vec<&Tensor>>(), axis), &a);
        if size > 0 {
            let slices: Vec<Tensor> = (0..size).map(|i| x.select(axis, i as isize)).collect();
            assert_equal(&stack(&slices.iter().collect::<Vec<&Tensor>>(), axis), &a);
        }
    }

    #[test]
    fn borders((x, a) in viewed(), amounts in prop::collection::vec((0usize..3, 0usize..3), 8)) {
        let amounts = &amounts[..a.shape.len()];
        let shape: Vec<usize> = a.shape.iter().zip(amounts).map(|(n, (low, high))| n + low + high).collect();
        let padded = Array::of(&shape, |index| {
            let inside = |d: usize| (amounts[d].0..amounts[d].0 + a.shape[d]).contains(&index[d]);
            if (0..index.len()).all(inside) {
                a.at(&index.iter().zip(amounts).map(|(i, (low, _))| i - low).collect::<Vec<_>>())
            } else {
                7.5
            }
        });
        assert_equal(&x.pad(amounts, 7.5), &padded);
        let cut = amounts.iter().enumerate().fold(x.pad(amounts, 7.5), |y, (d, (low, _))| y.narrow(d as isize, *low, a.shape[d]));
        assert_equal(&cut, &a);
    }

    #[test]
    fn rolls_and_triangles((x, a) in viewed(), dim in 0usize..4, shift in -9isize..9, diagonal in -4isize..5) {
        prop_assume!(!a.shape.is_empty());
        let dim = dim % a.shape.len();
        let rolled = Array::of(&a.shape, |index| {
            let mut from = index.to_vec();
            from[dim] = (index[dim] as isize - shift).rem_euclid(a.shape[dim] as isize) as usize;
            a.at(&from)
        });
        assert_equal(&x.roll(shift, dim as isize), &rolled);
        if let [.., _, _] = a.shape[..] {
            let keep = |lower: bool| Array::of(&a.shape, |index| {
                let (row, column) = (index[index.len() - 2] as isize, index[index.len() - 1] as isize);
                let inside = if lower { column <= row + diagonal } else { column >= row + diagonal };
                if inside { a.at(index) } else { 0.0 }
            });
            assert_equal(&x.tril(diagonal), &keep(true));
            assert_equal(&x.triu(diagonal), &keep(false));
        }
    }

    #[test]
    fn gather_and_scatter((x, a) in viewed(), dim in 0usize..4, count in 0usize..7, seed in any::<u64>()) {
        prop_assume!(!a.shape.is_empty());
        let dim = dim % a.shape.len();
        prop_assume!(a.shape[dim] > 0);
        let mut shape = a.shape.clone();
        shape[dim] = count;
        let mut draws = Array::numbered(&shape, seed);
        draws.data.iter_mut().for_each(|v| *v = ((*v + 2.0) * 4.0) as usize as f64 % a.shape[dim] as f64);
        let index: Vec<i64> = draws.data.iter().map(|&v| v as i64).collect();
        let index = Tensor::from_slice(&index, &shape);
        let source = |place: &[usize]| {
            let mut from = place.to_vec();
            from[dim] = draws.at(place) as usize;
            from
        };
        assert_equal(&x.gather(dim as isize, &index), &Array::of(&shape, |i| a.at(&source(i))));

        let values = Array::numbered(&shape, seed ^ 1);
        let mut added = a.clone();
        for place in indices(&shape) {
            let position = source(&place).iter().zip(&a.shape).fold(0, |p, (&i, &n)| p * n + i);
            added.data[position] += values.at(&place);
        }
        assert_equal(&x.scatter_add(dim as isize, &index, &values.tensor()), &added);

        let row: Vec<i64> = (0..count).map(|i| (i * 5 + 2) as i64 % a.shape[dim] as i64).collect();
        let rows = Array::of(&shape, |i| {
            let mut from = i.to_vec();
            from[dim] = row[i[dim]] as usize;
            a.at(&from)
        });
        assert_equal(&x.index_select(dim as isize, &Tensor::from_slice(&row, &[count])), &rows);
    }
}
