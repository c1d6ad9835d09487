//! Sums of f32 with vectors of 512 bits.

use super::matrix::BlocksOf;
use super::trees::{Lanes, TOGETHER};
use meshwork_graph::canonical::LANES;
use std::arch::x86_64::*;

/// The lanes of the next blocks. Masks take their ends: the lanes behind are left as they are.
#[target_feature(enable = "avx512f")]
pub fn lanes(x: &[f32], blocks: &mut BlocksOf, all: &mut [Lanes<f32>]) {
    // SAFETY: a chunk is a vector.
    let add = |sums, chunk: &[f32; LANES]| unsafe { _mm512_add_ps(sums, _mm512_loadu_ps(chunk.as_ptr())) };
    for lanes in all {
        let (chunks, tail) = x[blocks.next()].as_chunks::<LANES>();
        let (fours, chunks) = chunks.as_chunks::<4>();
        let mut sums = _mm512_setzero_ps();
        for [a, b, c, d] in fours {
            sums = add(add(add(add(sums, a), b), c), d);
        }
        for chunk in chunks {
            sums = add(sums, chunk);
        }
        if !tail.is_empty() {
            let rest = (1 << tail.len()) - 1;
            // SAFETY: the mask leaves out what is not there.
            sums = unsafe { _mm512_mask_add_ps(sums, rest, sums, _mm512_maskz_loadu_ps(rest, tail.as_ptr())) };
        }
        // SAFETY: lanes are a vector.
        unsafe { _mm512_store_ps(lanes.0.as_mut_ptr(), sums) };
    }
}

/// Level by level of the trees, the lanes of all blocks next to each other: 16, 8 of two blocks, 4 of four, 2 of eight, and a sum
/// of each.
#[target_feature(enable = "avx512f")]
pub fn trees(all: &[Lanes<f32>; TOGETHER]) -> [f32; TOGETHER] {
    // SAFETY: lanes are a vector.
    let lanes = |block: usize| unsafe { _mm512_load_ps(all[block].0.as_ptr()) };
    // Blocks 4 i + j stand where the last step leaves them in order.
    let eight = |i: usize| {
        let (a, b) = (lanes(i), lanes(i + 4));
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b))
    };
    let four = |i: usize| {
        let (a, b) = (eight(i), eight(i + 8));
        _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xdd>(a, b))
    };
    let two = |i: usize| {
        let (a, b) = (four(i), four(i + 1));
        _mm512_add_ps(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xee>(a, b))
    };
    let (a, b) = (two(0), two(2));
    let sums = _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b));
    let mut out = Lanes([0.0; LANES]);
    // SAFETY: there is room for a vector.
    unsafe { _mm512_store_ps(out.0.as_mut_ptr(), sums) };
    out.0
}
