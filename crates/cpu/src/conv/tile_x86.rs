//! Tiles of outputs × positions from images abreast (`conv/abreast_x86.rs`), for AVX2 and AVX-512.

use super::abreast_x86::LANES;
use super::direct_x86::{balanced, shares};
use crate::Context;
use crate::Level;
use crate::gemm::pack::{SLACK, dense, pack};
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Levels of the tree over blocks.
const LEVELS: usize = 8;

/// Blocks of a sum at most.
pub const BLOCKS: usize = 1 << LEVELS;

/// Shares of the outputs at most: each copies the images for itself.
const SHARES: usize = 4;

/// Where a position is read and where its sums go.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Offset of its vectors.
    pub from: isize,
    /// Offset of its sums.
    pub to: isize,
}

/// What tiles read and update.
pub struct Call<'a> {
    /// The weights of the tile's outputs, term by term.
    pub w: *const f32,
    /// The images.
    pub x: *const f32,
    /// Where the vector of a term lies, counted from a position's place.
    pub terms: &'a [isize],
    /// Terms of a block.
    pub block: usize,
    /// The positions.
    pub places: &'a [Place],
    /// The sums of the first output.
    pub out: *mut f32,
    /// The distance of the outputs' sums.
    pub output: usize,
}

/// A microkernel: computes a call for so many positions a tile.
///
/// # Safety
/// The processor must have the instructions; elements must be readable, sums writable.
pub type Tiles = unsafe fn(&Call);

macro_rules! table {
    ($name:ident, $add:literal, [$($columns:literal: $rows:tt),*]) => {
        &[$(table!($name, $columns, $add, $rows)),*]
    };
    ($name:ident, $columns:literal, $add:literal, [$($rows:literal)*]) => {
        &[$($name::<$rows, $columns, $add>),*]
    };
}

/// Defines the microkernels of a level: those that store sums, and those that add them, by positions and by rows.
macro_rules! tiles {
    (
        $name:ident, $table:ident, $feature:literal, $vector:ty, $tiles:tt,
        $zero:path, $load:path, $store:path, $splat:path, $fma:path, $add:path
    ) => {
        const $table: [&[&[Tiles]]; 2] = [table!($name, false, $tiles), table!($name, true, $tiles)];

        /// Computes tiles of `ROWS` outputs and `COLUMNS` positions.
        ///
        /// # Safety
        /// The processor must have the instructions; elements must be readable, sums writable.
        #[target_feature(enable = $feature)]
        unsafe fn $name<const ROWS: usize, const COLUMNS: usize, const ADD: bool>(call: &Call) {
            // A macro, because a closure might not be inlined.
            macro_rules! add {
                ($left:expr, $right:expr) => {
                    for (left, right) in $left.iter().zip(&mut $right) {
                        for (left, right) in left.iter().zip(right) {
                            *right = $add(*left, *right);
                        }
                    }
                };
            }
            for places in call.places.as_chunks::<COLUMNS>().0 {
                // SAFETY: the caller's promise.
                unsafe {
                    let mut tree = [MaybeUninit::<[[$vector; COLUMNS]; ROWS]>::uninit(); LEVELS];
                    let mut acc = [[$zero(); COLUMNS]; ROWS];
                    let x = places.map(|place| call.x.offset(place.from));
                    let (mut w, mut blocks) = (call.w, 0usize);
                    let mut terms = call.terms;
                    loop {
                        let (here, rest) = terms.split_at(terms.len().min(call.block));
                        for &term in here {
                            let right: [$vector; COLUMNS] = std::array::from_fn(|j| $load(x[j].offset(term)));
                            for (i, row) in acc.iter_mut().enumerate() {
                                let left = $splat(*w.add(i));
                                for (sum, &right) in row.iter_mut().zip(&right) {
                                    *sum = $fma(left, right, *sum);
                                }
                            }
                            w = w.add(ROWS);
                        }
                        terms = rest;
                        if terms.is_empty() {
                            break;
                        }
                        let level = blocks.trailing_ones() as usize;
                        for finished in &tree[..level] {
                            add!(finished.assume_init_ref(), acc);
                        }
                        tree[level].write(acc);
                        acc = [[$zero(); COLUMNS]; ROWS];
                        blocks += 1;
                    }
                    while blocks != 0 {
                        add!(tree[blocks.trailing_zeros() as usize].assume_init_ref(), acc);
                        blocks &= blocks - 1;
                    }
                    for (i, row) in acc.iter().enumerate() {
                        for (place, &sum) in places.iter().zip(row) {
                            let to = call.out.offset(place.to).add(i * call.output);
                            $store(to, if ADD { $add($load(to), sum) } else { sum });
                        }
                    }
                }
            }
        }
    };
}

tiles!(
    avx2, AVX2, "avx2,fma", __m256, [1: [1 2 3 4 5 6], 2: [1 2 3 4 5 6]],
    _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps
);
tiles!(
    avx512, AVX512, "avx512f", __m512,
    [1: [1 2 3 4 5 6 7 8], 2: [1 2 3 4 5 6 7 8], 3: [1 2 3 4 5 6 7 8]],
    _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_add_ps
);

/// The microkernels for vectors of so many numbers.
fn kernels(lanes: usize, add: bool) -> &'static [&'static [Tiles]] {
    (if lanes == LANES[0] { AVX2 } else { AVX512 })[usize::from(add)]
}

/// Outputs of a tile at most.
fn most(lanes: usize) -> usize {
    kernels(lanes, false)[0].len()
}

/// Cuts positions into those of tiles: of widest ones, and of two or less.
fn split(widest: usize, places: &[Place]) -> [std::slice::Chunks<'_, Place>; 2] {
    let count = places.len();
    // Two tiles of two instead of one of three and one of one, which has too few sums for the multipliers.
    let rest = if widest == 3 && count % 3 == 1 && count > 3 { 4 } else { count % widest };
    let (most, rest) = places.split_at(count - rest);
    [most.chunks(most.len().max(1)), rest.chunks(2)]
}

/// The positions of every tile.
pub fn columns(lanes: usize, places: &[Place]) -> impl DoubleEndedIterator<Item = &[Place]> {
    let widest = kernels(lanes, false).len();
    let [most, rest] = split(widest, places);
    most.flat_map(move |most| most.chunks(widest)).chain(rest)
}

/// The microkernel for tiles of so many outputs and positions; it stores sums, or adds them to what is there.
pub fn kernel(lanes: usize, rows: usize, columns: usize, add: bool) -> Tiles {
    kernels(lanes, add)[columns - 1][rows - 1]
}

/// Computes the positions of a call for so many outputs.
///
/// # Safety
/// The processor must have vectors of so many numbers; elements must be readable, sums writable.
pub unsafe fn run(lanes: usize, rows: usize, call: &Call) {
    let widest = kernels(lanes, false).len();
    for places in split(widest, call.places).into_iter().flatten() {
        // SAFETY: the caller's promise.
        unsafe { kernel(lanes, rows, places.len().min(widest), false)(&Call { places, ..*call }) };
    }
}

/// Into how many shares so many outputs are cut, for each of some tasks, so that threads have about equally much to do; 0 if
/// no number does that.
pub fn share_count(outputs: usize, lanes: usize, tasks: usize, threads: usize) -> usize {
    let most = outputs.div_ceil(most(lanes));
    (1..=most.min(SHARES)).find(|shares| balanced(tasks * shares, threads)).unwrap_or(0)
}

/// The tiles of so many outputs, as many of each of some equal shares.
pub fn tiles(outputs: usize, count: usize, lanes: usize) -> Vec<Range<usize>> {
    shares(outputs, count, most(lanes))
}

/// Numbers of the sums of a tile at most.
pub fn sums(lanes: usize) -> usize {
    most(lanes) * kernels(lanes, false).len() * lanes
}

/// Numbers of the weights of a tile.
pub fn panel(lanes: usize, terms: usize) -> usize {
    most(lanes) * terms + SLACK
}

/// Bytes of [`panel`].
pub fn panel_bytes(lanes: usize, terms: usize) -> usize {
    room::<f32>(panel(lanes, terms))
}

/// Copies the weights of all groups' tiles, which lie output by output, to a panel each.
///
/// # Safety
/// As for [`pack_panel`]; `arena` must have [`panel_bytes`] for each.
pub unsafe fn pack_panels(
    w: *const f32,
    [groups, outputs, terms]: [usize; 3],
    (tiles, lanes): (&[Range<usize>], usize),
    arena: &mut Arena,
    context: Context,
) -> Vec<Shared<f32>> {
    let panels: Vec<Shared<f32>> = (0..groups * tiles.len()).map(|_| Shared(arena.take(panel(lanes, terms)))).collect();
    let (w, along) = (Shared(w.cast_mut()), (0..terms as isize).collect::<Vec<_>>());
    context.par.ranges(panels.len(), 1, &|range| {
        for i in range {
            let (group, tile) = (i / tiles.len(), &tiles[i % tiles.len()]);
            let rows: Vec<isize> = tile.clone().map(|row| ((group * outputs + row) * terms) as isize).collect();
            // SAFETY: the caller's promise; a room of this task.
            unsafe { pack_panel(context.level, w.pointer(), &rows, &along, panels[i].pointer()) };
        }
    });
    panels
}

/// Copies the weights of a tile, whose outputs and terms lie there, term by term.
///
/// # Safety
/// The weights must be readable, `to` have [`panel`] numbers, and the processor be able to run `level`.
pub unsafe fn pack_panel(level: Level, w: *const f32, outputs: &[isize], terms: &[isize], to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { pack(level, w, outputs, terms, dense(outputs.len(), terms.len()), to) };
}
