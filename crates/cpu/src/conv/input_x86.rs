//! The gradient by the input for f32 and AVX2 or AVX-512 where there are samples for all numbers of a vector.
//!
//! The gradients by the output and by the input of such samples lie abreast (`conv/abreast_x86.rs`), the latter with
//! room for the border. Tiles of channels × neighbouring positions are added to it, the last positions first and tap by tap: so
//! every element gets its taps in row-major order.

use super::abreast_x86::{Abreast, TAPS, filled, join};
use super::tile_x86::{self, BLOCKS, Call, Place};
use super::window::Window;
use crate::Context;
use crate::gemm::scratch::{Arena, room};
use crate::operand::Shared;
use crate::par::with_slots;

/// Outputs at least.
const OUTPUTS: usize = 8;

/// Numbers of either gradient of a task, at most: more would not stay in the caches.
const GRADIENT: usize = 1 << 18;

/// Shares of the channels, 0 if none suit the threads.
fn channel_shares(window: &Window, threads: usize, lanes: usize) -> usize {
    let tasks = window.samples.div_ceil(lanes) * window.groups;
    tile_x86::share_count(window.channels, lanes, tasks, threads)
}

/// Whether this is the better way with vectors of so many numbers.
pub fn suits(window: &Window, block: usize, threads: usize, lanes: usize) -> bool {
    window.outputs >= OUTPUTS
        && window.taps() >= TAPS
        && window.channels >= 4
        && filled(window.samples, lanes)
        && window.outputs.div_ceil(block) <= BLOCKS
        && Abreast::channels_last(window, lanes).len() <= GRADIENT
        && (1..=GRADIENT).contains(&(window.outputs * window.positions() * lanes))
        && channel_shares(window, threads, lanes) > 0
}

/// Bytes for: a panel of the weight; a slot's gradients by the output and by the input.
fn rooms(window: &Window, lanes: usize) -> [usize; 3] {
    [
        tile_x86::panel_bytes(lanes, window.outputs),
        room::<f32>(window.outputs * window.positions() * lanes),
        room::<f32>(Abreast::channels_last(window, lanes).len()),
    ]
}

/// Bytes of scratch memory for [`gradient`] with vectors of so many numbers.
pub fn bytes(window: &Window, threads: usize, lanes: usize) -> usize {
    let [panel, dy, dx] = rooms(window, lanes);
    let tiles = tile_x86::tiles(window.channels, channel_shares(window, threads, lanes), lanes);
    let panels = window.groups * tiles.len() * window.taps();
    panel * panels + (dy + dx) * threads
}

/// The gradient.
///
/// # Safety
/// The processor must have vectors of so many numbers; `dy`, `w` and `dx` must be dense and those of the window, `dx` used by
/// nobody else, and `arena` have [`bytes`] for them.
pub unsafe fn gradient(
    (window, block, lanes): (&Window, usize, usize),
    dy: *const f32,
    w: *const f32,
    dx: *mut f32,
    mut arena: Arena,
    context: Context,
) {
    let images = Abreast::channels_last(window, lanes);
    let (outputs, positions, taps) = (window.outputs, window.positions(), window.taps());
    let slots = context.par.lanes();
    let cuts = channel_shares(window, slots, lanes);
    let (tiles, numbers) = (tile_x86::tiles(window.channels, cuts, lanes), window.channels * taps);
    let (dy, w, dx) = (Shared(dy.cast_mut()), Shared(w.cast_mut()), Shared(dx));
    let [_, dy_bytes, dx_bytes] = rooms(window, lanes);
    let rooms = arena.slots(slots, dy_bytes + dx_bytes);
    let panels: Vec<Shared<f32>> =
        (0..window.groups * tiles.len() * taps).map(|_| Shared(arena.take(tile_x86::panel(lanes, outputs)))).collect();
    let terms: Vec<isize> = (0..outputs).map(|output| (output * numbers) as isize).collect();
    context.par.ranges(panels.len(), 4, &|range| {
        for i in range {
            let (tap, tile) = (i % taps, i / taps);
            let (group, tile) = (tile / tiles.len(), &tiles[tile % tiles.len()]);
            let channels: Vec<isize> = tile.clone().map(|channel| (channel * taps + tap) as isize).collect();
            // SAFETY: the group's weight, and a room of this task.
            unsafe {
                let w = w.pointer().add(group * outputs * numbers);
                tile_x86::pack_panel(context.level, w, &channels, &terms, panels[i].pointer());
            }
        }
    });
    let along: Vec<isize> = (0..outputs).map(|output| (output * lanes) as isize).collect();
    let places: Vec<Place> = images
        .positions()
        .into_iter()
        .enumerate()
        .map(|(i, to)| Place { from: (i * outputs * lanes) as isize, to })
        .collect();
    let offsets = images.taps();
    let parts = window.samples.div_ceil(lanes);
    with_slots(context.par, slots, parts * window.groups * cuts, |slot, task| {
        let (cut, rest) = (task % cuts, task / cuts);
        let (group, first) = (rest % window.groups, rest / window.groups * lanes);
        let samples = lanes.min(window.samples - first);
        let mut room = rooms.room(slot);
        let gradient: *mut f32 = room.take(outputs * positions * lanes);
        let image: *mut f32 = room.take(images.len());
        let index = |sample: usize| (first + sample) * window.groups + group;
        let starts: Vec<isize> = (0..samples).map(|sample| (index(sample) * outputs * positions) as isize).collect();
        let mine = cut * tiles.len() / cuts..(cut + 1) * tiles.len() / cuts;
        // SAFETY: the slot's rooms, operands of the caller; these channels of the samples belong to this task.
        unsafe {
            for output in 0..outputs {
                let from = dy.pointer().add(output * positions);
                join(lanes, from, &starts, positions, gradient.add(output * lanes), [outputs * lanes, lanes]);
            }
            image.write_bytes(0, images.len());
            for places in tile_x86::columns(lanes, &places).rev() {
                for tile in mine.clone() {
                    let kernel = tile_x86::kernel(lanes, tiles[tile].len(), places.len(), true);
                    let panels = &panels[(group * tiles.len() + tile) * taps..][..taps];
                    for (panel, &offset) in panels.iter().zip(&offsets) {
                        let call = Call {
                            w: panel.pointer(),
                            x: gradient,
                            terms: &along,
                            block,
                            places,
                            out: image.offset(offset).add(tiles[tile].start * lanes),
                            output: lanes,
                        };
                        kernel(&call);
                    }
                }
            }
            for channel in tiles[mine.start].start..tiles[mine.end - 1].end {
                let to = dx.pointer().add((index(0) * window.channels + channel) * window.plane());
                let sample = window.groups * window.channels * window.plane();
                images.part(image.add(channel * images.channel()), to, [samples, sample]);
            }
        }
    });
}
