//! The gradient by the input for f32 and AVX2 or AVX-512 where a row of the kernel over all channels fills vectors.
//!
//! A sample's gradient is summed up in an image with the channels side by side ([`Interleaved`]), which stays in the
//! first-level cache: what an output position gives to a row of the kernel are neighbours there. Tiles of positions × one or
//! two vectors of such a row are added to it at once. Rows of the kernel and their vectors ascend and positions descend, so
//! that every element of the image gets its taps in row-major order.

use super::direct_x86::{balanced, parts};
use super::interleaved_x86::{Interleaved, LANES, Row, lanes};
use super::window::Window;
use crate::Context;
use crate::gemm::drive::with_slots;
use crate::gemm::kernel::opaque;
use crate::gemm::pack::{SLACK, dense, pack};
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Elements of a sample's gradient by the output, at most: it stays in the first-level cache.
const GRADIENT: usize = 1 << 13;

/// Outputs at least, and elements of such a gradient.
const MANY: usize = 8;

/// Lines of positions from which a tile's lie below each other.
const LINES: usize = 4;

/// Levels of the tree over blocks, of which the canonical order has four at most for so few outputs.
const LEVELS: usize = 2;

/// Whether this is the better way with vectors of so many numbers.
pub fn suits(window: &Window, block: usize, threads: usize, lanes: usize) -> bool {
    window.outputs >= MANY
        && (MANY..=GRADIENT).contains(&(window.outputs * window.positions()))
        && window.outputs.div_ceil(block) <= 1 << LEVELS
        && Interleaved::new(window, lanes).suits()
        && balanced(window.samples * window.groups, threads)
}

/// Bytes for: the panels of a group's weight; a slot's image.
fn rooms(window: &Window, images: &Interleaved) -> [usize; 2] {
    let width = width(images.lanes);
    let panels = images.rows().len() * images.row().div_ceil(width);
    [panels * room::<f32>(width * window.outputs + SLACK), room::<f32>(images.len() + images.lanes)]
}

/// Bytes of scratch memory for [`gradient`] with vectors of so many numbers.
pub fn bytes(window: &Window, threads: usize, lanes: usize) -> usize {
    let [panels, image] = rooms(window, &Interleaved::new(window, lanes));
    panels * window.groups + image * threads
}

/// What some tiles read and update.
struct Call {
    /// Tiles, how many positions they are apart, and how many the positions of a tile.
    tiles: usize,
    tile_step: usize,
    row_step: usize,
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
    mask: *const f32,
}

type Tiles = unsafe fn(&Call);

macro_rules! table {
    ($name:ident, $vectors:literal, $partial:literal, [$($rows:literal)*]) => { &[$($name::<$rows, $vectors, $partial>),*] };
}

/// Defines the microkernels of a level: of one vector and more, those whose last vector is whole and those where it is not, by
/// rows.
macro_rules! tiles {
    (
        $name:ident, $table:ident, $feature:literal, $vector:ty, $lanes:literal, [$($vectors:literal: $rows:tt),*],
        $zero:path, $load:path, $store:path, $splat:path, $fma:path, $add:path, $and:path, $andnot:path, $or:path
    ) => {
        const $table: &[[&[Tiles]; 2]] = &[$([table!($name, $vectors, false, $rows), table!($name, $vectors, true, $rows)]),*];

        /// Adds what tiles of `ROWS` positions give to `VECTORS` of a row of the kernel; of the last one only the lanes of the mask,
        /// where it is `PARTIAL`.
        ///
        /// # Safety
        /// The processor must have the instructions; elements must be readable, the image writable.
        #[target_feature(enable = $feature)]
        unsafe fn $name<const ROWS: usize, const VECTORS: usize, const PARTIAL: bool>(call: &Call) {
            // SAFETY: the caller's promise.
            let mask = unsafe { $load(call.mask) };
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
            for tile in (0..call.tiles).rev() {
                // SAFETY: the caller's promise.
                unsafe {
                    let mut tree = [MaybeUninit::<[[$vector; VECTORS]; ROWS]>::uninit(); LEVELS];
                    let mut acc = [[$zero(); VECTORS]; ROWS];
                    let first = tile * call.tile_step;
                    let (mut dy, mut w) = (call.dy.add(first), call.w);
                    let (mut left, mut blocks) = (call.outputs, 0usize);
                    loop {
                        for _ in 0..left.min(call.block) {
                            let mut right = [$zero(); VECTORS];
                            for (j, right) in right.iter_mut().enumerate() {
                                *right = $load(w.add(j * $lanes));
                            }
                            let mut from = dy;
                            for (i, row) in acc.iter_mut().enumerate() {
                                // An address has a multiple of a distance in it, up to two of these.
                                if i % 3 == 0 && i > 0 {
                                    from = opaque(from.add(3 * call.row_step));
                                }
                                let x = $splat(*from.add(i % 3 * call.row_step));
                                for (sum, &right) in row.iter_mut().zip(&right) {
                                    *sum = $fma(x, right, *sum);
                                }
                            }
                            (dy, w) = (dy.add(call.plane), w.add(VECTORS * $lanes));
                        }
                        if left <= call.block {
                            break;
                        }
                        left -= call.block;
                        let level = blocks.trailing_ones() as usize;
                        for finished in &tree[..level] {
                            add!(finished.assume_init_ref(), acc);
                        }
                        tree[level].write(acc);
                        acc = [[$zero(); VECTORS]; ROWS];
                        blocks += 1;
                    }
                    while blocks != 0 {
                        add!(tree[blocks.trailing_zeros() as usize].assume_init_ref(), acc);
                        blocks &= blocks - 1;
                    }
                    let positions = call.positions.add(first);
                    for (i, row) in acc.iter().enumerate().rev() {
                        let to = call.image.offset(*positions.add(i * call.row_step));
                        for (j, &sum) in row.iter().enumerate() {
                            let to = to.add(j * $lanes);
                            let before = $load(to);
                            let mut sum = $add(before, sum);
                            if PARTIAL && j + 1 == VECTORS {
                                // A blend before a store would become a store under a mask, which is slow.
                                sum = $or($and(mask, sum), $andnot(mask, before));
                            }
                            $store(to, sum);
                        }
                    }
                }
            }
        }
    };
}

tiles!(
    avx2, AVX2, "avx2,fma", __m256, 8, [1: [1 2 3 4 5 6 7 8], 2: [1 2 3 4 5 6]],
    _mm256_setzero_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_add_ps,
    _mm256_and_ps, _mm256_andnot_ps, _mm256_or_ps
);
tiles!(
    avx512, AVX512, "avx512f,avx512dq", __m512, 16,
    [1: [1 2 3 4 5 6 7 8 9 10 11 12], 2: [1 2 3 4 5 6 7 8 9 10 11 12]],
    _mm512_setzero_ps, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_add_ps,
    _mm512_and_ps, _mm512_andnot_ps, _mm512_or_ps
);

/// The microkernels for vectors of so many numbers.
fn kernels(lanes: usize) -> &'static [[&'static [Tiles]; 2]] {
    if lanes == 8 { AVX2 } else { AVX512 }
}

/// Numbers of a panel of the weight, term by term.
fn width(lanes: usize) -> usize {
    lanes * kernels(lanes).len()
}

/// Tiles of one height.
#[derive(Clone, Copy)]
struct Strip {
    /// The first position.
    first: usize,
    /// How many tiles.
    tiles: usize,
    /// Distance of tiles and of the positions in a tile.
    steps: [usize; 2],
    /// Positions of a tile.
    height: usize,
}

/// Cuts the positions of a plane into about equal tiles of at most `most`, in the order in which they are added: the last
/// position of every line before those on its left.
///
/// The positions of a tile lie below each other if there are enough lines. Where they are neighbours, what they add overlaps,
/// and every addition waits for the store of the one before.
fn strips(window: &Window, most: usize) -> Vec<Strip> {
    let (positions, width) = (window.positions(), window.output[2]);
    let lines = positions / width;
    if lines >= LINES {
        let strip = |part: Range<usize>| Strip {
            first: part.start * width,
            tiles: width,
            steps: [1, width],
            height: part.len(),
        };
        return parts(lines, most).map(strip).collect();
    }
    let tiles = positions.div_ceil(most);
    let (height, higher) = (positions / tiles, positions % tiles);
    let strip = |first, tiles, height| Strip { first, tiles, steps: [height, 1], height };
    let strips = [strip(higher * (height + 1), tiles - higher, height), strip(0, higher, height + 1)];
    strips.into_iter().filter(|strip| strip.tiles > 0).collect()
}

/// A panel of the weight: some vectors of a row of the kernel.
struct Panel {
    /// Where its elements begin in an image, counted from the output position.
    offset: usize,
    /// The (channel, tap) of its elements.
    elements: Vec<isize>,
    /// Numbers in its vectors.
    lanes: usize,
}

impl Panel {
    /// The lanes of the last vector that are elements, or 0 if all are.
    fn last(&self) -> usize {
        self.elements.len() % self.lanes
    }

    /// The microkernels, by rows.
    fn kernels(&self) -> &'static [Tiles] {
        kernels(self.lanes)[self.elements.len().div_ceil(self.lanes) - 1][usize::from(self.last() > 0)]
    }
}

/// The panels of all rows of the kernel, of as many vectors as tiles have.
fn panels(images: &Interleaved) -> Vec<Panel> {
    let width = width(images.lanes);
    let panel = |row: Row, first: usize| {
        let elements = first..(first + width).min(images.row());
        // A vector of AVX2 takes half as long as one of AVX-512 where that is two of them inside.
        let lanes = if elements.len() <= LANES[0] { LANES[0] } else { images.lanes };
        let elements = elements.map(|i| images.element(row, i) as isize).collect();
        Panel { offset: row.offset + first, elements, lanes }
    };
    let firsts = || (0..images.row()).step_by(width);
    images.rows().into_iter().flat_map(|row| firsts().map(move |first| panel(row, first))).collect()
}

/// The gradient.
///
/// # Safety
/// The processor must be able to run the context's level, one that has vectors; `dy`, `w` and `dx` must be dense and
/// those of the window, `dx` used by nobody else, and `arena` have [`bytes`] for them.
pub unsafe fn gradient(
    window: &Window,
    block: usize,
    dy: *const f32,
    w: *const f32,
    dx: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let lanes = lanes(context.level).expect("a level with kernels");
    let (images, width) = (Interleaved::new(window, lanes), width(lanes));
    let (positions, panels) = (images.positions(), panels(&images));
    let strips: Vec<Vec<Strip>> = panels.iter().map(|panel| strips(window, panel.kernels().len())).collect();
    let (outputs, plane, numbers) = (window.outputs, positions.len(), window.channels * window.taps());
    let [_, image_bytes] = rooms(window, &images);
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    let packed: Vec<Shared<f32>> =
        (0..window.groups * panels.len()).map(|_| Shared(arena.take(width * outputs + SLACK))).collect();
    let terms: Vec<isize> = (0..outputs).map(|output| (output * numbers) as isize).collect();
    context.par.ranges(packed.len(), 4, &|range| {
        for i in range {
            let (group, panel) = (i / panels.len(), &panels[i % panels.len()]);
            // SAFETY: the group's weight, and a room of this task.
            unsafe {
                let w = w.pointer().add(group * outputs * numbers);
                let lies = dense(panel.elements.len().next_multiple_of(panel.lanes), outputs);
                pack(context.level, w, &panel.elements, &terms, lies, packed[i].pointer());
            }
        }
    });
    let slots = context.par.lanes();
    let rooms = arena.split(image_bytes * slots);
    with_slots(context.par, slots, window.samples * window.groups, &|slot, task| {
        let group = task % window.groups;
        let image: *mut f32 = rooms.slot(slot, image_bytes).take(images.len() + lanes);
        // SAFETY: the slot's room, operands of the caller; the channels of the sample's group belong to this task.
        unsafe {
            image.write_bytes(0, images.len());
            let dy = dy.pointer().cast_const().add(task * outputs * plane);
            for ((panel, strips), packed) in panels.iter().zip(&strips).zip(&packed[group * panels.len()..]) {
                let (kernels, last) = (panel.kernels(), panel.last());
                let mask: [f32; 16] =
                    std::array::from_fn(|lane| f32::from_bits(if lane < last { u32::MAX } else { 0 }));
                for strip in strips {
                    let call = Call {
                        tiles: strip.tiles,
                        tile_step: strip.steps[0],
                        row_step: strip.steps[1],
                        dy: dy.add(strip.first),
                        plane,
                        w: packed.pointer(),
                        outputs,
                        block,
                        image: image.add(panel.offset),
                        positions: positions[strip.first..].as_ptr(),
                        mask: mask.as_ptr(),
                    };
                    kernels[strip.height - 1](&call);
                }
            }
            images.part(image, dx.pointer().add(task * window.channels * window.plane()));
        }
    });
}
