//! Which rows of a global batch one process reads.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The rows of every global batch that this process reads.
///
/// Epochs, batches and positions always count global samples: a position saved by one process of a run is the
/// position of all of them, and stays true when the run goes on with another number of processes.
#[derive(Clone, Default)]
pub enum Rows {
    /// Every row.
    #[default]
    All,
    /// The `rank`-th of `world_size` consecutive parts: rows `n·rank/world_size` up to, not including,
    /// `n·(rank+1)/world_size` of a batch of `n`, rounded down. Short batches may leave a rank without rows.
    Share {
        /// The number of this process.
        rank: usize,
        /// How many processes share a batch.
        world_size: usize,
    },
    /// The rows that a function of the length of the global batch names.
    By(Arc<dyn Fn(usize) -> Range<usize> + Send + Sync>),
}

impl Rows {
    /// The rows of a global batch of `len` samples.
    pub fn of(&self, len: usize) -> Range<usize> {
        match self {
            Self::All => 0..len,
            Self::Share { rank, world_size } => {
                let cut = |part: usize| (len as u128 * part as u128 / *world_size as u128) as usize;
                cut(*rank)..cut(*rank + 1)
            }
            Self::By(rows) => rows(len),
        }
    }
}

impl fmt::Debug for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("All"),
            Self::Share { rank, world_size } => write!(f, "Share({rank} of {world_size})"),
            Self::By(_) => f.write_str("By(function)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_every_row_once() {
        for len in [0, 1, 5, 64, 67] {
            for world_size in 1..9 {
                let rows = (0..world_size).flat_map(|rank| Rows::Share { rank, world_size }.of(len));
                assert!(rows.eq(0..len));
            }
        }
    }
}
