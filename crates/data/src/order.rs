//! The order in which an epoch takes its samples.

use std::sync::Arc;

use meshwork_graph::philox::{bits, site_key};
use serde::{Deserialize, Serialize};

/// How an epoch orders the samples of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// As the dataset numbers them, every epoch alike.
    #[default]
    Sequential,
    /// In the [`permutation`] of the seed and the epoch.
    Shuffled {
        /// Chooses the permutations, usually the seed of the run.
        seed: u64,
    },
}

/// The order of `0..len` in epoch `epoch`: a function of its arguments and nothing else.
///
/// Indices are sorted by the Philox bits at their own position under the key
/// `site_key(seed, "data.shuffle", epoch)`, and where these are equal by index.
pub fn permutation(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    sort_by_key(len, site_key(seed, "data.shuffle", epoch))
}

/// The order in which a random split deals out samples.
pub(crate) fn split_permutation(len: usize, seed: u64) -> Vec<usize> {
    sort_by_key(len, site_key(seed, "data.split", 0))
}

fn sort_by_key(len: usize, key: u64) -> Vec<usize> {
    let mut keyed: Vec<(u64, usize)> = (0..len).map(|i| (bits(key, i as u64), i)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, index)| index).collect()
}

/// The order of one epoch, worked out.
#[derive(Clone, Debug)]
pub(crate) enum EpochOrder {
    Sequential,
    Permuted(Arc<[usize]>),
}

impl EpochOrder {
    pub fn new(order: Order, len: usize, epoch: u64) -> Self {
        match order {
            Order::Sequential => Self::Sequential,
            Order::Shuffled { seed } => Self::Permuted(permutation(len, seed, epoch).into()),
        }
    }

    /// The dataset's index of the sample at `position` in the epoch.
    pub fn index(&self, position: usize) -> usize {
        match self {
            Self::Sequential => position,
            Self::Permuted(indices) => indices[position],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_hold_every_index_once() {
        for len in [0, 1, 2, 7, 1000] {
            let mut shuffled = permutation(len, 3, 5);
            shuffled.sort_unstable();
            assert!(shuffled.into_iter().eq(0..len));
        }
    }

    #[test]
    fn seed_and_epoch_choose_the_permutation() {
        let base = permutation(100, 1, 0);
        assert_eq!(base, permutation(100, 1, 0));
        assert_ne!(base, permutation(100, 1, 1));
        assert_ne!(base, permutation(100, 2, 0));
        assert_ne!(base, split_permutation(100, 1));
        assert_ne!(base, (0..100).collect::<Vec<_>>());
    }

    /// Saved runs depend on these numbers: they may never change.
    #[test]
    fn the_first_permutation_is_fixed() {
        assert_eq!(permutation(8, 0, 0), [2, 7, 5, 1, 6, 0, 4, 3]);
    }
}
