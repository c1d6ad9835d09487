//! The gradient by the weight for f32 and AVX2 or AVX-512 where there are blocks of samples for all numbers of a vector.
//!
//! Samples of different blocks lie abreast (`conv/abreast_x86.rs`), so every number of a vector is the sum of a block of its own.
//! Where there are fewer blocks than numbers, so do several channels. Tiles of outputs × (channel, tap) take up one sample
//! of every block after the other.

use super::Unfolded;
use super::abreast_x86::{Abreast, LANES, TAPS, filled, join};
use super::direct_x86::{balanced, parts, shares};
use crate::Context;
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use crate::par::with_slots;
use meshwork_graph::canonical::in_tree_order;
use std::arch::x86_64::*;
use std::ops::Range;

/// Positions whose vectors are held at once, about.
const DEPTH: usize = 192;

/// Numbers of a task's images, at most: more would not stay in the caches.
const IMAGES: usize = 1 << 18;

/// Numbers of a task's sums, at most, if there are outputs to part.
const SUMS: usize = 1 << 18;

/// How vectors are filled.
#[derive(Clone, Copy)]
pub struct Fill {
    /// Numbers in a vector.
    lanes: usize,
    /// Blocks abreast.
    blocks: usize,
}

impl Fill {
    /// All ways for vectors of so many numbers, the fastest first: two channels abreast share gradients, of which more stay in the
    /// first cache (1 % for 256 samples on Zen 4), four have more roots to add.
    fn all(lanes: usize) -> impl Iterator<Item = Fill> {
        let channels: &[usize] = if lanes == LANES[0] { &[1] } else { &[2, 1, 4] };
        channels.iter().map(move |channels| Fill { lanes, blocks: lanes / channels })
    }

    /// The microkernels, by rows and by columns.
    fn kernels(self) -> &'static [&'static [Tile]] {
        let by_channels = if self.lanes == LANES[0] { AVX2 } else { AVX512 };
        by_channels[self.channels().ilog2() as usize]
    }

    /// Channels abreast.
    fn channels(self) -> usize {
        self.lanes / self.blocks
    }

    /// Calls `join(rows, lane, wide)` for the `samples` rows of each channel abreast, which go to `wide` numbers from `lane` on;
    /// for all at once where none is missing.
    fn each(self, rows: &[isize], samples: usize, mut join: impl FnMut(&[isize], usize, usize)) {
        if rows.len() == self.lanes {
            return join(rows, 0, self.lanes);
        }
        for channel in 0..self.channels() {
            let first = (channel * samples).min(rows.len());
            join(&rows[first..(first + samples).min(rows.len())], channel * self.blocks, self.blocks);
        }
    }
}

/// What the work is cut into.
struct Cut {
    fill: Fill,
    /// Samples of a block, and blocks.
    unit: usize,
    blocks: usize,
    /// Columns: (channel, tap), where a channel stands for those abreast.
    columns: usize,
    /// Samples of a block that are taken up at once.
    together: usize,
    /// The outputs of tiles, as many of each part.
    rows: Vec<Range<usize>>,
    /// Tasks that share the outputs.
    parts: usize,
}

impl Cut {
    fn new(u: &Unfolded, fill: Fill, threads: usize) -> Self {
        let (window, positions) = (&u.window, u.window.positions().max(1));
        let unit = (u.size.block / positions).max(1);
        let mut cut = Cut {
            fill,
            unit,
            blocks: window.samples.div_ceil(unit),
            columns: window.channels.div_ceil(fill.channels()) * window.taps(),
            together: (DEPTH / positions).clamp(1, unit),
            rows: Vec::new(),
            parts: 1,
        };
        let tasks = cut.rounds() * window.groups;
        let high = fill.kernels().len();
        let most = window.outputs.div_ceil(high);
        let least = (window.outputs * cut.columns * fill.lanes).div_ceil(SUMS).min(most).max(1);
        cut.parts = (least..=most).find(|parts| balanced(tasks * parts, threads)).unwrap_or(least);
        cut.rows = shares(window.outputs, cut.parts, high);
        cut
    }

    /// How often blocks abreast are taken up.
    fn rounds(&self) -> usize {
        self.blocks.div_ceil(self.fill.blocks)
    }

    /// The tiles of a task's outputs.
    fn part(&self, part: usize) -> &[Range<usize>] {
        &self.rows[part * self.rows.len() / self.parts..(part + 1) * self.rows.len() / self.parts]
    }

    /// Outputs of a task at most.
    fn outputs(&self) -> usize {
        (0..self.parts).map(|part| self.part(part).iter().map(Range::len).sum()).max().unwrap_or(0)
    }

    /// Numbers of all images of a task, and of one sample of every block.
    fn images(&self, u: &Unfolded) -> [usize; 2] {
        let one = Abreast::new(&u.window, self.fill.lanes).channel() * u.window.channels.div_ceil(self.fill.channels());
        [self.together * one, one]
    }
}

/// Whether a cut suits the threads.
fn suits(u: &Unfolded, threads: usize, cut: &Cut) -> bool {
    let fill = cut.fill;
    u.size.terms > 0
        && u.window.taps() >= TAPS
        && u.size.rows >= 4
        && u.size.columns >= 4
        && filled(cut.blocks, fill.blocks)
        && filled(u.window.channels, fill.channels())
        && cut.images(u)[0] <= IMAGES
        && balanced(cut.rounds() * u.window.groups * cut.parts, threads)
}

/// The best way of filling vectors of so many numbers, if this is the better way at all: that whose tasks share the fewest outputs.
/// Where tasks have samples to themselves, an image is copied once, by the thread that has it in its caches; lines that two
/// threads have read cost their writer a wait for the other's in the next step (7 to 37 ns each on Zen 4, not 1).
pub fn fill(u: &Unfolded, threads: usize, lanes: usize) -> Option<Fill> {
    let cuts = Fill::all(lanes).map(|fill| Cut::new(u, fill, threads));
    cuts.filter(|cut| suits(u, threads, cut)).min_by_key(|cut| cut.parts).map(|cut| cut.fill)
}

/// Bytes for: the sums of a round, one for every block tree; a slot's sums, images, and gradients by the output.
fn rooms(u: &Unfolded, cut: &Cut) -> [usize; 4] {
    let (window, lanes) = (&u.window, cut.fill.lanes);
    [
        room::<f32>(cut.fill.channels() * window.outputs * cut.columns),
        room::<f32>(cut.outputs() * cut.columns * lanes),
        room::<f32>(cut.images(u)[0]),
        room::<f32>(cut.together * window.positions() * cut.outputs() * cut.fill.blocks),
    ]
}

/// Bytes of scratch memory for [`weight`].
pub fn bytes(u: &Unfolded, threads: usize, fill: Fill) -> usize {
    let cut = Cut::new(u, fill, threads);
    let [roots, slot @ ..] = rooms(u, &cut);
    roots * cut.rounds() * u.window.groups + slot.iter().sum::<usize>() * threads
}

/// What a tile reads and updates.
struct Call<'a> {
    /// The images.
    x: *const f32,
    /// Offsets of the columns, from a position's place.
    columns: &'a [isize],
    /// Offsets of the positions.
    positions: &'a [isize],
    /// The gradients of the tile's outputs, position by position: a number for every block.
    dy: *const f32,
    /// The sums so far of the first output.
    sums: *mut f32,
    /// The distance of the outputs' sums.
    output: usize,
}

type Tile = unsafe fn(&Call);

macro_rules! table {
    ($name:ident, $channels:tt, $tiles:tt) => { table!(@channels $name, $channels, $tiles) };
    (@channels $name:ident, [$($channels:literal)*], $tiles:tt) => { &[$(table!(@rows $name, $channels, $tiles)),*] };
    (@rows $name:ident, $channels:literal, [$($rows:literal: $columns:tt),*]) => {
        &[$(table!(@columns $name, $channels, $rows, $columns)),*]
    };
    (@columns $name:ident, $channels:literal, $rows:literal, [$($columns:literal)*]) => {
        &[$($name::<$channels, $rows, $columns>),*]
    };
}

/// Defines the microkernels of a level, by channels abreast, by rows and by columns.
macro_rules! tiles {
    (
        $name:ident, $table:ident, $feature:literal, $vector:ty, $lanes:literal, $channels:tt, $tiles:tt,
        $zero:path, $load:path, $repeat:ident, $store:path, $fma:path
    ) => {
        const $table: &[&[&[Tile]]] = table!($name, $channels, $tiles);

        /// Adds some positions to the sums of `ROWS` outputs for `COLUMNS`, with `CHANNELS` abreast.
        ///
        /// # Safety
        /// The processor must have the instructions; elements must be readable, sums writable.
        #[target_feature(enable = $feature)]
        unsafe fn $name<const CHANNELS: usize, const ROWS: usize, const COLUMNS: usize>(call: &Call) {
            // SAFETY: the caller's promise.
            unsafe {
                let sums = |i: usize, j: usize| call.sums.add(i * call.output + j * $lanes);
                let x: [*const f32; COLUMNS] = std::array::from_fn(|j| call.x.offset(call.columns[j]));
                let mut dy = call.dy;
                let mut acc: [[$vector; COLUMNS]; ROWS] = [[$zero(); COLUMNS]; ROWS];
                for (i, row) in acc.iter_mut().enumerate() {
                    for (j, sum) in row.iter_mut().enumerate() {
                        *sum = $load(sums(i, j));
                    }
                }
                for &position in call.positions {
                    let mut right = [$zero(); COLUMNS];
                    for (right, x) in right.iter_mut().zip(x) {
                        *right = $load(x.offset(position));
                    }
                    for (i, row) in acc.iter_mut().enumerate() {
                        let left = $repeat::<CHANNELS>(dy.add(i * ($lanes / CHANNELS)));
                        for (sum, &right) in row.iter_mut().zip(&right) {
                            *sum = $fma(left, right, *sum);
                        }
                    }
                    dy = dy.add(ROWS * ($lanes / CHANNELS));
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
    avx2, AVX2, "avx2,fma", __m256, 8, [1], [1: [1 2 3], 2: [1 2 3], 3: [1 2 3]],
    _mm256_setzero_ps, _mm256_loadu_ps, repeat_avx2, _mm256_storeu_ps, _mm256_fmadd_ps
);
tiles!(
    avx512, AVX512, "avx512f", __m512, 16, [1 2 4],
    [1: [1 2 3 4 5], 2: [1 2 3 4 5], 3: [1 2 3 4 5], 4: [1 2 3 4 5], 5: [1 2 3 4 5]],
    _mm512_setzero_ps, _mm512_loadu_ps, repeat_avx512, _mm512_storeu_ps, _mm512_fmadd_ps
);

/// Eight numbers.
///
/// # Safety
/// They must be readable.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn repeat_avx2<const TIMES: usize>(from: *const f32) -> __m256 {
    const { assert!(TIMES == 1) };
    // SAFETY: the caller's promise.
    unsafe { _mm256_loadu_ps(from) }
}

/// Sixteen numbers: the first eight or four of them, if they are there so many times.
///
/// # Safety
/// They must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn repeat_avx512<const TIMES: usize>(from: *const f32) -> __m512 {
    // SAFETY: the caller's promise.
    unsafe {
        match TIMES {
            1 => _mm512_loadu_ps(from),
            2 => _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_loadu_pd(from.cast()))),
            _ => _mm512_broadcast_f32x4(_mm_loadu_ps(from)),
        }
    }
}

/// The gradient of [`Unfolded::weight`].
///
/// # Safety
/// As for [`crate::gemm::drive::multiply_staged`], with the scratch memory of [`bytes`], and the processor must have the vectors.
pub unsafe fn weight(
    (u, fill): (&Unfolded, Fill),
    x: *const f32,
    dy: *const f32,
    out: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let (window, lanes, abreast) = (&u.window, fill.lanes, fill.channels());
    let slots = context.par.lanes();
    let cut = Cut::new(u, fill, slots);
    let (outputs, plane, rounds) = (window.outputs, window.positions(), cut.rounds());
    let images = Abreast::new(window, lanes);
    let [_, image] = cut.images(u);
    let positions: Vec<isize> = (0..cut.together)
        .flat_map(|i| images.positions().into_iter().map(move |position| (i * image) as isize + position))
        .collect();
    let terms = images.terms();
    let columns: Vec<Range<usize>> = parts(cut.columns, fill.kernels()[0].len()).collect();
    let [roots_bytes, slot_bytes @ ..] = rooms(u, &cut);
    let slot_bytes: usize = slot_bytes.iter().sum();
    let rooms = arena.slots(slots, slot_bytes);
    let roots: Vec<Shared<f32>> = (0..window.groups * rounds)
        .map(|_| Shared(arena.split(roots_bytes).take(abreast * outputs * cut.columns)))
        .collect();
    let (x, dy, out) = (Shared(x.cast_mut()), Shared(dy.cast_mut()), Shared(out));
    with_slots(context.par, slots, window.groups * rounds * cut.parts, |slot, task| {
        let (tiles, rest) = (cut.part(task % cut.parts), task / cut.parts);
        let (group, round) = (rest / rounds, rest % rounds);
        let mine = tiles[0].start..tiles[tiles.len() - 1].end;
        let mut room = rooms.room(slot);
        let count = mine.len() * cut.columns * lanes;
        let sums: *mut f32 = room.take(cut.outputs() * cut.columns * lanes);
        let staged: *mut f32 = room.take(cut.together * image);
        let gradients: *mut f32 = room.take(cut.together * plane * cut.outputs() * fill.blocks);
        let blocks = round * fill.blocks..((round + 1) * fill.blocks).min(cut.blocks);
        // SAFETY: the slot's rooms, the task's part of the round's roots, operands of the caller.
        unsafe {
            sums.write_bytes(0, count);
            for first in (0..cut.unit).step_by(cut.together) {
                let together = cut.together.min(cut.unit - first);
                for i in 0..together {
                    let samples = blocks.clone().map(|block| block * cut.unit + first + i);
                    let samples: Vec<usize> = samples.filter(|&sample| sample < window.samples).collect();
                    // Where what is abreast lies: of samples, and so for every channel.
                    let of = |sample: usize, size: usize| (sample * window.groups + group) * size;
                    let input = |channel: usize, sample: usize| {
                        (of(sample, window.channels * window.plane()) + channel * window.plane()) as isize
                    };
                    let channels =
                        (0..abreast).flat_map(|channel| samples.iter().map(move |&sample| input(channel, sample)));
                    let inputs: Vec<isize> = channels.collect();
                    for channel in (0..window.channels).step_by(abreast) {
                        let to = staged.add(i * image + channel / abreast * images.channel());
                        let from = x.pointer().add(channel * window.plane());
                        let here = abreast.min(window.channels - channel);
                        fill.each(&inputs[..here * samples.len()], samples.len(), |rows, lane, wide| {
                            images.join(from, rows, to.add(lane), wide);
                        });
                    }
                    let lefts: Vec<isize> =
                        samples.iter().map(|&sample| of(sample, outputs * plane) as isize).collect();
                    for tile in tiles {
                        let to = gradients.add((tile.start - mine.start) * together * plane * fill.blocks);
                        let to = to.add(i * plane * tile.len() * fill.blocks);
                        for output in tile.clone() {
                            let from = dy.pointer().add(output * plane);
                            let to = to.add((output - tile.start) * fill.blocks);
                            join(lanes, from, &lefts, plane, to, [tile.len() * fill.blocks, fill.blocks]);
                        }
                        if samples.len() < blocks.len() {
                            // A last block without this sample keeps its sums: it gets +0 · −0.
                            for vector in 0..plane * tile.len() {
                                *to.add(vector * fill.blocks + samples.len()) = -0.0;
                            }
                        }
                    }
                }
                for tile in tiles {
                    let place = tile.start - mine.start;
                    for range in &columns {
                        let columns = &terms[range.clone()];
                        let call = Call {
                            x: staged,
                            columns,
                            positions: &positions[..together * plane],
                            dy: gradients.add(place * together * plane * fill.blocks),
                            sums: sums.add((place * cut.columns + range.start) * lanes),
                            output: cut.columns * lanes,
                        };
                        fill.kernels()[tile.len() - 1][columns.len() - 1](&call);
                    }
                }
            }
            let to = roots[rest].pointer().add(mine.start * cut.columns);
            let sums = std::slice::from_raw_parts(sums, count);
            merge(context, fill, sums, blocks.len(), to, outputs * cut.columns);
        }
    });
    finish(u, &cut, &roots, out, context);
}

/// Adds up the blocks of sums by the tree of adjacent pairs; those of each channel abreast go to `to`, `distance` apart.
///
/// # Safety
/// The processor must have the vectors; the results must be writable.
unsafe fn merge(context: Context, fill: Fill, sums: &[f32], blocks: usize, to: *mut f32, distance: usize) {
    let lanes = fill.lanes;
    let rows: [isize; 16] = std::array::from_fn(|i| (i * lanes) as isize);
    let mut turned = [0.0; 16 * 16];
    for (i, sums) in sums.chunks(lanes * lanes).enumerate() {
        let count = sums.len() / lanes;
        // SAFETY: as many vectors; results of the caller.
        unsafe {
            join(lanes, sums.as_ptr(), &rows[..count], lanes, turned.as_mut_ptr(), [lanes, lanes]);
            for (channel, turned) in turned[..lanes * lanes].chunks_exact_mut(fill.blocks * lanes).enumerate() {
                add_rows(context.level, turned, lanes, blocks);
                let to = to.add(channel * distance + i * lanes);
                to.copy_from_nonoverlapping(turned.as_ptr(), count);
            }
        }
    }
}

#[inline(always)]
fn add_rows_body(rows: &mut [f32], across: usize, count: usize) {
    in_tree_order(count, |left, right| {
        let (head, tail) = rows.split_at_mut(right * across);
        head[left * across..][..across].iter_mut().zip(&tail[..across]).for_each(|(left, right)| *left += right);
    });
}

meshwork_simd::multiversion! {
    /// Adds up some rows by the tree of adjacent pairs, into the first one.
    fn add_rows(rows: &mut [f32], across: usize, count: usize) = add_rows_body;
}

/// Adds up the rounds and writes the result.
fn finish(u: &Unfolded, cut: &Cut, roots: &[Shared<f32>], out: Shared<f32>, context: Context) {
    let (window, abreast, taps) = (&u.window, cut.fill.channels(), u.window.taps());
    context.par.ranges(window.groups * window.outputs, 8, &|range| {
        let mut sums = vec![0.0; cut.rounds() * taps];
        for row in range {
            let (group, output) = (row / window.outputs, row % window.outputs);
            let rounds = &roots[group * cut.rounds()..][..cut.rounds()];
            for channel in 0..window.channels {
                let column = channel / abreast * taps;
                let place = (channel % abreast * window.outputs + output) * cut.columns + column;
                // SAFETY: sums that no task writes any more, a channel of the result that no other one has.
                unsafe {
                    for (sums, round) in sums.chunks_exact_mut(taps).zip(rounds) {
                        sums.copy_from_slice({ *round }.slice(place, taps));
                    }
                    add_rows(context.level, &mut sums, taps, rounds.len());
                    out.slice((row * window.channels + channel) * taps, taps).copy_from_slice(&sums[..taps]);
                }
            }
        }
    });
}
