//! The convolution, and the gradient by its input where the stride is one, for f32 and AVX2 or AVX-512: vectors of neighbouring
//! elements of single samples' images.
//!
//! Tiles of outputs × vectors read the images where they lie; packing them would take as long as some outputs do. A vector goes
//! on into the next row over the border between, whose sums are left out: so most of its numbers are positions, whatever the
//! length of a row. The gradient is the convolution of the other gradient in a border of zeros, tap by tap. A tap in the border
//! adds a zero to a sum that is no −0, so nothing, unless its weight is infinite or not a number; then another way computes it.

use super::Unfolded;
use super::abreast_x86::{self, TAPS};
use super::images::{Along, Images};
use super::tile_x86::{self, BLOCKS, Call, Place};
use super::window::Window;
use crate::Context;
use crate::gemm::Offsets;
use crate::gemm::drive::Source;
use crate::gemm::scratch::{Arena, Slots, room};
use crate::operand::Shared;
use crate::par::with_slots;
use meshwork_simd::level::{Level, UP_TO_ZEN_4};
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Terms at least of what a tile adds up at once.
const TERMS: usize = 16;

/// Rows of the product at least.
const ROWS: usize = 4;

/// Neighbouring numbers of a vector that belong to neighbouring positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    lane: usize,
    count: usize,
    /// The first position.
    position: usize,
}

/// A vector in the images.
struct Vector {
    /// Offset of its first number in a channel.
    from: usize,
    /// What no vector before has.
    runs: Vec<Run>,
}

/// Vectors that have all positions of a sample: where they lie in a channel of its image, in ascending order, at least as far
/// on as a vector is long. No vector goes on beyond the last one.
fn vectors(positions: &[isize], lanes: usize) -> Vec<Vector> {
    let last = positions[positions.len() - 1] as usize;
    let mut vectors: Vec<Vector> = Vec::new();
    let mut end = 0;
    for (position, &place) in positions.iter().enumerate() {
        let place = place as usize;
        if place >= end {
            let from = place.min(last + 1 - lanes);
            end = from + lanes;
            vectors.push(Vector { from, runs: Vec::new() });
        }
        let vector = vectors.last_mut().expect("the one of this position");
        let lane = place - vector.from;
        match vector.runs.last_mut() {
            Some(run) if run.lane + run.count == lane => run.count += 1,
            _ => vector.runs.push(Run { lane, count: 1, position }),
        }
    }
    vectors
}

/// Offsets of the output positions in a channel of an image.
fn positions(window: &Window) -> Offsets {
    window.position_offsets(Offsets::new(), &window.image())
}

/// How many [`vectors`] there are, or `None` where images are shorter than one.
fn count(window: &Window, lanes: usize) -> Option<usize> {
    let (positions, row) = (positions(window), window.output[2]);
    let (mut vectors, mut end) = (0, 0);
    for first in (0..positions.len).step_by(row) {
        let start = positions.at(first) as usize;
        let here = (start + row).saturating_sub(end.max(start)).div_ceil(lanes);
        vectors += here;
        end = end.max(start) + if here > 0 { here * lanes } else { 0 };
    }
    (positions.at(positions.len - 1) as usize + 1 >= lanes).then_some(vectors)
}

/// Rows that are computed in about the time in which what they need is packed: for the convolution, and for the gradient, whose
/// sums of all taps come from what was packed once.
const PACKING: [usize; 2] = [12, 4];

/// How many tasks share the rows of a sample's product; 0 if none suit the threads.
fn shares(window: &Window, lanes: usize, threads: usize) -> usize {
    tile_x86::share_count(window.outputs, lanes, window.samples * window.groups, threads)
}

/// Whether vectors of so many numbers are the better way for a product of rows, as many as the window has outputs, and positions:
/// what they compute beside the positions must take less time than to pack what each of them needs.
fn fits(window: &Window, lanes: usize, threads: usize, packing: usize) -> bool {
    if window.taps() < TAPS
        || window.outputs < ROWS
        || window.samples * window.positions() == 0
        || shares(window, lanes, threads) == 0
    {
        return false;
    }
    let Some(vectors) = count(window, lanes) else { return false };
    vectors * lanes * window.outputs <= window.positions() * (window.outputs + packing)
}

/// Whether this is the better way for the convolution.
pub fn suits(u: &Unfolded, threads: usize, lanes: usize) -> bool {
    u.size.terms >= TERMS
        && u.size.terms.div_ceil(u.size.block) <= BLOCKS
        && fits(&u.window, lanes, threads, PACKING[0])
}

/// Whether this is the better way for the gradient.
pub fn suits_input(window: &Window, block: usize, threads: usize, lanes: usize) -> bool {
    window.outputs >= TERMS
        && window.outputs.div_ceil(block) <= BLOCKS
        && window.channels * window.samples * window.positions() * window.plane() > 0
        && window.transposed().is_some_and(|window| fits(&window, lanes, threads, PACKING[1]))
}

/// Numbers in the longest vectors of a level that suit; where vectors of sixteen are twice as fast as those of eight, these are not
/// worth what they fill better.
pub fn lanes(level: Level, suit: impl Fn(usize) -> bool) -> Option<usize> {
    let suit = |lanes| (lanes == 16 || level < Level::Avx512 || *UP_TO_ZEN_4) && suit(lanes);
    abreast_x86::lanes(level, suit)
}

/// Bytes for: the panels of a group's weight; a slot's image, and the sums of a tile.
fn rooms(window: &Window, terms: [usize; 2], lanes: usize, threads: usize) -> [usize; 3] {
    let [terms, taps] = terms;
    let tiles = tile_x86::tiles(window.outputs, shares(window, lanes, threads), lanes).len();
    let images = Images::<f32> { window, data: std::ptr::null(), along: Along::Columns };
    [tile_x86::panel_bytes(lanes, terms) * taps * tiles, room::<u8>(images.room(1)), room::<f32>(tile_x86::sums(lanes))]
}

fn all_bytes(window: &Window, terms: [usize; 2], lanes: usize, threads: usize) -> usize {
    let [panels, image, sums] = rooms(window, terms, lanes, threads);
    panels * window.groups + (image + sums) * threads
}

/// Bytes of scratch memory for [`forward`].
pub fn bytes(u: &Unfolded, threads: usize, lanes: usize) -> usize {
    all_bytes(&u.window, [u.size.terms, 1], lanes, threads)
}

/// Bytes of scratch memory for [`input`].
pub fn input_bytes(window: &Window, threads: usize, lanes: usize) -> usize {
    let transposed = window.transposed().expect("a window that suits");
    all_bytes(&transposed, [window.outputs, window.taps()], lanes, threads)
}

/// What tiles compute for a product.
struct Work<'a> {
    window: &'a Window,
    lanes: usize,
    /// Rows of the tiles.
    tiles: &'a [Range<usize>],
    /// Panels of all groups' tiles: one each, or one for every tap.
    panels: &'a [Shared<f32>],
    /// Offsets of these taps.
    taps: &'a [isize],
    /// Offsets of the terms.
    terms: &'a [isize],
    block: usize,
    /// Whether the sums of taps are added from +0 on.
    adds: bool,
    /// A slot's image and sums.
    rooms: Slots,
}

impl Work<'_> {
    /// Computes all samples.
    ///
    /// # Safety
    /// As for [`forward`].
    unsafe fn run(&self, x: *const f32, out: *mut f32, context: Context) {
        let (window, lanes) = (self.window, self.lanes);
        let slots = context.par.lanes();
        let cuts = shares(window, lanes, slots);
        let vectors = vectors(&positions(window).all(), lanes);
        let mut places: Vec<Place> = vectors.iter().map(|v| Place { from: v.from as isize, to: 0 }).collect();
        let wide: Vec<usize> = tile_x86::columns(lanes, &places).map(<[Place]>::len).collect();
        let columns = wide.iter().flat_map(|&wide| 0..wide);
        places.iter_mut().zip(columns).for_each(|(place, column)| place.to = (column * lanes) as isize);
        let images = Images::<f32> { window, data: x, along: Along::Columns };
        let (positions, all_terms, rows) = (window.positions(), window.channels * window.taps(), window.outputs);
        let (out, images, image) = (Shared(out), &images, images.room(1));
        with_slots(context.par, slots, window.samples * window.groups * cuts, |slot, task| {
            let (cut, rest) = (task % cuts, task / cuts);
            let (group, sample) = (rest % window.groups, rest / window.groups);
            let mut room = self.rooms.room(slot);
            let staged = room.take::<u8>(image).cast();
            let sums: *mut f32 = room.take(tile_x86::sums(lanes));
            let mine = cut * self.tiles.len() / cuts..(cut + 1) * self.tiles.len() / cuts;
            // SAFETY: the slot's rooms, operands of the caller; these rows of the sample belong to this task.
            unsafe {
                let range = sample * positions..(sample + 1) * positions;
                let x = images.stage(group, range, 0..all_terms, staged, &mut (0..0));
                let x = x.wrapping_add(sample * images.sample());
                let mut first = 0;
                for &wide in &wide {
                    let columns = first..first + wide;
                    for tile in mine.clone() {
                        let range = self.tiles[tile].clone();
                        let kernel = tile_x86::kernel(lanes, range.len(), wide, self.adds);
                        if self.adds {
                            sums.write_bytes(0, range.len() * wide * lanes);
                        }
                        let panels = &self.panels[(group * self.tiles.len() + tile) * self.taps.len()..];
                        for (panel, &tap) in panels.iter().zip(self.taps) {
                            kernel(&Call {
                                w: panel.pointer(),
                                x: x.wrapping_offset(tap),
                                terms: self.terms,
                                block: self.block,
                                places: &places[columns.clone()],
                                out: sums,
                                output: wide * lanes,
                            });
                        }
                        let sample = (sample * window.groups + group) * rows;
                        for (i, row) in range.enumerate() {
                            let (from, to) =
                                (sums.add(i * wide * lanes), out.pointer().add((sample + row) * positions));
                            part(lanes, from, &vectors[columns.clone()], to);
                        }
                    }
                    first += wide;
                }
            }
        });
    }
}

/// Copies vectors' sums to those of all positions.
///
/// # Safety
/// The vectors must be there, the positions be writable, and the processor have vectors of so many numbers.
unsafe fn part(lanes: usize, from: *const f32, vectors: &[Vector], to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        if lanes == 16 {
            return part_by_masks(from, vectors, to);
        }
        for (i, vector) in vectors.iter().enumerate() {
            for run in &vector.runs {
                std::ptr::copy_nonoverlapping(from.add(i * lanes + run.lane), to.add(run.position), run.count);
            }
        }
    }
}

/// # Safety
/// As for [`part`].
#[target_feature(enable = "avx512f")]
unsafe fn part_by_masks(from: *const f32, vectors: &[Vector], to: *mut f32) {
    for (i, vector) in vectors.iter().enumerate() {
        // SAFETY: the caller's promise; only numbers of the run are stored.
        unsafe {
            let sums = _mm512_loadu_ps(from.add(i * 16));
            for run in &vector.runs {
                let mask = (0xffff_u16 >> (16 - run.count)) << run.lane;
                _mm512_mask_storeu_ps(to.wrapping_add(run.position).wrapping_sub(run.lane), mask, sums);
            }
        }
    }
}

/// The convolution of [`Unfolded::forward`].
///
/// # Safety
/// As for [`crate::gemm::drive::multiply_staged`], with the scratch memory of [`bytes`], and the processor must have the vectors.
pub unsafe fn forward(
    (u, lanes): (&Unfolded, usize),
    x: *const f32,
    w: *const f32,
    out: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let (window, terms, outputs) = (&u.window, u.size.terms, u.window.outputs);
    let threads = context.par.lanes();
    let [_, image, sums] = rooms(window, [terms, 1], lanes, threads);
    let rooms = arena.slots(threads, image + sums);
    let tiles = tile_x86::tiles(outputs, shares(window, lanes, threads), lanes);
    // SAFETY: the caller's promise.
    let panels =
        unsafe { tile_x86::pack_panels(w, [window.groups, outputs, terms], (&tiles, lanes), &mut arena, context) };
    let images = Images::<f32> { window, data: x, along: Along::Columns };
    let offsets = window.unfolded(&window.image(), images.sample()).terms.all();
    let (taps, block) = (&[0], u.size.block);
    let work = Work { window, lanes, tiles: &tiles, panels: &panels, taps, terms: &offsets, block, adds: false, rooms };
    // SAFETY: the caller's promise.
    unsafe { work.run(x, out, context) };
}

/// The gradient by the input. Says whether it was computed: not where zeros of the border would be multiplied with what is
/// not finite.
///
/// # Safety
/// The processor must have vectors of so many numbers; `dy`, `w` and `dx` must be dense and those of the window, `dx` used by
/// nobody else, and `arena` have [`input_bytes`] for them.
pub unsafe fn input(
    (window, block, lanes): (&Window, usize, usize),
    dy: *const f32,
    w: *const f32,
    dx: *mut f32,
    mut arena: Arena,
    context: Context,
) -> bool {
    let (transposed, count) = (window.transposed().expect("a window that suits"), window.taps());
    let (outputs, channels, threads) = (window.outputs, window.channels, context.par.lanes());
    let [_, image, sums] = rooms(&transposed, [outputs, count], lanes, threads);
    let rooms = arena.slots(threads, image + sums);
    let tiles = tile_x86::tiles(channels, shares(&transposed, lanes, threads), lanes);
    let panels: Vec<Shared<f32>> =
        (0..window.groups * tiles.len() * count).map(|_| Shared(arena.take(tile_x86::panel(lanes, outputs)))).collect();
    let (w, is_finite) = (Shared(w.cast_mut()), AtomicBool::new(true));
    context.par.ranges(window.groups * tiles.len(), 1, &|range| {
        for i in range {
            let (group, tile) = (i / tiles.len(), &tiles[i % tiles.len()]);
            let first = group * outputs * channels + tile.start;
            // SAFETY: weights of the group, and rooms of this task.
            let finite = unsafe {
                let w = w.pointer().add(first * count);
                pack_taps(w, [outputs, channels * count], tile.len(), &panels[i * count..(i + 1) * count])
            };
            if !finite {
                is_finite.store(false, Ordering::Relaxed);
            }
        }
    });
    if transposed.padding != [0; 3] && !is_finite.into_inner() {
        return false;
    }
    let image = transposed.image();
    let terms: Vec<isize> = (0..outputs).map(|output| (output * image.plane()) as isize).collect();
    // The last tap meets the first element of the border.
    let mut taps = transposed.tap_offsets(Offsets::new(), &image).all();
    taps.reverse();
    let (window, tiles, panels) = (&transposed, &tiles, &panels);
    let work = Work { window, lanes, tiles, panels, taps: &taps, terms: &terms, block, adds: true, rooms };
    // SAFETY: the caller's promise.
    unsafe { work.run(dy, dx, context) };
    true
}

/// Copies the weights of some channels to a panel for every tap, output by output, and says whether all are finite.
///
/// # Safety
/// Rows of weights, `step` apart, must be readable, and panels have a number for each.
unsafe fn pack_taps(w: *const f32, [outputs, step]: [usize; 2], channels: usize, panels: &[Shared<f32>]) -> bool {
    let taps = panels.len();
    let mut finite = true;
    for output in 0..outputs {
        for channel in 0..channels {
            for (tap, panel) in panels.iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe {
                    let weight = *w.add(output * step + channel * taps + tap);
                    finite &= weight.is_finite();
                    *panel.pointer().add(output * channels + channel) = weight;
                }
            }
        }
    }
    finite
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwork_graph::Shape;
    use meshwork_graph::ops::{ConvGeometry, Spatial};

    /// Positions of a plane in an image whose rows are `pitch` apart.
    fn plane([rows, columns]: [usize; 2], pitch: usize) -> Vec<isize> {
        (0..rows).flat_map(|row| (0..columns).map(move |column| (row * pitch + column) as isize)).collect()
    }

    #[test]
    fn every_position_is_in_one_vector() {
        for lanes in [8, 16] {
            for (sizes, pitch) in
                [([56, 56], 58), ([14, 14], 16), ([7, 7], 9), ([1, 17], 17), ([4, 5], 64), ([2, 16], 16)]
            {
                let positions = plane(sizes, pitch);
                let mut found = vec![None; positions.len()];
                for vector in vectors(&positions, lanes) {
                    assert!(vector.from + lanes <= positions[positions.len() - 1] as usize + 1);
                    for run in &vector.runs {
                        assert!(run.lane + run.count <= lanes);
                        for i in 0..run.count {
                            let before = found[run.position + i].replace(vector.from + run.lane + i);
                            assert_eq!(before, None);
                        }
                    }
                }
                assert!(found.iter().zip(&positions).all(|(found, &place)| *found == Some(place as usize)));
            }
        }
    }

    #[test]
    fn vectors_are_counted_row_by_row() {
        for (stride, padding, sizes) in
            [(1, 1, [56, 56]), (2, 1, [28, 31]), (1, 2, [7, 9]), (1, 0, [9, 40]), (3, 2, [20, 20])]
        {
            let geometry = ConvGeometry {
                stride: Spatial::from_slice(&[stride; 2]),
                padding: Spatial::from_slice(&[padding; 2]),
                dilation: Spatial::from_slice(&[1; 2]),
                groups: 1,
            };
            let (x, w) = (Shape::new(&[1, 4, sizes[0], sizes[1]]), Shape::new(&[8, 4, 3, 3]));
            let y = geometry.output(&x[2..], &w[2..]).expect("a kernel that fits");
            let window = Window::new(&geometry, &x, &w, &Shape::new(&[1, 8, y[0], y[1]]));
            for lanes in [8, 16] {
                assert_eq!(count(&window, lanes), Some(vectors(&positions(&window).all(), lanes).len()), "{window:?}");
            }
        }
        // Row by row there would be 224.
        assert_eq!(vectors(&plane([56, 56], 58), 16).len(), 202);
    }
}
