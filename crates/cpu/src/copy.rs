//! Any strided operand as a dense one.

use crate::gemm::pack;
use crate::operand::Shared;
use crate::walk::Walk;
use crate::{Context, Level, Operand, Output, stream};

/// Elements per task below which further threads do not pay.
const GRAIN: usize = 1 << 14;
/// Edge of the square tiles in which a transposed operand is copied: both sides stay in the first cache.
const EDGE: usize = 32;

/// Copies `input` in row-major order, under whatever shape the output has. Either dtype may be anything, but both
/// must be the same.
///
/// # Panics
/// When numbers of elements or dtypes differ.
pub fn run(input: Operand, output: Output, context: Context) {
    assert_eq!(input.dtype, output.dtype, "dtypes of a copy");
    assert_eq!(input.shape().numel(), output.shape.numel(), "elements of a copy");
    let walk = Walk::new(input.layout);
    if walk.is_empty() {
        return;
    }
    let size = input.dtype.size();
    // SAFETY: the offset is that of an element.
    let first = unsafe { input.bytes().add(input.layout.offset * size) };
    let output = output.bytes();
    // SAFETY: both hold the elements of the walk; any bits of their size can be moved.
    unsafe {
        match size {
            8 => copy::<u64>(&walk, first, output, context),
            4 => copy::<u32>(&walk, first, output, context),
            2 => copy::<u16>(&walk, first, output, context),
            _ => copy::<u8>(&walk, first, output, context),
        }
    }
}

unsafe fn copy<T: Copy + Send + Sync>(walk: &Walk, first: *const u8, output: *mut u8, context: Context) {
    let (first, output) = (Shared(first.cast_mut().cast::<T>()), Shared(output.cast::<T>()));
    let len = walk.len();
    let rank = walk.sizes.len();
    let turned = rank >= 2
        && walk.inner().1 != 1
        && walk.inner().1 != 0
        && walk.inner().0 >= 8
        && walk.strides.iter().zip(&walk.sizes).any(|(&s, &n)| s == 1 && n >= 8);
    if turned {
        // SAFETY: the caller's promise.
        return unsafe { transpose(walk, first, output, context) };
    }
    let streams = walk.is_dense() && len * size_of::<T>() >= stream::STREAM_BYTES;
    context.par.ranges(len, GRAIN, &|range| {
        // SAFETY: ranges are disjoint and inside the output; the walk's elements are readable.
        unsafe {
            if streams {
                let from = first.pointer().add(range.start).cast();
                stream::copy(from, output.pointer().add(range.start).cast(), range.len() * size_of::<T>(), &[]);
                stream::fence();
            } else {
                walk.gather(first.pointer(), range.start, output.slice(range.start, range.len()), |x: T| x);
            }
        }
    });
}

/// The innermost dimension of the output is strided in the input and another one (`d`) is dense there: square tiles
/// of the two, so that every cache line is read and written while it is near.
unsafe fn transpose<T: Copy + Send + Sync>(walk: &Walk, first: Shared<T>, output: Shared<T>, context: Context) {
    let rank = walk.sizes.len();
    let dense = (0..rank).rfind(|&d| walk.strides[d] == 1 && walk.sizes[d] >= 8).expect("checked by the caller");
    let (rows, columns, column_stride) = (walk.sizes[dense], walk.sizes[rank - 1], walk.strides[rank - 1]);
    let row_step: usize = walk.sizes[dense + 1..].iter().product();
    // The other dimensions, in the input and in the output.
    let mut step = walk.len();
    let mut others = vec![];
    for d in 0..rank - 1 {
        step /= walk.sizes[d];
        if d != dense {
            others.push((walk.sizes[d], walk.strides[d], step as isize));
        }
    }
    let count: usize = others.iter().map(|o| o.0).product();
    let from = Walk::over(others.iter().map(|o| (o.0, o.1)));
    let to = Walk::over(others.iter().map(|o| (o.0, o.2)));
    let bands = rows.div_ceil(EDGE);
    let grain = (GRAIN / (EDGE * columns)).max(1);
    context.par.ranges(count * bands, grain, &|range| {
        for item in range {
            let (other, band) = (item / bands, item % bands);
            let row_range = band * EDGE..((band + 1) * EDGE).min(rows);
            let (source, target) = (from.position(other), to.position(other));
            for left in (0..columns).step_by(EDGE) {
                let here = (columns - left).min(EDGE);
                let places: [isize; EDGE] = std::array::from_fn(|i| i as isize * column_stride);
                // SAFETY: the elements belong to the walk, and to this item alone.
                unsafe {
                    let from =
                        first.pointer().offset(source + row_range.start as isize + left as isize * column_stride);
                    let to = output.pointer().offset(target + (row_range.start * row_step + left) as isize);
                    tile(context.level, from, &places[..here], row_range.len(), row_step, to);
                }
            }
        }
    });
}

/// Copies a tile: `rows` neighbouring elements from each of some columns, those of a row to neighbours, rows `step` apart.
unsafe fn tile<T: Copy>(level: Level, from: *const T, columns: &[isize], rows: usize, step: usize, to: *mut T) {
    // SAFETY: the caller passes elements and their places; floats are moved as they are.
    unsafe {
        if size_of::<T>() == size_of::<f32>() {
            return pack::transpose::<f32>(level, from.cast(), columns, rows, step, to.cast());
        }
        for row in 0..rows {
            for (i, &column) in columns.iter().enumerate() {
                *to.add(row * step + i) = *from.offset(column).add(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{self, Case, Sample, bits};

    fn check<T: Sample>(shape: &[usize]) {
        testing::each_context(|context| {
            for case in Case::<T>::strided(shape) {
                let got = testing::output::<T>(&case.layout.shape, |output| {
                    super::run(case.operand(), output, context);
                });
                assert_eq!(bits(&got), bits(&case.elements()), "{:?}", case.layout);
            }
        });
    }

    #[test]
    fn copies_are_the_elements_in_row_major_order() {
        check::<f32>(&[7, 33, 70]);
        check::<f64>(&[2, 3, 0, 5]);
        check::<half::bf16>(&[65, 40]);
        check::<bool>(&[200, 101]);
        check::<i64>(&[1, 1]);
        check::<i32>(&[]);
    }
}
