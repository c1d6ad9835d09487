//! Convolutions of f32 that need no unfolded input, for AVX2: their microkernels read images where they are.
//!
//! - [`forward`], for few input channels: tiles of outputs × two vectors of neighbouring positions. Every vector lies
//!   in one row of positions; the last one of a row overlaps the one before.
//! - [`weight`], for small kernels: tiles of (channel, tap) × vectors of outputs. The output's gradient is packed with the outputs side
//!   by side, elements of the image are broadcast. Every block of samples is a task of its own.

use super::images::Images;
use super::{Unfolded, Window};
use crate::Context;
use crate::Level;
use crate::gemm::Side;
use crate::gemm::drive::Source;
use crate::gemm::pack::{SLACK, dense, pack};
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use crate::par::with_slots;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Numbers in a vector.
const LANES: usize = 8;

/// Input channels up to which [`forward`] is worth its vectors that overlap.
const CHANNELS: usize = 4;

/// Terms of a weight gradient that are packed at once.
const DEPTH: usize = 256;

/// Whether [`forward`] is the better way at levels that can run it.
pub fn suits_forward(window: &Window) -> bool {
    let row = window.output[2];
    window.channels <= CHANNELS
        && row >= LANES
        && 4 * row >= 3 * row.next_multiple_of(LANES)
        && window.channels * window.taps() * window.outputs * window.samples > 0
}

/// Bytes of scratch memory for [`forward`].
pub fn forward_bytes(images: &Images<f32>, threads: usize) -> usize {
    threads * room::<u8>(images.room(1))
}

/// Two vectors of positions: where the elements under the first tap lie, and where the sums go.
#[derive(Clone, Copy)]
struct Pair {
    sources: [isize; 2],
    targets: [usize; 2],
}

/// The vectors of a plane of positions, two by two; the last one may be there twice.
fn pairs(window: &Window, side: &Side) -> Vec<Pair> {
    let row = window.output[2];
    // The elements under a row of positions are neighbours.
    let vectors = |first: usize| {
        let source = side.lines.at(first);
        let starts = (0..row).step_by(LANES).map(move |i| i.min(row - LANES));
        starts.map(move |i| (source + i as isize, first + i))
    };
    let vectors: Vec<(isize, usize)> = (0..window.positions()).step_by(row).flat_map(vectors).collect();
    let pair = |two: &[(isize, usize)]| {
        let two = [two[0], two[two.len() - 1]];
        Pair { sources: two.map(|v| v.0), targets: two.map(|v| v.1) }
    };
    vectors.chunks(2).map(pair).collect()
}

/// What a tile of [`forward`] reads and writes.
struct Forward<'a> {
    x: *const f32,
    w: *const f32,
    out: *mut f32,
    /// Sums of a plane.
    positions: usize,
    /// Offsets of the terms in the image.
    terms: &'a [isize],
    block: usize,
}

type ForwardTile = unsafe fn(&Forward, &[Pair]);

const FORWARD: [ForwardTile; 6] =
    [forward_tile::<1>, forward_tile::<2>, forward_tile::<3>, forward_tile::<4>, forward_tile::<5>, forward_tile::<6>];

/// The sums of `ROWS` outputs at all positions.
///
/// # Safety
/// The processor must have AVX2 and FMA; elements must be readable, sums writable.
#[target_feature(enable = "avx2,fma")]
unsafe fn forward_tile<const ROWS: usize>(call: &Forward, pairs: &[Pair]) {
    let count = call.terms.len();
    for pair in pairs {
        // SAFETY: the caller's promise.
        unsafe {
            let mut tree = [MaybeUninit::<[[__m256; 2]; ROWS]>::uninit(); CHANNELS];
            let mut acc = [[_mm256_setzero_ps(); 2]; ROWS];
            let x = pair.sources.map(|s| call.x.offset(s));
            let mut blocks = 0usize;
            let mut w = call.w;
            for terms in call.terms.chunks(call.block) {
                if blocks > 0 {
                    let level = (blocks - 1).trailing_ones() as usize;
                    for left in &tree[..level] {
                        add(left.assume_init_ref(), &mut acc);
                    }
                    tree[level].write(acc);
                    acc = [[_mm256_setzero_ps(); 2]; ROWS];
                }
                for &term in terms {
                    let right = [_mm256_loadu_ps(x[0].offset(term)), _mm256_loadu_ps(x[1].offset(term))];
                    for (i, row) in acc.iter_mut().enumerate() {
                        let weight = _mm256_broadcast_ss(&*w.add(i * count));
                        row[0] = _mm256_fmadd_ps(weight, right[0], row[0]);
                        row[1] = _mm256_fmadd_ps(weight, right[1], row[1]);
                    }
                    w = w.add(1);
                }
                blocks += 1;
            }
            let mut whole = blocks - 1;
            while whole != 0 {
                add(tree[whole.trailing_zeros() as usize].assume_init_ref(), &mut acc);
                whole &= whole - 1;
            }
            for (i, row) in acc.iter().enumerate() {
                _mm256_storeu_ps(call.out.add(i * call.positions + pair.targets[0]), row[0]);
                _mm256_storeu_ps(call.out.add(i * call.positions + pair.targets[1]), row[1]);
            }
        }
    }
}

/// Adds a tile to the left of another.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add<const ROWS: usize>(left: &[[__m256; 2]; ROWS], right: &mut [[__m256; 2]; ROWS]) {
    for (left, right) in left.iter().zip(right) {
        *right = [_mm256_add_ps(left[0], right[0]), _mm256_add_ps(left[1], right[1])];
    }
}

/// Cuts `count` into equal parts of at most `most`.
pub fn parts(count: usize, most: usize) -> impl DoubleEndedIterator<Item = Range<usize>> {
    let parts = count.div_ceil(most);
    (0..parts).map(move |i| i * count / parts..(i + 1) * count / parts)
}

/// Cuts `count` into equal shares, and each of these into as many equal parts of at most `most`.
pub fn shares(count: usize, shares: usize, most: usize) -> Vec<Range<usize>> {
    let a_share = count.div_ceil(shares).div_ceil(most);
    let cut = |range: Range<usize>, i: usize| range.start + i * range.len() / a_share;
    let share = |i: usize| i * count / shares..(i + 1) * count / shares;
    (0..shares).flat_map(|i| (0..a_share).map(move |j| cut(share(i), j)..cut(share(i), j + 1))).collect()
}

/// The convolution of [`Unfolded::forward`].
///
/// # Safety
/// As for [`crate::gemm::drive::multiply_staged`], with the scratch memory of [`forward_bytes`].
pub unsafe fn forward(
    u: &Unfolded,
    images: &Images<f32>,
    w: *const f32,
    out: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let window = &u.window;
    let side = window.unfolded(&window.image(), images.sample());
    let (terms, pairs) = (side.terms.all(), pairs(window, &side));
    let (positions, outputs) = (window.positions(), window.outputs);
    let bytes = room::<u8>(images.room(1));
    let rooms = arena.slots(context.par.lanes(), bytes);
    let (w, out) = (Shared(w.cast_mut()), Shared(out));
    with_slots(context.par, context.par.lanes(), window.samples * window.groups, |slot, task| {
        let (sample, group) = (task / window.groups, task % window.groups);
        let range = sample * positions..(sample + 1) * positions;
        let room = rooms.room(slot).take::<u8>(bytes).cast();
        // SAFETY: the slot's room, the task's part of the result, operands of the caller.
        unsafe {
            let x = images.stage(group, range, 0..terms.len(), room, &mut (0..0));
            let x = x.wrapping_add(sample * images.sample());
            for rows in parts(outputs, FORWARD.len()) {
                let first = group * outputs + rows.start;
                let call = Forward {
                    x,
                    w: w.pointer().add(first * terms.len()),
                    out: out.pointer().add((sample * window.groups * outputs + first) * positions),
                    positions,
                    terms: &terms,
                    block: u.size.block,
                };
                FORWARD[rows.len() - 1](&call, &pairs);
            }
        }
    });
}

/// Elements of a kernel up to which [`weight`] was measured to be faster than a product.
const KERNEL: usize = 2 * LANES;

/// Whether [`weight`] is the better way at levels that can run it: the kernel is small, there are blocks for all
/// threads, and vectors of outputs are filled.
pub fn suits_weight(u: &Unfolded, threads: usize) -> bool {
    let (outputs, blocks) = (u.window.outputs, u.size.terms.div_ceil(u.size.block));
    let partial = blocks * u.size.columns * outputs.next_multiple_of(LANES);
    u.size.terms * u.size.columns * outputs > 0
        && u.size.columns <= KERNEL
        && balanced(blocks, threads)
        && partial <= PARTIAL
        && 5 * outputs >= 4 * outputs.next_multiple_of(LANES)
}

/// Whether threads that take whole blocks have about equally much to do.
pub fn balanced(blocks: usize, threads: usize) -> bool {
    blocks.is_multiple_of(threads) || blocks >= 8 * threads
}

/// Numbers of all blocks' sums, at most: more would not stay in the caches.
pub const PARTIAL: usize = 1 << 20;

/// Bytes for: all blocks' sums; for each slot the images and the packed gradient.
fn weight_rooms(u: &Unfolded, images: &Images<f32>) -> [usize; 3] {
    let across = u.window.outputs.next_multiple_of(LANES);
    let blocks = u.size.terms.div_ceil(u.size.block);
    [room::<f32>(blocks * u.size.columns * across), room::<u8>(images.room(DEPTH)), room::<f32>(DEPTH * across + SLACK)]
}

/// Bytes of scratch memory for [`weight`].
pub fn weight_bytes(u: &Unfolded, images: &Images<f32>, threads: usize) -> usize {
    let [partial, stage, packed] = weight_rooms(u, images);
    partial * u.window.groups + (stage + packed) * threads
}

/// What a tile of [`weight`] reads and updates.
struct Weight<'a> {
    x: *const f32,
    /// The gradient, the tile's outputs of a term side by side.
    dy: *const f32,
    /// The sums so far, and the distance of their rows.
    sums: *mut f32,
    across: usize,
    /// Offsets of the tile's rows in the images.
    rows: &'a [isize],
    /// Offsets of the terms in the images.
    terms: &'a [isize],
}

type WeightTile = unsafe fn(&Weight);

macro_rules! weight_tiles {
    ($vectors:literal: $($rows:literal)*) => { &[$(weight_tile::<$rows, $vectors>),*] };
}

/// Microkernels of one, two and three vectors, by rows.
const WEIGHT: [&[WeightTile]; 3] =
    [weight_tiles!(1: 1 2 3 4 5 6 7 8), weight_tiles!(2: 1 2 3 4 5 6), weight_tiles!(3: 1 2 3 4)];

/// Adds terms to the sums of `ROWS` elements of a kernel for `VECTORS` of outputs.
///
/// # Safety
/// The processor must have AVX2 and FMA; elements must be readable, sums writable.
#[target_feature(enable = "avx2,fma")]
unsafe fn weight_tile<const ROWS: usize, const VECTORS: usize>(call: &Weight) {
    // SAFETY: the caller's promise.
    unsafe {
        let sums = |i: usize, j: usize| call.sums.add(i * call.across + j * LANES);
        let mut acc = [[_mm256_setzero_ps(); VECTORS]; ROWS];
        for (i, row) in acc.iter_mut().enumerate() {
            for (j, sum) in row.iter_mut().enumerate() {
                *sum = _mm256_loadu_ps(sums(i, j));
            }
        }
        let mut x = [call.x; ROWS];
        for (x, &row) in x.iter_mut().zip(call.rows) {
            *x = call.x.wrapping_offset(row);
        }
        let mut dy = call.dy;
        for &term in call.terms {
            let mut right = [_mm256_setzero_ps(); VECTORS];
            for (j, right) in right.iter_mut().enumerate() {
                *right = _mm256_loadu_ps(dy.add(j * LANES));
            }
            for (i, row) in acc.iter_mut().enumerate() {
                let left = _mm256_broadcast_ss(&*x[i].wrapping_offset(term));
                for (j, sum) in row.iter_mut().enumerate() {
                    *sum = _mm256_fmadd_ps(left, right[j], *sum);
                }
            }
            dy = dy.add(VECTORS * LANES);
        }
        for (i, row) in acc.iter().enumerate() {
            for (j, &sum) in row.iter().enumerate() {
                _mm256_storeu_ps(sums(i, j), sum);
            }
        }
    }
}

/// Vectors of outputs cut into threes and twos; one alone only where there is just one.
fn panels(outputs: usize) -> Vec<Range<usize>> {
    let (vectors, mut start) = (outputs.div_ceil(LANES), 0);
    let mut panels = Vec::new();
    while start < vectors {
        let left = vectors - start;
        let next = start + if left == 4 { 2 } else { left.min(3) };
        panels.push(start * LANES..next * LANES);
        start = next;
    }
    panels
}

/// The gradient of [`Unfolded::weight`].
///
/// # Safety
/// As for [`crate::gemm::drive::multiply_staged`], with the scratch memory of [`weight_bytes`].
pub unsafe fn weight(
    u: &Unfolded,
    images: &Images<f32>,
    dy: *const f32,
    out: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let (window, size) = (&u.window, &u.size);
    let side = window.unfolded(&window.image(), images.sample());
    let rows = side.terms.all();
    let outputs = u.left.lines.all();
    let across = window.outputs.next_multiple_of(LANES);
    let (blocks, numbers, panels) = (size.terms.div_ceil(size.block), size.columns * across, panels(window.outputs));
    let [partial_bytes, stage_bytes, packed_bytes] = weight_rooms(u, images);
    let slots = context.par.lanes();
    let rooms = arena.slots(slots, stage_bytes + packed_bytes);
    let partials: Vec<Shared<f32>> =
        (0..window.groups).map(|_| Shared(arena.split(partial_bytes).take(blocks * numbers))).collect();
    let dy = Shared(dy.cast_mut());
    with_slots(context.par, slots, window.groups * blocks, |slot, task| {
        let (group, block) = (task / blocks, task % blocks);
        let mut arena = rooms.room(slot);
        let (room, packed) =
            (arena.split(stage_bytes).take::<u8>(stage_bytes).cast(), arena.take::<f32>(DEPTH * across + SLACK));
        let all = block * size.block..((block + 1) * size.block).min(size.terms);
        let (mut staged, mut left, mut right) = (0..0, [0; DEPTH], [0; DEPTH]);
        // SAFETY: the slot's room, the task's sums, operands of the caller.
        unsafe {
            let sums = partials[group].slice(block * numbers, numbers);
            sums.fill(0.0);
            for start in all.clone().step_by(DEPTH) {
                let terms = start..(start + DEPTH).min(all.end);
                let (left, right) = (&mut left[..terms.len()], &mut right[..terms.len()]);
                u.left.terms.fill(terms.start, left);
                side.lines.fill(terms.start, right);
                let x = images.stage(group, 0..size.columns, terms, room, &mut staged);
                let dy = dy.pointer().offset(u.lefts.at(group)).cast_const();
                for panel in &panels {
                    let packed = packed.add(panel.start * left.len());
                    let outputs = &outputs[panel.start..panel.end.min(window.outputs)];
                    pack(context.level, dy, outputs, left, dense(panel.len(), left.len()), packed);
                    let tiles = WEIGHT[panel.len() / LANES - 1];
                    for part in parts(size.columns, tiles.len()) {
                        let call = Weight {
                            x,
                            dy: packed,
                            sums: sums.as_mut_ptr().add(part.start * across + panel.start),
                            across,
                            rows: &rows[part.clone()],
                            terms: right,
                        };
                        tiles[part.len() - 1](&call);
                    }
                }
            }
        }
    });
    let out = Shared(out);
    for (group, partial) in partials.iter().enumerate() {
        let store = |row: usize, sums: &[f32]| {
            for (output, &sum) in sums[..window.outputs].iter().enumerate() {
                // SAFETY: an element of the kernel that no other row has.
                unsafe { *out.pointer().add((group * window.outputs + output) * size.columns + row) = sum };
            }
        };
        // SAFETY: the sums of all blocks, which no task writes any more.
        unsafe { add_blocks(context, *partial, blocks, size.columns, across, &store) };
    }
}

/// Adds up the sums of blocks, each `rows` rows `across` long, by the tree of adjacent pairs, and calls
/// `store(row, sums)`.
///
/// # Safety
/// The sums must be there and used by nobody else.
pub unsafe fn add_blocks(
    context: Context,
    sums: Shared<f32>,
    blocks: usize,
    rows: usize,
    across: usize,
    store: &(dyn Fn(usize, &[f32]) + Sync),
) {
    context.par.ranges(rows, 1 + 16384 / (across * blocks), &|range| {
        // SAFETY: the rows of this task.
        let sum = |block: usize| unsafe { sums.slice((block * rows + range.start) * across, range.len() * across) };
        let mut step = 1;
        while step < blocks {
            for block in (0..blocks - step).step_by(2 * step) {
                add_right(context.level, sum(block), sum(block + step));
            }
            step *= 2;
        }
        sum(0).chunks_exact(across).zip(range.clone()).for_each(|(sums, row)| store(row, sums));
    });
}

#[inline(always)]
fn add_right_body(left: &mut [f32], right: &[f32]) {
    left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
}

meshwork_simd::multiversion! {
    /// Adds numbers to the right of others.
    fn add_right(left: &mut [f32], right: &[f32]) = add_right_body;
}

/// Whether a level can run these kernels.
pub fn runs(level: Level) -> bool {
    level >= Level::Avx2
}
