//! The convolution for f32 and AVX2 or AVX-512 where there are samples for all numbers of a vector.
//!
//! The images of such samples are copied abreast (`conv/abreast_x86.rs`), which takes little beside packing what every
//! position needs; tiles of outputs × positions read them where they are.

use super::Unfolded;
use super::abreast_x86::{Abreast, TAPS, filled, part};
use super::tile_x86::{self, BLOCKS, Call, Place};
use crate::Context;
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use crate::par::with_slots;

/// Positions whose sums are held at once.
const POSITIONS: usize = 48;

/// Terms at least.
const TERMS: usize = 32;

/// Numbers of the images of a task, at most: more would not stay in the caches.
const IMAGES: usize = 1 << 18;

/// Shares of the outputs, 0 if none suit the threads.
fn output_shares(u: &Unfolded, threads: usize, lanes: usize) -> usize {
    let tasks = u.window.samples.div_ceil(lanes) * u.window.groups;
    tile_x86::share_count(u.window.outputs, lanes, tasks, threads)
}

/// Whether this is the better way with vectors of so many numbers.
pub fn suits(u: &Unfolded, threads: usize, lanes: usize) -> bool {
    u.size.terms >= TERMS
        && u.window.taps() >= TAPS
        && u.size.rows >= 4
        && filled(u.window.samples, lanes)
        && u.window.positions() > 0
        && u.size.terms.div_ceil(u.size.block) <= BLOCKS
        && Abreast::new(&u.window, lanes).len() <= IMAGES
        && output_shares(u, threads, lanes) > 0
}

/// Bytes for: a panel of the weight; a slot's images and sums.
fn rooms(u: &Unfolded, images: &Abreast) -> [usize; 2] {
    let lanes = images.lanes;
    let sums = u.window.outputs * POSITIONS * lanes;
    [tile_x86::panel_bytes(lanes, u.size.terms), room::<f32>(images.len()) + room::<f32>(sums)]
}

/// Bytes of scratch memory for [`forward`] with vectors of so many numbers.
pub fn bytes(u: &Unfolded, threads: usize, lanes: usize) -> usize {
    let [panel, slot] = rooms(u, &Abreast::new(&u.window, lanes));
    let tiles = tile_x86::tiles(u.window.outputs, output_shares(u, threads, lanes), lanes);
    panel * tiles.len() * u.window.groups + slot * threads
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
    let window = &u.window;
    let images = Abreast::new(window, lanes);
    let (terms, outputs) = (u.size.terms, window.outputs);
    let slots = context.par.lanes();
    let cuts = output_shares(u, slots, lanes);
    let tiles = tile_x86::tiles(outputs, cuts, lanes);
    let [_, slot_bytes] = rooms(u, &images);
    let rooms = arena.slots(slots, slot_bytes);
    let (x, out) = (Shared(x.cast_mut()), Shared(out));
    // SAFETY: the caller's promise.
    let panels =
        unsafe { tile_x86::pack_panels(w, [window.groups, outputs, terms], (&tiles, lanes), &mut arena, context) };
    let (offsets, positions) = (images.terms(), images.positions());
    let places: Vec<Place> =
        positions.iter().enumerate().map(|(i, &from)| Place { from, to: (i % POSITIONS * lanes) as isize }).collect();
    let sample = window.groups * outputs * positions.len();
    let parts = window.samples.div_ceil(lanes);
    with_slots(context.par, slots, parts * window.groups * cuts, |slot, task| {
        let (cut, rest) = (task % cuts, task / cuts);
        let (group, first) = (rest % window.groups, rest / window.groups * lanes);
        let samples = lanes.min(window.samples - first);
        let mut room = rooms.room(slot);
        let staged: *mut f32 = room.take(images.len());
        let sums: *mut f32 = room.take(outputs * POSITIONS * lanes);
        let channels = window.channels * window.plane();
        let index = |sample: usize| ((first + sample) * window.groups + group) * channels;
        let starts: Vec<isize> = (0..samples).map(|sample| index(sample) as isize).collect();
        let mine = cut * tiles.len() / cuts..(cut + 1) * tiles.len() / cuts;
        // SAFETY: the slot's rooms, operands of the caller; these outputs of the samples belong to this task.
        unsafe {
            for channel in 0..window.channels {
                let from = x.pointer().add(channel * window.plane());
                images.join(from, &starts, staged.add(channel * images.channel()), lanes);
            }
            for (chunk, places) in places.chunks(POSITIONS).enumerate() {
                for tile in mine.clone() {
                    let rows = tiles[tile].clone();
                    let call = Call {
                        w: panels[group * tiles.len() + tile].pointer(),
                        x: staged,
                        terms: &offsets,
                        block: u.size.block,
                        places,
                        out: sums.add(rows.start * POSITIONS * lanes),
                        output: POSITIONS * lanes,
                    };
                    tile_x86::run(lanes, rows.len(), &call);
                    for row in rows {
                        let to = first * sample + (group * outputs + row) * positions.len() + chunk * POSITIONS;
                        let from = sums.add(row * POSITIONS * lanes);
                        part(lanes, from, [places.len(), lanes], out.pointer().add(to), [samples, sample]);
                    }
                }
            }
        }
    });
}
