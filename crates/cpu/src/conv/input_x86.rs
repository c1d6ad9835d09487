//! The gradient by the input for f32 and AVX2 where a row of the kernel over all channels fills vectors.
//!
//! A sample's gradient is summed up in an image with the channels side by side ([`Interleaved`]), which stays in the
//! first-level cache: what an output position gives to a row of the kernel are neighbours there. Tiles of positions × two
//! vectors of such a row are added to it at once. Rows of the kernel and their vectors ascend and positions descend, so
//! that every element of the image gets its taps in row-major order.

use super::direct_x86::balanced;
use super::interleaved_x86::{Interleaved, LANES, Row};
use super::window::Window;
use crate::Context;
use crate::gemm::drive::with_slots;
use crate::gemm::pack::{SLACK, pack};
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use crate::simd::Level;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Numbers of a panel of the weight, term by term.
const WIDTH: usize = 2 * LANES;

/// Elements of a sample's gradient by the output, at most: it stays in the first-level cache.
const GRADIENT: usize = 1 << 13;

/// Levels of the tree over blocks, of which the canonical order has four at most for so few outputs.
const LEVELS: usize = 2;

/// Whether this is the better way at levels that [`runs`] names.
pub fn suits(window: &Window, block: usize, threads: usize) -> bool {
    window.outputs >= LANES
        && (LANES..=GRADIENT).contains(&(window.outputs * window.positions()))
        && window.outputs.div_ceil(block) <= 1 << LEVELS
        && Interleaved::new(window).suits()
        && balanced(window.samples * window.groups, threads)
}

/// Whether a level can run this, and has no wider vectors.
pub fn runs(level: Level) -> bool {
    level == Level::Avx2
}

/// Bytes for: the panels of a group's weight; a slot's image.
fn rooms(window: &Window) -> [usize; 2] {
    let images = Interleaved::new(window);
    let panels = images.rows().len() * images.row().div_ceil(WIDTH);
    [panels * room::<f32>(WIDTH * window.outputs + SLACK), room::<f32>(images.len() + LANES)]
}

/// Bytes of scratch memory for [`gradient`].
pub fn bytes(window: &Window, threads: usize) -> usize {
    let [panels, image] = rooms(window);
    panels * window.groups + image * threads
}

/// What some tiles read and update.
struct Call {
    /// Tiles, whose positions follow each other.
    tiles: usize,
    /// The gradient of the first output at the first position, and the distance of the outputs.
    dy: *const f32,
    plane: usize,
    /// The panel of the weight.
    w: *const f32,
    /// Outputs, and those of a block.
    outputs: usize,
    block: usize,
    /// The vectors' elements under the first position of the image.
    image: *mut f32,
    /// Offsets of the positions.
    positions: *const isize,
    /// The lanes of the last vector that are elements.
    mask: __m256,
}

type Tiles = unsafe fn(&Call);

macro_rules! table {
    ($vectors:literal, $partial:literal: $($rows:literal)*) => { &[$(tiles::<$rows, $vectors, $partial>),*] };
}

/// Microkernels of one and two vectors, by rows; those whose last vector is whole, and those where it is not.
const TILES: [[&[Tiles]; 2]; 2] = [
    [table!(1, false: 1 2 3 4 5 6 7 8), table!(1, true: 1 2 3 4 5 6 7 8)],
    [table!(2, false: 1 2 3 4 5 6), table!(2, true: 1 2 3 4 5 6)],
];

/// Adds what tiles of `ROWS` positions give to `VECTORS` of a row of the kernel; of the last one only the lanes of the mask, where
/// it is `PARTIAL`.
///
/// # Safety
/// The processor must have AVX2 and FMA; elements must be readable, the image writable.
#[target_feature(enable = "avx2,fma")]
unsafe fn tiles<const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(call: &Call) {
    for tile in (0..call.tiles).rev() {
        // SAFETY: the caller's promise.
        unsafe {
            let mut tree = [MaybeUninit::<[[__m256; VECTORS]; ROWS]>::uninit(); LEVELS];
            let mut acc = [[_mm256_setzero_ps(); VECTORS]; ROWS];
            let (mut dy, mut w) = (call.dy.add(tile * ROWS), call.w);
            let (mut left, mut blocks) = (call.outputs, 0usize);
            loop {
                for _ in 0..left.min(call.block) {
                    let mut right = [_mm256_setzero_ps(); VECTORS];
                    for (j, right) in right.iter_mut().enumerate() {
                        *right = _mm256_loadu_ps(w.add(j * LANES));
                    }
                    for (i, row) in acc.iter_mut().enumerate() {
                        let x = _mm256_broadcast_ss(&*dy.add(i));
                        for (sum, &right) in row.iter_mut().zip(&right) {
                            *sum = _mm256_fmadd_ps(x, right, *sum);
                        }
                    }
                    (dy, w) = (dy.add(call.plane), w.add(VECTORS * LANES));
                }
                if left <= call.block {
                    break;
                }
                left -= call.block;
                let level = blocks.trailing_ones() as usize;
                for finished in &tree[..level] {
                    add(finished.assume_init_ref(), &mut acc);
                }
                tree[level].write(acc);
                acc = [[_mm256_setzero_ps(); VECTORS]; ROWS];
                blocks += 1;
            }
            while blocks != 0 {
                add(tree[blocks.trailing_zeros() as usize].assume_init_ref(), &mut acc);
                blocks &= blocks - 1;
            }
            let positions = call.positions.add(tile * ROWS);
            for (i, row) in acc.iter().enumerate().rev() {
                let to = call.image.offset(*positions.add(i));
                for (j, &sum) in row.iter().enumerate() {
                    let to = to.add(j * LANES);
                    let before = _mm256_loadu_ps(to);
                    let sum = _mm256_add_ps(before, sum);
                    let sum = if PARTIAL && j + 1 == VECTORS { choose(call.mask, sum, before) } else { sum };
                    _mm256_storeu_ps(to, sum);
                }
            }
        }
    }
}

/// Cuts positions into about equal tiles of at most `most` rows: for each height, the last positions first, where its
/// tiles begin, how many there are and how high.
fn heights(positions: usize, most: usize) -> [(usize, usize, usize); 2] {
    let tiles = positions.div_ceil(most);
    let (height, higher) = (positions / tiles, positions % tiles);
    [(higher * (height + 1), tiles - higher, height), (0, higher, height + 1)]
}

/// The lanes of `yes` in a mask, of `no` elsewhere. (A blend before a store would become a store under a mask, which is
/// slow.)
#[inline]
#[target_feature(enable = "avx2,fma")]
fn choose(mask: __m256, yes: __m256, no: __m256) -> __m256 {
    _mm256_or_ps(_mm256_and_ps(mask, yes), _mm256_andnot_ps(mask, no))
}

/// Adds a tile to the left of another.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn add<const ROWS: usize, const VECTORS: usize>(
    left: &[[__m256; VECTORS]; ROWS],
    right: &mut [[__m256; VECTORS]; ROWS],
) {
    for (left, right) in left.iter().zip(right) {
        for (left, right) in left.iter().zip(right) {
            *right = _mm256_add_ps(*left, *right);
        }
    }
}

/// A panel of the weight: some vectors of a row of the kernel.
struct Panel {
    /// Where its elements begin in an image, counted from the output position.
    offset: usize,
    /// The (channel, tap) of its elements.
    elements: Vec<isize>,
}

impl Panel {
    fn vectors(&self) -> usize {
        self.elements.len().div_ceil(LANES)
    }

    /// The lanes of the last vector that are elements.
    fn mask(&self) -> [i32; LANES] {
        let last = self.elements.len() - (self.vectors() - 1) * LANES;
        std::array::from_fn(|lane| -i32::from(lane < last))
    }
}

/// The panels of all rows of the kernel.
fn panels(images: &Interleaved) -> Vec<Panel> {
    let panel = |row: Row, first: usize| {
        let elements = first..(first + WIDTH).min(images.row());
        Panel { offset: row.offset + first, elements: elements.map(|i| images.element(row, i) as isize).collect() }
    };
    let firsts = || (0..images.row()).step_by(WIDTH);
    images.rows().into_iter().flat_map(|row| firsts().map(move |first| panel(row, first))).collect()
}

/// The gradient.
///
/// # Safety
/// The processor must be able to run the context's level, one that [`runs`] names; `dy`, `w` and `dx` must be dense and
/// those of the window, `dx` used by nobody else, and `arena` have [`bytes`].
pub unsafe fn gradient(
    window: &Window,
    block: usize,
    dy: *const f32,
    w: *const f32,
    dx: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let images = Interleaved::new(window);
    let (positions, panels) = (images.positions(), panels(&images));
    let (outputs, plane, numbers) = (window.outputs, positions.len(), window.channels * window.taps());
    let [_, image_bytes] = rooms(window);
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    let packed: Vec<Shared<f32>> =
        (0..window.groups * panels.len()).map(|_| Shared(arena.take(WIDTH * outputs + SLACK))).collect();
    let terms: Vec<isize> = (0..outputs).map(|output| (output * numbers) as isize).collect();
    context.par.ranges(packed.len(), 4, &|range| {
        for i in range {
            let (group, panel) = (i / panels.len(), &panels[i % panels.len()]);
            // SAFETY: the group's weight, and a room of this task.
            unsafe {
                let w = w.pointer().add(group * outputs * numbers);
                pack(context.level, w, &panel.elements, &terms, panel.vectors() * LANES, packed[i].pointer());
            }
        }
    });
    let slots = context.par.threads();
    let rooms = arena.split(image_bytes * slots);
    with_slots(context.par, slots, window.samples * window.groups, &|slot, task| {
        let group = task % window.groups;
        let image: *mut f32 = rooms.slot(slot, image_bytes).take(images.len() + LANES);
        // SAFETY: the slot's room, operands of the caller; the channels of the sample's group belong to this task.
        unsafe {
            image.write_bytes(0, images.len());
            let dy = dy.pointer().cast_const().add(task * outputs * plane);
            for (panel, packed) in panels.iter().zip(&packed[group * panels.len()..]) {
                let partial = !panel.elements.len().is_multiple_of(LANES);
                let kernels = TILES[panel.vectors() - 1][usize::from(partial)];
                let mask = panel.mask();
                for (first, tiles, height) in heights(plane, kernels.len()) {
                    if tiles == 0 {
                        continue;
                    }
                    let call = Call {
                        tiles,
                        dy: dy.add(first),
                        plane,
                        w: packed.pointer(),
                        outputs,
                        block,
                        image: image.add(panel.offset),
                        positions: positions[first..].as_ptr(),
                        mask: _mm256_loadu_ps(mask.as_ptr().cast()),
                    };
                    kernels[height - 1](&call);
                }
            }
            images.part(image, dx.pointer().add(task * window.channels * window.plane()));
        }
    });
}
