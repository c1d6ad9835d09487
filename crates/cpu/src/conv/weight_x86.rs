//! The gradient by the weight for f32 and AVX2 or AVX-512 where a row of the kernel over all channels fills vectors.
//!
//! The images of a few samples are copied with their channels side by side ([`Interleaved`]). Tiles of outputs × two vectors
//! of a row of the kernel read them where they are, at every output position, and broadcast the output's gradient from
//! where that is. Every block of samples is a task of its own.

use super::Unfolded;
use super::direct_x86::{PARTIAL, add_blocks, balanced, parts};
use super::images::Images;
use super::interleaved_x86::{Interleaved, LANES, Row, lanes};
use crate::Context;
use crate::gemm::drive::with_slots;
use crate::gemm::pack::SLACK;
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use std::arch::x86_64::*;

/// Terms whose images are copied together, about: what tiles read of them stays in the first-level cache.
const DEPTH: usize = 192;

/// Whether this is the better way with vectors of so many numbers: there are rows for the tiles, and blocks for all threads.
pub fn suits(u: &Unfolded, threads: usize, lanes: usize) -> bool {
    let blocks = u.size.terms.div_ceil(u.size.block);
    let images = Interleaved::new(&u.window, lanes);
    u.size.terms > 0
        && u.size.rows >= 4
        && images.suits()
        && balanced(blocks, threads)
        && blocks * numbers(u, &images) <= PARTIAL
}

/// Sums of a block.
fn numbers(u: &Unfolded, images: &Interleaved) -> usize {
    widths(images).into_iter().map(|[lanes, a_row]| sums(u, lanes, images.rows().len() * a_row)).sum()
}

/// Sums of so many vectors, which lie in pairs.
fn sums(u: &Unfolded, lanes: usize, vectors: usize) -> usize {
    vectors.div_ceil(2) * u.window.outputs * 2 * lanes
}

/// Numbers in vectors, and how many of them cover a row of the kernel: those of the level, and one of AVX2 for a rest that
/// fits it, which takes half as long where one of AVX-512 is two of them inside.
fn widths(images: &Interleaved) -> [[usize; 2]; 2] {
    let [narrow, _] = LANES;
    let rest = usize::from(images.lanes > narrow && (1..=narrow).contains(&(images.row() % images.lanes)));
    [[images.lanes, images.row().div_ceil(images.lanes) - rest], [narrow, rest]]
}

/// Samples whose images are copied together.
fn together(u: &Unfolded) -> usize {
    (DEPTH / u.window.positions()).clamp(1, u.size.block / u.window.positions())
}

/// Bytes for: a group's sums of all blocks; a slot's images.
fn rooms(u: &Unfolded, images: &Interleaved) -> [usize; 2] {
    let blocks = u.size.terms.div_ceil(u.size.block);
    [room::<f32>(blocks * numbers(u, images)), room::<f32>(together(u) * images.len() + SLACK)]
}

/// Bytes of scratch memory for [`weight`] with vectors of so many numbers.
pub fn bytes(u: &Unfolded, threads: usize, lanes: usize) -> usize {
    let [partial, images] = rooms(u, &Interleaved::new(&u.window, lanes));
    partial * u.window.groups + images * threads
}

/// A vector of a row of the kernel.
struct Vector {
    /// Where it begins in an image, counted from the output position.
    offset: usize,
    /// The (channel, tap) of its elements, but for those that the vector before has.
    elements: Vec<Option<usize>>,
}

/// The vectors of all rows of the kernel that have one of the [`widths`]; the last one of a row overlaps the one before.
struct Vectors {
    lanes: usize,
    vectors: Vec<Vector>,
}

/// All vectors.
fn vectors(images: &Interleaved) -> [Vectors; 2] {
    let wide = widths(images)[0][1] * images.lanes;
    let mut begin = 0;
    widths(images).map(|[lanes, a_row]| {
        let vector = |row: Row, first: usize| {
            let start = first.min(images.row() - lanes);
            let element = |lane: usize| (start + lane >= first).then(|| images.element(row, start + lane));
            Vector { offset: row.offset + start, elements: (0..lanes).map(element).collect() }
        };
        let firsts: Vec<usize> = (0..a_row).map(|i| begin + i * lanes).collect();
        let vectors = images.rows().into_iter().flat_map(|row| firsts.iter().map(move |&first| vector(row, first)));
        let vectors = vectors.collect();
        begin = wide;
        Vectors { lanes, vectors }
    })
}

/// What a tile reads and updates.
struct Call<'a> {
    /// Under the first position: the elements of its vectors.
    x: [*const f32; 2],
    /// The distance of the samples' images.
    image: usize,
    /// Offsets of the positions in an image.
    positions: &'a [isize],
    /// The gradient of the tile's first output, whose rows are as long as there are positions.
    dy: *const f32,
    /// The distance of the samples' gradients.
    sample: usize,
    samples: usize,
    /// The sums so far, rows of two vectors.
    sums: *mut f32,
}

type Tile = unsafe fn(&Call);

/// Defines the microkernels of a level: those of one and of two vectors, by rows.
macro_rules! tiles {
    (
        $name:ident, $table:ident, $feature:literal, $vector:ty, $lanes:literal, [$($one:literal)*], [$($two:literal)*],
        $zero:path, $load:path, $store:path, $splat:path, $fma:path
    ) => {
        const $table: [&[Tile]; 2] = [&[$($name::<$one, 1>),*], &[$($name::<$two, 2>),*]];

        /// Adds some samples to the sums of `ROWS` outputs for `VECTORS`.
        ///
        /// # Safety
        /// The processor must have the instructions; elements must be readable, sums writable.
        #[target_feature(enable = $feature)]
        unsafe fn $name<const ROWS: usize, const VECTORS: usize>(call: &Call) {
            let count = call.positions.len();
            // SAFETY: the caller's promise.
            unsafe {
                let sums = |i: usize, j: usize| call.sums.add((2 * i + j) * $lanes);
                let mut acc: [[$vector; VECTORS]; ROWS] = [[$zero(); VECTORS]; ROWS];
                for (i, row) in acc.iter_mut().enumerate() {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = $load(sums(i, j));
                    }
                }
                for sample in 0..call.samples {
                    let x: [*const f32; VECTORS] = std::array::from_fn(|j| call.x[j].add(sample * call.image));
                    let dy: [*const f32; ROWS] = std::array::from_fn(|i| call.dy.add(sample * call.sample + i * count));
                    for (k, &position) in call.positions.iter().enumerate() {
                        let mut right = [$zero(); VECTORS];
                        for (right, x) in right.iter_mut().zip(x) {
                            *right = $load(x.offset(position));
                        }
                        for (row, dy) in acc.iter_mut().zip(dy) {
                            let left = $splat(*dy.add(k));
                            for (sum, &right) in row.iter_mut().zip(&right) {
                                *sum = $fma(left, right, *sum);
                            }
                        }
                    }
                }
                for (i, row) in acc.iter().enumerate() {
                    for (j, &sum) in row.iter().enumerate() {
                        $store(sums(i, j), sum);
                    }
                }
            }
        }
    };
}

tiles!(
    avx2, AVX2, "avx2,fma", __m256, 8, [1 2 3 4 5 6 7 8], [1 2 3 4 5 6],
    _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps
);
tiles!(
    avx512, AVX512, "avx512f", __m512, 16, [1 2 3 4 5 6 7 8 9 10 11 12], [1 2 3 4 5 6 7 8 9 10 11 12],
    _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps
);

/// The gradient of [`Unfolded::weight`].
///
/// # Safety
/// As for [`crate::gemm::drive::multiply_staged`], with the scratch memory of [`bytes`] for the level's vectors.
pub unsafe fn weight(
    u: &Unfolded,
    input: &Images<f32>,
    dy: *const f32,
    out: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let window = &u.window;
    let lanes = lanes(context.level).expect("a level with kernels");
    let images = Interleaved::new(window, lanes);
    let (positions, vectors) = (images.positions(), vectors(&images));
    let (outputs, plane) = (window.outputs, positions.len());
    let (block, blocks) = (u.size.block / plane, u.size.terms.div_ceil(u.size.block));
    let numbers = vectors.each_ref().map(|v| sums(u, v.lanes, v.vectors.len()));
    let [partial_bytes, image_bytes] = rooms(u, &images);
    let partials: Vec<[Shared<f32>; 2]> = (0..window.groups)
        .map(|_| {
            let mut sums = arena.split(partial_bytes);
            numbers.map(|numbers| Shared(sums.take(blocks * numbers)))
        })
        .collect();
    let (slots, together) = (context.par.lanes(), together(u));
    let rooms = arena.split(image_bytes * slots);
    let dy = Shared(dy.cast_mut());
    with_slots(context.par, slots, window.groups * blocks, &|slot, task| {
        let (group, index) = (task / blocks, task % blocks);
        let staged: *mut f32 = rooms.slot(slot, image_bytes).take(together * images.len() + SLACK);
        let samples = index * block..((index + 1) * block).min(window.samples);
        // SAFETY: the slot's room, the task's sums, operands of the caller.
        unsafe {
            let sums = |i: usize| partials[group][i].slice(index * numbers[i], numbers[i]);
            (0..vectors.len()).for_each(|i| sums(i).fill(0.0));
            for first in samples.clone().step_by(together) {
                let count = together.min(samples.end - first);
                for i in 0..count {
                    let channel = ((first + i) * window.groups + group) * window.channels;
                    let from = input.data.add(channel * window.plane());
                    images.join(context.level, from, staged.add(i * images.len()));
                }
                let dy = dy.pointer().cast_const().add((first * window.groups + group) * outputs * plane);
                for (i, Vectors { lanes, vectors }) in vectors.iter().enumerate() {
                    let (kernels, width) = (if *lanes == LANES[0] { AVX2 } else { AVX512 }, 2 * lanes);
                    for (pair, sums) in vectors.chunks(2).zip(sums(i).chunks_exact_mut(outputs * width)) {
                        let tiles = kernels[pair.len() - 1];
                        for rows in parts(outputs, tiles.len()) {
                            let call = Call {
                                x: [&pair[0], &pair[pair.len() - 1]].map(|v| staged.cast_const().add(v.offset)),
                                image: images.len(),
                                positions: &positions,
                                dy: dy.add(rows.start * plane),
                                sample: window.groups * outputs * plane,
                                samples: count,
                                sums: sums.as_mut_ptr().add(rows.start * width),
                            };
                            tiles[rows.len() - 1](&call);
                        }
                    }
                }
            }
        }
    });
    let out = Shared(out);
    let results = |(group, partials): (usize, &[Shared<f32>; 2])| {
        for ((Vectors { lanes, vectors }, partial), numbers) in vectors.iter().zip(partials).zip(numbers) {
            let store = |row: usize, sums: &[f32]| {
                let (pair, output) = (row / outputs, row % outputs);
                let elements = vectors[2 * pair..].iter().take(2).flat_map(|v| &v.elements);
                for (&sum, element) in sums.iter().zip(elements) {
                    if let &Some(element) = element {
                        // SAFETY: an element of the kernel that no other row has.
                        unsafe { *out.pointer().add((group * outputs + output) * u.size.columns + element) = sum };
                    }
                }
            };
            // SAFETY: the sums of all blocks, which no task writes any more.
            unsafe { add_blocks(context, *partial, blocks, numbers / (2 * lanes), 2 * lanes, &store) };
        }
    };
    partials.iter().enumerate().for_each(results);
}
