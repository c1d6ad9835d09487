//! Several operands behind each other.

use crate::copy::{self, Pairs, copy_rows, room};
use crate::number::by_size;
use crate::stream::{self, STREAM_BYTES};
use crate::{Context, Operand, Output, Shared};
use meshwork_graph::ops::Concat;
use smallvec::SmallVec;

/// Bytes that are put together from all operands at once: they stay in the first cache.
const TOGETHER: usize = 16 << 10;

/// Copies every operand to its place along the dimension.
///
/// # Panics
/// When the sizes do not add up to the output's.
pub fn run<'a>(op: &Concat, inputs: &[Operand<'a>], output: Output, context: Context) {
    let total: usize = inputs.iter().map(|i| i.shape()[op.dim]).sum();
    assert_eq!(total, output.shape[op.dim], "size {} of a concatenation", op.dim);
    for input in inputs {
        assert_eq!(input.dtype, output.dtype, "dtypes of a concatenation");
    }
    let strides = output.shape.strides();
    let mut start = 0;
    let part = |input: &Operand<'a>| {
        let at = start;
        start += input.shape()[op.dim] * strides[op.dim] as usize;
        Part { input: *input, pairs: Pairs::between(input.layout, &strides), at }
    };
    let parts: SmallVec<[Part; 4]> = inputs.iter().map(part).filter(|part| part.pairs.len() > 0).collect();
    let rows: usize = output.shape[..op.dim].iter().product();
    let row = output.shape.numel() / rows.max(1);
    let is_short = row * output.dtype.size() <= TOGETHER && parts.len() > 1 && rows > 1;
    if is_short && parts.iter().all(|part| part.pairs.rows_lie_together()) {
        return by_size!(output.dtype, T => together::<T>(&parts, [rows, row], output, context));
    }
    for part in parts {
        // SAFETY: these elements of the output belong to this operand.
        unsafe {
            let to = output.bytes().add(part.at * output.dtype.size());
            copy::place(&part.input, &strides, to, context);
        }
    }
}

/// An operand that has elements, and where they come.
struct Part<'a> {
    input: Operand<'a>,
    pairs: Pairs,
    /// Elements of the output before its first one.
    at: usize,
}

/// Copies all parts of some rows of so many elements, then those of the next ones: rows that are shorter than lines of the caches are
/// written once.
fn together<T: Copy + Send + Sync>(parts: &[Part], [rows, row]: [usize; 2], output: Output, context: Context) {
    let (bytes, out) = (row * size_of::<T>(), Shared(output.bytes().cast::<T>()));
    let count = (TOGETHER / bytes).max(1);
    let streams = rows * bytes >= STREAM_BYTES;
    context.par.ranges(rows, copy::GRAIN / row + 1, &|range| {
        let copy = |here: std::ops::Range<usize>, to: *mut T| {
            for part in parts {
                let each = part.pairs.len() / part.pairs.row() / rows;
                // SAFETY: the offset is that of an element; these rows of the output, which begin with row 0 at `to`, are this task's.
                unsafe {
                    let first = part.input.bytes().cast::<T>().add(part.input.layout.offset);
                    copy_rows(&part.pairs, here.start * each..here.end * each, first, to.wrapping_add(part.at));
                }
            }
        };
        for start in range.clone().step_by(count) {
            let here = start..range.end.min(start + count);
            if !streams {
                copy(here, out.pointer());
                continue;
            }
            room(count * bytes, |room| {
                copy(here.clone(), room.cast::<T>().wrapping_sub(start * row));
                // SAFETY: these rows of the output belong to this task.
                unsafe {
                    let to = out.pointer().add(start * row).cast();
                    stream::copy(room, to, here.len() * bytes, &[]);
                }
            });
        }
        stream::fence();
    });
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Sample, bits, each_context, indices, output};
    use meshwork_graph::Shape;
    use meshwork_graph::ops::Concat;

    fn check<T: Sample>(shapes: &[&[usize]], dim: usize) {
        let cases: Vec<Vec<Case<T>>> = shapes.iter().map(|s| Case::strided(s)).collect();
        let mut shape = Shape::new(shapes[0]);
        shape.0[dim] = shapes.iter().map(|s| s[dim]).sum();
        for kind in 0..cases[0].len() {
            let parts: Vec<&Case<T>> = cases.iter().enumerate().map(|(i, c)| &c[(kind + i) % c.len()]).collect();
            let want: Vec<T> = indices(&shape)
                .map(|mut index| {
                    let mut part = 0;
                    while index[dim] >= shapes[part][dim] {
                        index[dim] -= shapes[part][dim];
                        part += 1;
                    }
                    parts[part].at(&index)
                })
                .collect();
            let operands: Vec<_> = parts.iter().map(|c| c.operand()).collect();
            each_context(|context| {
                let got = output::<T>(&shape, |o| super::run(&Concat { dim }, &operands, o, context));
                assert_eq!(bits(&got), bits(&want));
            });
        }
    }

    #[test]
    fn parts_follow_each_other() {
        check::<f32>(&[&[3, 2, 5], &[3, 4, 5], &[3, 0, 5], &[3, 1, 5]], 1);
        check::<half::f16>(&[&[7, 3], &[1, 3]], 0);
        check::<bool>(&[&[70, 300], &[70, 101]], 1);
        check::<f64>(&[&[4]], 0);
        // Short rows of several operands, some in several pieces, and long ones.
        check::<f32>(&[&[90, 2, 9], &[90, 3, 9]], 1);
        check::<u8>(&[&[400, 1], &[400, 70], &[400, 0], &[400, 5]], 1);
        check::<half::bf16>(&[&[3, 9000], &[3, 8]], 1);
    }

    #[test]
    fn rows_that_are_larger_than_the_caches_together_go_past_them() {
        let rows = super::STREAM_BYTES / 4 / 25 + 1;
        let (a, b) = (Case::<f32>::dense(1, &[rows, 9]), Case::<f32>::dense(2, &[rows, 16]));
        let shape = Shape::new(&[rows, 25]);
        let par = crate::Par::new(2);
        let context = crate::Context { par: &par, level: crate::Level::Portable };
        let got = output::<f32>(&shape, |o| {
            super::run(&Concat { dim: 1 }, &[a.operand(), b.operand()], o, context);
        });
        let bits_of = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for (row, got) in got.chunks_exact(25).enumerate() {
            let want = [&a.data[row * 9..][..9], &b.data[row * 16..][..16]].concat();
            assert_eq!(bits_of(got), bits_of(&want), "row {row}");
        }
    }
}
