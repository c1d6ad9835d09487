//! Trees over the lanes of several blocks at once.

use super::matrix::BlocksOf;
use super::monoid::{Accumulate, Monoid, Sum, Term};
#[cfg(target_arch = "x86_64")]
use super::sums_x86;
use crate::Level;
use meshwork_graph::canonical::{LANES, in_tree_order, lane_tree};

/// Blocks whose trees come at once.
pub const TOGETHER: usize = LANES;
/// Results of blocks that are merged at once, at most.
pub const MERGED: usize = 8 * TOGETHER;
/// Blocks from which their trees come at once.
pub const FEW: usize = 4;

/// The lanes of a block, in as few lines of the caches as hold them.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Lanes<A>(pub [A; LANES]);

/// Gives the results of blocks whose lanes these are.
pub type Trees<A> = fn(&[Lanes<A>; TOGETHER]) -> [A; TOGETHER];

/// Finds the results of so many blocks, the next of a matrix.
pub type ResultsOf<T> = fn(&[T], &mut BlocksOf, &mut [<T as Term>::Sum]);

/// Any [`Trees`]. With vectors of 512 bits the compiler finds a way that takes twice as long, so this is compiled once, for any
/// processor.
#[inline(never)]
pub fn trees<A: Accumulate, M: Monoid<A>>(all: &[Lanes<A>; TOGETHER]) -> [A; TOGETHER] {
    std::array::from_fn(|i| lane_tree(all[i].0, M::combine))
}

/// [`Trees`] of sums of f32.
pub fn sums_of_f32(level: Level) -> Trees<f32> {
    match level {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor has the level.
        Level::Avx512 | Level::Avx512Bf16 => |all| unsafe { sums_x86::trees(all) },
        _ => trees::<f32, Sum>,
    }
}

/// [`ResultsOf`] sums of f32, where there is a way of its own.
pub fn results_of_f32(level: Level) -> Option<ResultsOf<f32>> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 | Level::Avx512Bf16 => {
            // SAFETY: the processor has the level.
            Some(|x, blocks, results| unsafe { sums_x86::results(x, blocks, results) })
        }
        _ => None,
    }
}

/// The results of up to [`TOGETHER`] blocks whose lanes these are.
#[inline(always)]
pub fn results<A: Accumulate, M: Monoid<A>>(trees: Trees<A>, blocks: &[Lanes<A>]) -> [A; TOGETHER] {
    if let Some(all) = blocks.first_chunk() {
        return trees(all);
    }
    let mut results = [M::identity(); TOGETHER];
    if blocks.len() < FEW {
        results.iter_mut().zip(blocks).for_each(|(result, block)| *result = lane_tree(block.0, M::combine));
        return results;
    }
    let mut all = [Lanes([M::identity(); LANES]); TOGETHER];
    all[..blocks.len()].copy_from_slice(blocks);
    trees(&all)
}

/// The results of rows of so many blocks, whose results these are, no more than [`MERGED`]: neighbours combined level by level, of all rows at once as long
/// as blocks are even.
#[inline(always)]
pub fn merge<T: Term, M: Monoid<T::Sum>>(mut roots: &mut [T::Sum], mut blocks: usize, out: &mut [T]) {
    while blocks.is_multiple_of(2) {
        // In vectors, as far as there are so many: none is read after another one has taken its place.
        let (pairs, mut done) = (roots.len() / 2, 0);
        while let Some(two) = roots[2 * done..].first_chunk::<{ 2 * LANES }>() {
            let merged: [T::Sum; LANES] = std::array::from_fn(|i| M::combine(two[2 * i], two[2 * i + 1]));
            roots[done..done + LANES].copy_from_slice(&merged);
            done += LANES;
        }
        for i in done..pairs {
            roots[i] = M::combine(roots[2 * i], roots[2 * i + 1]);
        }
        roots = &mut roots[..pairs];
        blocks /= 2;
    }
    for (roots, y) in roots.chunks_exact_mut(blocks).zip(out) {
        in_tree_order(blocks, |left, right| roots[left] = M::combine(roots[left], roots[right]));
        *y = T::narrow(roots[0]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_of_all_levels_give_the_same_bits() {
        let special = [0.0, -0.0, f32::INFINITY, f32::MIN_POSITIVE, -1e-40, 3e38];
        let number = |i: usize| match i % 23 {
            7 => special[i / 23 % special.len()],
            _ => ((i * 7919 % 1009) as f32 - 504.0) / 37.0,
        };
        let blocks: Vec<Lanes<f32>> =
            (0..TOGETHER).map(|block| Lanes(std::array::from_fn(|lane| number(block * LANES + lane)))).collect();
        for level in Level::available() {
            for count in 1..=TOGETHER {
                let found = results::<_, Sum>(f32::sums(level), &blocks[..count]);
                for (i, block) in blocks[..count].iter().enumerate() {
                    let want = lane_tree(block.0, f32::add);
                    assert_eq!(found[i].to_bits(), want.to_bits(), "block {i} of {count}, {level:?}");
                }
            }
        }
    }

    #[test]
    fn rows_merge_in_tree_order() {
        for blocks in 1..=16 {
            let rows = 5;
            let roots: Vec<f32> = (0..rows * blocks).map(|i| ((i * 7919 % 1009) as f32 - 504.0) / 37.0).collect();
            let mut out = vec![0f32; rows];
            merge::<f32, Sum>(&mut roots.clone(), blocks, &mut out);
            for (row, &found) in roots.chunks_exact(blocks).zip(&out) {
                let mut row = row.to_vec();
                in_tree_order(blocks, |left, right| row[left] += row[right]);
                assert_eq!(found.to_bits(), row[0].to_bits(), "{blocks} blocks");
            }
        }
    }
}
