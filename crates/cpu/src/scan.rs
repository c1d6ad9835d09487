//! Running sums. What runs together are neighbours behind the dimension, or rows that are transposed, a block of terms at a
//! time: each sum waits for the one before, but not for those beside it.

use crate::gemm::pack::transpose;
use crate::gemm::real::same;
use crate::reduce::{Accumulate, Term};
use crate::walk::Walk;
use crate::{Context, Level, Operand, Output, Shared};
use half::{bf16, f16};
use meshwork_graph::DType;
use meshwork_graph::ops::CumSum;
use meshwork_simd::multiversion;

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;
/// Neighbouring sums that run together.
const WIDTH: usize = 64;
/// Rows that run together.
const ABREAST: usize = 16;
/// Fewer rows wait for each other less than transposing them takes.
const FEW: usize = 3;
/// Terms of a block.
const TERMS: usize = 64;

/// Computes the running sums; threads share the independent ones.
///
/// # Panics
/// When shapes or dtypes differ, and for bool.
pub fn run(op: &CumSum, inputs: &[Operand], output: Output, context: Context) {
    let input = inputs[0];
    assert_eq!((input.dtype, input.shape()), (output.dtype, output.shape), "type of a running sum");
    match input.dtype {
        DType::F64 => scan::<f64>(op, input, output, context),
        DType::F32 => scan::<f32>(op, input, output, context),
        DType::F16 => scan::<f16>(op, input, output, context),
        DType::BF16 => scan::<bf16>(op, input, output, context),
        DType::I64 => scan::<i64>(op, input, output, context),
        DType::I32 => scan::<i32>(op, input, output, context),
        DType::U8 => scan::<u8>(op, input, output, context),
        DType::Bool => panic!("cumsum of bool"),
    }
}

/// Running sums along a dimension of so many terms.
struct Job<'a, T> {
    first: Shared<T>,
    out: Shared<T>,
    size: usize,
    /// Distance of terms where they are read.
    stride: isize,
    /// Elements of the dimensions behind, which is the distance of sums.
    inner: usize,
    /// Where sums begin.
    others: Walk,
    reverse: bool,
    context: Context<'a>,
}

fn scan<T: Term>(op: &CumSum, input: Operand, output: Output, context: Context) {
    let shape = input.shape();
    if shape.numel() == 0 {
        return;
    }
    let others = (0..shape.rank()).filter(|&d| d != op.dim).map(|d| (shape[d], input.layout.strides[d]));
    // SAFETY: the offset is that of an element.
    let first = unsafe { input.bytes().cast::<T>().add(input.layout.offset) };
    let job = Job {
        first: Shared(first.cast_mut()),
        out: Shared(output.bytes().cast::<T>()),
        size: shape[op.dim],
        stride: input.layout.strides[op.dim],
        inner: shape[op.dim + 1..].iter().product(),
        others: Walk::over(others),
        reverse: op.reverse,
        context,
    };
    match job.inner == 1 && job.stride == 1 && job.others.len() >= FEW {
        true => job.rows(),
        false => job.neighbours(),
    }
}

impl<T: Term> Job<'_, T> {
    /// Rows of terms that lie together.
    fn rows(&self) {
        let (rows, lanes) = (self.others.len(), self.context.par.lanes());
        let together = rows.div_ceil(lanes).clamp(1, ABREAST);
        self.context.par.ranges(rows.div_ceil(together), GRAIN / (self.size * together) + 1, &|range| {
            let mut block = [[T::Sum::ZERO; ABREAST]; TERMS];
            for group in range {
                let start = group * together;
                let count = together.min(rows - start);
                let places: [isize; ABREAST] = std::array::from_fn(|i| self.others.position(start + i % count));
                let out = self.out.pointer().wrapping_add(start * self.size);
                let mut sums = [T::Sum::NOTHING; ABREAST];
                for done in (0..self.size).step_by(TERMS) {
                    let terms = TERMS.min(self.size - done);
                    let at = if self.reverse { self.size - done - terms } else { done };
                    let block = &mut block[..terms];
                    // SAFETY: the places are those of rows of so many terms; this task owns these rows of the output.
                    unsafe {
                        turn(self.context.level, self.first.pointer().add(at), &places[..count], block);
                        add_up(self.context.level, &mut sums, block, self.reverse);
                        turn_back(self.context.level, block, count, self.size, out.add(at));
                    }
                }
            }
        });
    }

    /// Sums that lie behind each other, term by term.
    fn neighbours(&self) {
        let (size, inner, stride) = (self.size, self.inner, self.stride);
        self.context.par.ranges(self.others.len(), GRAIN / size + 1, &|range| {
            let mut at = range.start;
            while at < range.end {
                // In one row of the inner dimensions.
                let count = WIDTH.min(inner - at % inner).min(range.end - at);
                let mut starts = [0isize; WIDTH];
                for (i, start) in starts[..count].iter_mut().enumerate() {
                    *start = self.others.position(at + i);
                }
                let (mut from, mut step) = (self.first.pointer().cast_const(), stride);
                let mut to = self.out.pointer().wrapping_add(at / inner * size * inner + at % inner);
                let mut out_step = inner as isize;
                if self.reverse {
                    let last = size as isize - 1;
                    (from, to) = (from.wrapping_offset(last * stride), to.wrapping_offset(last * out_step));
                    (step, out_step) = (-step, -out_step);
                }
                run_neighbours(self.context.level, &starts[..count], (from, step), (to, out_step), size);
                at += count;
            }
        });
    }
}

/// Brings so many terms of some rows side by side. Lanes without a row are left as they are.
///
/// # Safety
/// `from` and the rows' places must lead to as many terms as the block has.
unsafe fn turn<T: Term>(level: Level, from: *const T, rows: &[isize], block: &mut [[T::Sum; ABREAST]]) {
    let (terms, out) = (block.len(), block.as_mut_ptr());
    // SAFETY: the caller's promise, and the types are the same; integers are moved as they are.
    unsafe {
        match () {
            () if same::<T, f32>() || same::<T, i32>() => {
                transpose::<f32>(level, from.cast(), rows, terms, ABREAST, out.cast());
            }
            () if same::<T, bf16>() => transpose::<bf16>(level, from.cast(), rows, terms, ABREAST, out.cast()),
            () if same::<T, f16>() => transpose::<f16>(level, from.cast(), rows, terms, ABREAST, out.cast()),
            () => {
                for (k, block) in block.iter_mut().enumerate() {
                    rows.iter().zip(block).for_each(|(&row, x)| *x = (*from.offset(row).add(k)).widen());
                }
            }
        }
    }
}

/// Brings the sums of so many rows to rows of the output, `size` apart.
///
/// # Safety
/// Each row must have room for as many sums as the block has from `out` on.
unsafe fn turn_back<T: Term>(level: Level, block: &[[T::Sum; ABREAST]], rows: usize, size: usize, out: *mut T) {
    // SAFETY: the caller's promise, and the types are the same; integers are moved as they are.
    unsafe {
        if same::<T, f32>() || same::<T, i32>() {
            const PLACES: [isize; TERMS] = {
                let mut places = [0; TERMS];
                let mut term = 0;
                while term < TERMS {
                    places[term] = (term * ABREAST) as isize;
                    term += 1;
                }
                places
            };
            return transpose::<f32>(level, block.as_ptr().cast(), &PLACES[..block.len()], rows, size, out.cast());
        }
        for row in 0..rows {
            let out = out.add(row * size);
            block.iter().enumerate().for_each(|(k, sums)| *out.add(k) = T::narrow(sums[row]));
        }
    }
}

#[inline(always)]
fn add_up_body<A: Accumulate>(sums: &mut [A; ABREAST], block: &mut [[A; ABREAST]], reverse: bool) {
    let mut local = *sums;
    let mut add = |terms: &mut [A; ABREAST]| {
        for (sum, x) in local.iter_mut().zip(terms) {
            *sum = sum.add(*x);
            *x = *sum;
        }
    };
    match reverse {
        true => block.iter_mut().rev().for_each(&mut add),
        false => block.iter_mut().for_each(&mut add),
    }
    *sums = local;
}

#[inline(always)]
fn run_neighbours_body<T: Term>(
    starts: &[isize],
    (from, stride): (*const T, isize),
    (to, step): (*mut T, isize),
    size: usize,
) {
    let mut sums = [T::Sum::NOTHING; WIDTH];
    let sums = &mut sums[..starts.len()];
    let lie_together = starts.iter().enumerate().all(|(i, &start)| start == starts[0] + i as isize);
    for term in 0..size as isize {
        // SAFETY: the caller passes places of terms, and of sums that are its own.
        unsafe {
            let (from, to) = (from.offset(term * stride), to.offset(term * step));
            let out = std::slice::from_raw_parts_mut(to, starts.len());
            if lie_together {
                let terms = std::slice::from_raw_parts(from.offset(starts[0]), starts.len());
                for ((y, sum), x) in out.iter_mut().zip(&mut *sums).zip(terms) {
                    *sum = sum.add(x.widen());
                    *y = T::narrow(*sum);
                }
            } else {
                for ((y, sum), &start) in out.iter_mut().zip(&mut *sums).zip(starts) {
                    *sum = sum.add((*from.offset(start)).widen());
                    *y = T::narrow(*sum);
                }
            }
        }
    }
}

multiversion! {
    fn add_up<A: Accumulate>(sums: &mut [A; ABREAST], block: &mut [[A; ABREAST]], reverse: bool) = add_up_body;
}

multiversion! {
    fn run_neighbours<T: Term>(starts: &[isize], from: (*const T, isize), to: (*mut T, isize), size: usize) = run_neighbours_body;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Sample, bits, each_context, indices, output};

    fn check<T: Sample + Term>(shape: &[usize]) {
        for case in Case::<T>::strided(shape) {
            for dim in 0..shape.len() {
                for reverse in [false, true] {
                    let value = |index: &[usize]| -> T {
                        let mut place = index.to_vec();
                        let mut terms: Vec<usize> =
                            if reverse { (index[dim]..shape[dim]).rev().collect() } else { (0..=index[dim]).collect() };
                        place[dim] = terms.remove(0);
                        let mut sum = case.at(&place).widen();
                        for i in terms {
                            place[dim] = i;
                            sum = sum.add(case.at(&place).widen());
                        }
                        T::narrow(sum)
                    };
                    let want: Vec<T> = indices(&case.layout.shape).map(|index| value(&index)).collect();
                    each_context(|context| {
                        let op = CumSum { dim, reverse };
                        let got = output::<T>(&case.layout.shape, |o| run(&op, &[case.operand()], o, context));
                        assert_eq!(bits(&got), bits(&want), "{op:?} {:?}", case.layout);
                    });
                }
            }
        }
    }

    #[test]
    fn terms_are_added_one_by_one() {
        check::<f32>(&[5, 17, 3]);
        check::<bf16>(&[9, 4]);
        check::<i32>(&[130, 7]);
        check::<f64>(&[3, 0]);
        check::<u8>(&[40]);
        check::<f16>(&[70, 80]);
        check::<f32>(&[37, 150]);
        check::<i32>(&[3, 5, 64]);
        check::<f64>(&[4, 65]);
    }
}
