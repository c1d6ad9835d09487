//! Which part of a buffer each rank works on.

use std::ops::Range;

/// Elements at which shares may be cut: cache lines of any element type, so that ranks seldom write to the same one.
const GRAIN: usize = 64;

/// The elements of a buffer of `len` that rank `rank` of `ranks` works on. The shares are consecutive and cover the
/// buffer.
pub fn share(len: usize, ranks: usize, rank: usize) -> Range<usize> {
    let grains = len.div_ceil(GRAIN);
    let cut = |rank: usize| (grains * rank / ranks * GRAIN).min(len);
    cut(rank)..cut(rank + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once() {
        for len in [0, 1, 63, 64, 65, 1000, 4096] {
            for ranks in 1..9 {
                let covered: Vec<usize> = (0..ranks).flat_map(|rank| share(len, ranks, rank)).collect();
                assert_eq!(covered, (0..len).collect::<Vec<_>>());
            }
        }
    }
}
