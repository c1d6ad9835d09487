//! Sums of f32 with vectors of 512 bits.

use super::matrix::BlocksOf;
use super::trees::{Lanes, TOGETHER};
use meshwork_graph::canonical::LANES;
use std::arch::x86_64::*;

/// The results of the next blocks.
#[target_feature(enable = "avx512f")]
pub fn results(x: &[f32], blocks: &mut BlocksOf, results: &mut [f32]) {
    // Those of earlier blocks stand where there are none any more.
    let mut all = [Lanes([0.0; LANES]); TOGETHER];
    for results in results.chunks_mut(TOGETHER) {
        for lanes in &mut all[..results.len()] {
            let sums = sums_of_lanes(&x[blocks.next()]);
            // SAFETY: lanes are a vector.
            unsafe { _mm512_store_ps(lanes.0.as_mut_ptr(), sums) };
        }
        let mask = u16::MAX >> (TOGETHER - results.len());
        // SAFETY: the mask leaves out what there is no room for.
        unsafe { _mm512_mask_storeu_ps(results.as_mut_ptr(), mask, sums_of_blocks(&all)) };
    }
}

/// The lanes of a block. A mask takes its end: the lanes behind are left as they are.
#[inline]
#[target_feature(enable = "avx512f")]
fn sums_of_lanes(block: &[f32]) -> __m512 {
    // SAFETY: a chunk is a vector.
    let add = |sums, chunk: &[f32; LANES]| unsafe { _mm512_add_ps(sums, _mm512_loadu_ps(chunk.as_ptr())) };
    let (chunks, tail) = block.as_chunks::<LANES>();
    let (fours, chunks) = chunks.as_chunks::<4>();
    let mut sums = _mm512_setzero_ps();
    for [a, b, c, d] in fours {
        sums = add(add(add(add(sums, a), b), c), d);
    }
    for chunk in chunks {
        sums = add(sums, chunk);
    }
    if tail.is_empty() {
        return sums;
    }
    let mask = u16::MAX >> (LANES - tail.len());
    // SAFETY: the mask leaves out what is not there.
    unsafe { _mm512_mask_add_ps(sums, mask, sums, _mm512_maskz_loadu_ps(mask, tail.as_ptr())) }
}

/// Level by level of the trees, the lanes of all blocks next to each other: 16, 8 of two blocks, 4 of four, 2 of eight, and a sum
/// of each.
#[inline]
#[target_feature(enable = "avx512f")]
fn sums_of_blocks(all: &[Lanes<f32>; TOGETHER]) -> __m512 {
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
    _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xdd>(a, b))
}

/// The results of blocks whose lanes these are.
#[target_feature(enable = "avx512f")]
pub fn trees(all: &[Lanes<f32>; TOGETHER]) -> [f32; TOGETHER] {
    let mut out = Lanes([0.0; LANES]);
    // SAFETY: there is room for a vector.
    unsafe { _mm512_store_ps(out.0.as_mut_ptr(), sums_of_blocks(all)) };
    out.0
}
