//! The reduction itself: one value from those of all ranks, in the tree of adjacent pairs over the ranks.

use crate::ReduceOp;
use crate::element::{Arithmetic, Element, sealed::Reduced};

type Wide<T> = <T as Reduced>::Wide;

/// Elements that are reduced at a time: a block of each rank and the intermediate results stay in the L1 cache, so
/// memory is read once and written once.
const BLOCK: usize = 1024;

/// Writes, to each of `outputs`, the reduction of the `len` elements at each of `inputs`, which are in the order of the
/// ranks. Neighbours are combined, level by level, and an odd one moves up.
///
/// # Safety
/// All pointers are good for `len` elements. An output may be an input, at the same place; otherwise nothing overlaps.
pub unsafe fn reduce<T: Element>(op: ReduceOp, inputs: &[*const T], outputs: &[*mut T], len: usize) {
    // SAFETY: the caller's promise, in each arm.
    unsafe {
        match op {
            ReduceOp::Sum => run(inputs, outputs, len, Wide::<T>::add, |x| x),
            // Dividing by a power of two is multiplying by its inverse, bit for bit, and much faster.
            ReduceOp::Mean if inputs.len().is_power_of_two() => {
                let inverse = Wide::<T>::inverse(inputs.len());
                run(inputs, outputs, len, Wide::<T>::add, |x| x.multiply(inverse));
            }
            ReduceOp::Mean => run(inputs, outputs, len, Wide::<T>::add, |x| x.divide(inputs.len())),
            ReduceOp::Product => run(inputs, outputs, len, Wide::<T>::multiply, |x| x),
            ReduceOp::Min => run(inputs, outputs, len, Wide::<T>::min, |x| x),
            ReduceOp::Max => run(inputs, outputs, len, Wide::<T>::max, |x| x),
        }
    }
}

/// # Safety
/// As [`reduce`].
#[inline(always)]
unsafe fn run<T: Element>(
    inputs: &[*const T],
    outputs: &[*mut T],
    len: usize,
    combine: impl Fn(Wide<T>, Wide<T>) -> Wide<T> + Copy,
    finish: impl Fn(Wide<T>) -> Wide<T>,
) {
    // SAFETY: the caller's promise, in each arm.
    let mut start = unsafe {
        match (inputs.len(), outputs.len()) {
            _ if !T::IS_WIDE => 0,
            (2, 1) => few::<T, 2, 1, 16>(inputs, outputs, len, &combine, &finish),
            (2, 2) => few::<T, 2, 2, 16>(inputs, outputs, len, &combine, &finish),
            (3, 1) => few::<T, 3, 1, 8>(inputs, outputs, len, &combine, &finish),
            (3, 3) => few::<T, 3, 3, 8>(inputs, outputs, len, &combine, &finish),
            (4, 1) => few::<T, 4, 1, 8>(inputs, outputs, len, &combine, &finish),
            (4, 4) => few::<T, 4, 4, 8>(inputs, outputs, len, &combine, &finish),
            _ => 0,
        }
    };
    let levels = inputs.len().next_power_of_two().ilog2() as usize + 1;
    let mut scratch = vec![Wide::<T>::default(); levels * BLOCK.min(len - start)];
    while start < len {
        let size = BLOCK.min(len - start);
        let (result, rest) = scratch.split_at_mut(size);
        // SAFETY: the block lies in the buffers; all of it is read before an output is written.
        unsafe { root(inputs, start, result, rest, combine) };
        result.iter_mut().for_each(|x| *x = finish(*x));
        for output in outputs {
            // SAFETY: the block lies in the output, which nobody else has now.
            T::narrow(result, unsafe { std::slice::from_raw_parts_mut(output.add(start), size) });
        }
        start += size;
    }
}

/// Reduces two to four buffers of wide elements, `N` to `M`, with `L` elements of each in registers and no intermediate results in
/// memory. Gives how many elements it has reduced: all but the last few.
///
/// # Safety
/// As [`reduce`].
#[inline(always)]
unsafe fn few<T: Element, const N: usize, const M: usize, const L: usize>(
    inputs: &[*const T],
    outputs: &[*mut T],
    len: usize,
    combine: &impl Fn(Wide<T>, Wide<T>) -> Wide<T>,
    finish: &impl Fn(Wide<T>) -> Wide<T>,
) -> usize {
    // Copies, which no store can change.
    let inputs: [*const T; N] = std::array::from_fn(|i| inputs[i]);
    let outputs: [*mut T; M] = std::array::from_fn(|i| outputs[i]);
    for start in (0..len / L).map(|chunk| chunk * L) {
        let load = |i: usize| {
            let mut chunk = [Wide::<T>::default(); L];
            // SAFETY: the chunk lies in the buffer.
            T::widen(unsafe { std::slice::from_raw_parts(inputs[i].add(start), L) }, &mut chunk);
            chunk
        };
        let both = |a: [Wide<T>; L], b: [Wide<T>; L]| std::array::from_fn::<_, L, _>(|i| combine(a[i], b[i]));
        let result = match N {
            2 => both(load(0), load(1)),
            3 => both(both(load(0), load(1)), load(2)),
            _ => both(both(load(0), load(1)), both(load(2), load(3))),
        };
        let result = result.map(finish);
        for output in outputs {
            // SAFETY: the chunk lies in the output, and has been read if that is an input.
            T::narrow(&result, unsafe { std::slice::from_raw_parts_mut(output.add(start), L) });
        }
    }
    len / L * L
}

/// The block of `result.len()` elements from `start`, of the sub-tree over `inputs`.
///
/// # Safety
/// The inputs are good for the block.
unsafe fn root<T: Element>(
    inputs: &[*const T],
    start: usize,
    result: &mut [Wide<T>],
    scratch: &mut [Wide<T>],
    combine: impl Fn(Wide<T>, Wide<T>) -> Wide<T> + Copy,
) {
    if let [leaf] = inputs {
        // SAFETY: the caller's promise; nobody writes to the inputs meanwhile.
        T::widen(unsafe { std::slice::from_raw_parts(leaf.add(start), result.len()) }, result);
        return;
    }
    // The largest whole tree of pairs is on the left.
    let (left, right) = inputs.split_at(inputs.len().next_power_of_two() / 2);
    let (other, rest) = scratch.split_at_mut(result.len());
    // SAFETY: the caller's promise.
    unsafe {
        root(left, start, result, rest, combine);
        root(right, start, other, rest, combine);
    }
    result.iter_mut().zip(other).for_each(|(a, b)| *a = combine(*a, *b));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Element;
    use half::{bf16, f16};
    use proptest::prelude::*;

    fn reduced<T: Element>(op: ReduceOp, inputs: &[Vec<T>]) -> Vec<T> {
        let mut output = vec![T::default(); inputs[0].len()];
        let pointers: Vec<*const T> = inputs.iter().map(|input| input.as_ptr()).collect();
        // SAFETY: all have the same length, and the output is no input.
        unsafe { reduce(op, &pointers, &[output.as_mut_ptr()], output.len()) };
        output
    }

    /// The tree by its definition: neighbours, level by level.
    fn pairs<T: Copy>(leaves: &[T], combine: impl Fn(T, T) -> T) -> T {
        let mut level = leaves.to_vec();
        while level.len() > 1 {
            level = level.chunks(2).map(|pair| if let [a, b] = *pair { combine(a, b) } else { pair[0] }).collect();
        }
        level[0]
    }

    proptest! {
        #[test]
        fn sums_are_those_of_the_tree_of_adjacent_pairs(
            ranks in 1usize..12,
            len in prop_oneof![0usize..5, 1000usize..2100],
            seed in any::<u32>(),
        ) {
            let value = |rank: usize, i: usize| {
                let bits = seed.wrapping_add((rank * 7919 + i) as u32).wrapping_mul(2_654_435_761);
                f32::from_bits(0x3000_0000 | bits >> 4)
            };
            let inputs: Vec<Vec<f32>> = (0..ranks).map(|rank| (0..len).map(|i| value(rank, i)).collect()).collect();
            let column = |i: usize| inputs.iter().map(|input| input[i]).collect::<Vec<_>>();
            let bits = |x: Vec<f32>| x.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            let expected = |of: &dyn Fn(Vec<f32>) -> f32| bits((0..len).map(|i| of(column(i))).collect());
            let sum = |x: Vec<f32>| pairs(&x, |a, b| a + b);
            prop_assert_eq!(bits(reduced(ReduceOp::Sum, &inputs)), expected(&sum));
            prop_assert_eq!(bits(reduced(ReduceOp::Mean, &inputs)), expected(&|x| sum(x) / ranks as f32));
            prop_assert_eq!(bits(reduced(ReduceOp::Product, &inputs)), expected(&|x| pairs(&x, |a, b| a * b)));
            let least = |x: Vec<f32>| x.into_iter().fold(f32::INFINITY, f32::min);
            prop_assert_eq!(bits(reduced(ReduceOp::Min, &inputs)), expected(&least));
        }
    }

    #[test]
    fn halves_are_added_in_f32_and_rounded_once() {
        // 1 + 2⁻¹¹ rounds to 1 in f16; two of the small terms are the next number.
        let small = f16::from_f32(2f32.powi(-11));
        let inputs = [vec![f16::ONE], vec![small], vec![small]];
        assert_eq!(reduced(ReduceOp::Sum, &inputs), [f16::from_f32(1.0 + 2f32.powi(-10))]);
        let small = bf16::from_f32(2f32.powi(-8));
        let inputs = [vec![bf16::ONE], vec![small], vec![small]];
        assert_eq!(reduced(ReduceOp::Sum, &inputs), [bf16::from_f32(1.0 + 2f32.powi(-7))]);
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(reduced(ReduceOp::Sum, &[vec![200u8], vec![100]]), [44]);
        assert_eq!(reduced(ReduceOp::Product, &[vec![i32::MAX], vec![2]]), [-2]);
        assert_eq!(reduced(ReduceOp::Max, &[vec![-5i64, 3], vec![-7, 4]]), [-5, 4]);
    }

    #[test]
    fn a_nan_is_the_least_and_the_greatest_and_zeros_have_signs() {
        for (a, b) in [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::NAN, f64::NAN)] {
            assert!(reduced(ReduceOp::Min, &[vec![a], vec![b]])[0].is_nan());
            assert!(reduced(ReduceOp::Max, &[vec![a], vec![b]])[0].is_nan());
        }
        for (a, b) in [(0.0f64, -0.0), (-0.0, 0.0)] {
            assert!(reduced(ReduceOp::Min, &[vec![a], vec![b]])[0].is_sign_negative());
            assert!(reduced(ReduceOp::Max, &[vec![a], vec![b]])[0].is_sign_positive());
        }
    }
}
