//! Splitting a batch: which samples each device computes, and how their sums become those of the whole batch.
//!
//! A sum over a batch is a tree over its blocks of samples ([`Blocking::Samples`]). A range of samples that are the
//! leaves of one of its sub-trees has one root: what the operation gives for these samples alone, as a
//! [part of the batch](crate::Op::part_of_batch). [`parts`] cuts a batch into such ranges and [`merge`] adds their roots
//! where the tree adds them, so the result has the bits of the whole.
//!
//! That holds for the results of single sums that are not rounded between the blocks. A value that adds several sums
//! over the batch (the gradient of a parameter that is used twice) needs each of them merged first, and sums of f16 and
//! bf16 accumulate in f32, which a part's result has lost.

use crate::canonical::{Blocking, Blocks, TreeSum};
use std::ops::Range;

/// For each device the ranges of samples that it computes, in order, given how much each should have of them: its
/// measured speed, or 1 for an even split.
///
/// Shares are contiguous and cut between the blocks where their sizes come nearest to the weights. A device may have
/// nothing to do. Each share is cut into the fewest ranges that are sub-trees: one each for an even split over a power of
/// two of devices that divides the blocks.
///
/// # Errors
/// When a weight is negative or not finite, or none is above 0.
pub fn parts(batch: usize, weights: &[f64]) -> Result<Vec<Vec<Range<usize>>>, String> {
    if let Some((device, weight)) = weights.iter().enumerate().find(|(_, w)| !(w.is_finite() && **w >= 0.0)) {
        return Err(format!("the weight of device {device} is {weight}: it must be a finite number, 0 or above"));
    }
    let largest = weights.iter().copied().fold(0.0, f64::max);
    if largest == 0.0 {
        return Err(format!("no device has a weight above 0 in {weights:?}: at least one must compute the batch"));
    }
    // Relative to the largest, so that sums of huge weights stay finite.
    let total: f64 = weights.iter().map(|w| w / largest).sum();
    let blocks = blocks(batch);
    let (mut sum, mut start) = (0.0, 0);
    let share = |weight: &f64| {
        sum += weight / largest;
        let end = nearest(&blocks, sum / total * batch as f64);
        let ranges = sub_trees(&blocks, start..end);
        start = end;
        ranges
    };
    Ok(weights.iter().map(share).collect())
}

/// The sum over a whole batch from the roots of its parts, given in order of samples: `add(left, right)` is called as the
/// tree over the whole batch adds. `None` for an empty batch.
///
/// # Panics
/// When the ranges are not those of sub-trees, or do not cover the batch.
pub fn merge<T>(
    batch: usize,
    roots: impl IntoIterator<Item = (Range<usize>, T)>,
    mut add: impl FnMut(T, T) -> T,
) -> Option<T> {
    let blocks = blocks(batch);
    let (mut tree, mut end) = (TreeSum::new(), 0);
    for (range, root) in roots {
        assert_eq!(range.start, end, "parts of a batch must follow each other");
        let level = level(&blocks, &range);
        let level = level.unwrap_or_else(|| panic!("samples {range:?} are no sub-tree of a batch of {batch}"));
        tree.push_tree(level, root, &mut add);
        end = range.end;
    }
    assert_eq!(end, batch, "the parts of a batch must cover it");
    tree.finish(add)
}

/// The sum of values by the tree of adjacent pairs. `None` without values.
pub fn sum_of_neighbours<T>(values: impl IntoIterator<Item = T>, mut add: impl FnMut(T, T) -> T) -> Option<T> {
    let mut tree = TreeSum::new();
    values.into_iter().for_each(|value| tree.push(value, &mut add));
    tree.finish(add)
}

/// The first index of part `part` when `extent` indices are cut evenly into `parts`, at multiples of `unit`.
pub fn cut(extent: usize, unit: usize, part: usize, parts: usize) -> usize {
    let blocks = Blocks { outer: extent, inner: 1, unit };
    match part {
        0 => 0,
        _ if part == parts => extent,
        _ if extent == 0 => 0,
        _ => sample(&blocks, nearest(&blocks, part as f64 / parts as f64 * extent as f64)),
    }
}

fn blocks(batch: usize) -> Blocks {
    Blocks::sum(Blocking::Samples, batch, 1)
}

/// The first sample of a block, or the end of the batch.
fn sample(blocks: &Blocks, block: usize) -> usize {
    (block * blocks.unit).min(blocks.outer)
}

/// The block that begins nearest to a place in the batch, or their number for the end of the batch.
fn nearest(blocks: &Blocks, place: f64) -> usize {
    let block = (place as usize / blocks.unit).min(blocks.count().saturating_sub(1));
    let below = place - sample(blocks, block) as f64;
    let above = sample(blocks, block + 1) as f64 - place;
    // In the middle the even one, which leaves larger sub-trees.
    if below < above || below == above && block.is_multiple_of(2) { block } else { block + 1 }
}

/// The samples of the largest sub-trees that a range of blocks consists of.
pub(crate) fn sub_trees(blocks: &Blocks, range: Range<usize>) -> Vec<Range<usize>> {
    let depth = blocks.count().next_power_of_two().ilog2();
    let mut trees = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = |level: u32| (start + (1 << level)).min(blocks.count());
        let fits = |level: &u32| start.is_multiple_of(1 << level) && end(*level) <= range.end;
        let end = end((0..=depth).rev().find(fits).expect("a block is a sub-tree"));
        trees.push(sample(blocks, start)..sample(blocks, end));
        start = end;
    }
    trees
}

/// The level of the sub-tree whose leaves are these samples, if there is one.
fn level(blocks: &Blocks, samples: &Range<usize>) -> Option<u32> {
    let start = samples.start / blocks.unit;
    let level = samples.len().div_ceil(blocks.unit).next_power_of_two().ilog2();
    let tree = sample(blocks, start)..sample(blocks, start + (1 << level));
    (start.is_multiple_of(1 << level) && *samples == tree && !samples.is_empty()).then_some(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BATCHES: [usize; 12] = [1, 2, 5, 7, 32, 33, 63, 100, 255, 256, 257, 1000];

    fn weights() -> Vec<Vec<f64>> {
        let mut weights: Vec<Vec<f64>> = [1, 2, 3, 5, 8, 100].map(|devices| vec![1.0; devices]).into();
        weights.extend([vec![3.0, 1.0], vec![0.2, 0.5, 0.3], vec![0.0, 1.0, 0.0, 0.1, 0.0], vec![1e308; 3]]);
        weights
    }

    fn each_split(check: impl Fn(usize, &[f64], Vec<Vec<Range<usize>>>)) {
        for batch in BATCHES {
            for weights in weights() {
                check(batch, &weights, parts(batch, &weights).unwrap());
            }
        }
    }

    fn add(left: String, right: String) -> String {
        format!("({left}+{right})")
    }

    /// The additions over blocks of samples, as text.
    fn tree(blocks: Range<usize>) -> String {
        let mut tree = TreeSum::new();
        blocks.for_each(|block| tree.push(block.to_string(), add));
        tree.finish(add).expect("samples")
    }

    #[test]
    fn shares_cover_the_batch_in_order_near_their_weights() {
        each_split(|batch, weights, parts| {
            let largest = weights.iter().copied().fold(0.0, f64::max);
            let relative: Vec<f64> = weights.iter().map(|w| w / largest).collect();
            let (unit, total) = (blocks(batch).unit as f64, relative.iter().sum::<f64>());
            let (mut end, mut sum) = (0, 0.0);
            assert_eq!(parts.len(), weights.len());
            for (share, weight) in parts.iter().zip(relative) {
                for range in share {
                    assert_eq!(range.start, end, "{batch} over {weights:?}: {parts:?}");
                    end = range.end;
                }
                sum += weight;
                let distance = (end as f64 - sum / total * batch as f64).abs();
                assert!(distance <= unit / 2.0 + 1e-9, "{batch} over {weights:?}: {parts:?}");
                assert!(weight > 0.0 || share.is_empty());
            }
            assert_eq!(end, batch);
        });
    }

    #[test]
    fn each_range_is_a_sub_tree_and_no_two_of_a_device_are_one() {
        each_split(|batch, weights, parts| {
            let blocks = blocks(batch);
            for share in parts {
                assert!(
                    share.iter().all(|range| level(&blocks, range).is_some()),
                    "{batch} over {weights:?}: {share:?}"
                );
                for pair in share.windows(2) {
                    assert_eq!(level(&blocks, &(pair[0].start..pair[1].end)), None, "{batch} over {weights:?}");
                }
            }
        });
    }

    #[test]
    fn merged_parts_are_added_as_the_whole() {
        each_split(|batch, weights, parts| {
            let blocks = blocks(batch);
            let leaves = |range: &Range<usize>| range.start / blocks.unit..range.end.div_ceil(blocks.unit);
            let roots = parts.concat().into_iter().map(|range| (range.clone(), tree(leaves(&range))));
            assert_eq!(merge(batch, roots, add).unwrap(), tree(0..blocks.count()), "{batch} over {weights:?}");
        });
    }

    #[test]
    fn even_splits_by_powers_of_two_have_one_range_a_device() {
        for (batch, devices) in [(32, 2), (32, 8), (256, 4), (256, 32), (100, 1), (1000, 1)] {
            for share in parts(batch, &vec![1.0; devices]).unwrap() {
                assert_eq!(share.len(), 1);
                assert!(devices == 1 || share[0].len() == batch / devices);
            }
        }
        assert_eq!(parts(100, &[1.0, 1.0]).unwrap(), [[0..32, 32..48], [48..64, 64..100]]);
        assert_eq!(parts(256, &[3.0, 5.0]).unwrap(), [[0..64, 64..96], [96..128, 128..256]]);
    }

    #[test]
    fn more_devices_than_blocks_and_empty_batches_leave_devices_idle() {
        let shares = parts(2, &[1.0; 5]).unwrap();
        assert_eq!(shares.concat(), [0..1, 1..2]);
        assert_eq!(parts(0, &[1.0, 2.0]).unwrap(), [vec![], vec![]]);
        assert_eq!(merge(0, [], add), None);
    }

    #[test]
    fn weights_that_mean_nothing_are_refused_by_name() {
        for (weights, said) in [
            (&[1.0, -0.5][..], "the weight of device 1 is -0.5: it must be a finite number, 0 or above"),
            (&[f64::NAN], "the weight of device 0 is NaN: it must be a finite number, 0 or above"),
            (&[1.0, 1.0, f64::INFINITY], "the weight of device 2 is inf: it must be a finite number, 0 or above"),
            (&[0.0, 0.0], "no device has a weight above 0 in [0.0, 0.0]: at least one must compute the batch"),
            (&[], "no device has a weight above 0 in []: at least one must compute the batch"),
        ] {
            assert_eq!(parts(100, weights).unwrap_err(), said);
        }
    }

    #[test]
    #[should_panic(expected = "samples 0..48 are no sub-tree of a batch of 100")]
    fn only_sub_trees_have_roots() {
        merge(100, [(0..48, 0), (48..100, 0)], |a, b| a + b);
    }

    #[test]
    #[should_panic(expected = "the parts of a batch must cover it")]
    fn a_missing_part_is_noticed() {
        merge(100, [(0..64, 0)], |a, b| a + b);
    }
}
