//! Which samples a batch takes: pure arithmetic on positions.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::{DataError, Result};

/// An exact place in the endless sequence of epochs: the next sample to be taken.
///
/// It counts samples and not batches, so that it stays true when a run goes on with another batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Position {
    /// The epoch, from 0.
    pub epoch: u64,
    /// How many samples of this epoch have been taken.
    pub sample: u64,
}

/// The sizes that cut epochs into batches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    len: usize,
    batch_size: usize,
    drop_last: bool,
    epochs: Option<u64>,
}

/// One batch of the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub epoch: u64,
    /// Positions in the epoch.
    pub samples: Range<usize>,
    /// The number of the batch in its epoch, from 0.
    pub index: usize,
    /// Whether no batch of the same epoch follows.
    pub last: bool,
    pub next: Position,
}

impl Schedule {
    pub fn new(len: usize, batch_size: usize, drop_last: bool, epochs: Option<u64>) -> Result<Self> {
        if batch_size == 0 {
            return Err(DataError::options("a batch_size of 0; use at least 1"));
        }
        if len == 0 {
            return Err(DataError::options("the dataset holds no samples"));
        }
        if drop_last && batch_size > len {
            return Err(DataError::options(format!(
                "a batch_size of {batch_size} leaves no batch of {len} samples when the partial one is \
                 dropped; use a smaller batch_size or keep the last batch"
            )));
        }
        Ok(Self { len, batch_size, drop_last, epochs })
    }

    pub fn batches_per_epoch(&self) -> usize {
        if self.drop_last { self.len / self.batch_size } else { self.len.div_ceil(self.batch_size) }
    }

    /// The position where the next batch really starts: in the next epoch, if this one has none left.
    pub fn normalize(&self, position: Position) -> Result<Position> {
        let sample = usize::try_from(position.sample)
            .ok()
            .filter(|&sample| sample <= self.len)
            .ok_or(DataError::Position { position, len: self.len })?;
        Ok(self.at(position.epoch, sample))
    }

    fn at(&self, epoch: u64, sample: usize) -> Position {
        let left = self.len - sample;
        if left == 0 || self.drop_last && left < self.batch_size {
            Position { epoch: epoch.saturating_add(1), sample: 0 }
        } else {
            Position { epoch, sample: sample as u64 }
        }
    }

    /// The batch at a normalised position; `None` behind the last epoch.
    pub fn step(&self, position: Position) -> Option<Step> {
        let Position { epoch, sample } = position;
        if self.epochs.is_some_and(|epochs| epoch >= epochs) {
            return None;
        }
        let start = sample as usize;
        let end = start.saturating_add(self.batch_size).min(self.len);
        let next = self.at(epoch, end);
        Some(Step { epoch, samples: start..end, index: start / self.batch_size, last: next.sample == 0, next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(epoch: u64, sample: u64) -> Position {
        Position { epoch, sample }
    }

    fn samples(schedule: &Schedule, steps: usize) -> Vec<(u64, Range<usize>, bool)> {
        let mut position = at(0, 0);
        let next = |_| {
            let step = schedule.step(position)?;
            position = step.next;
            Some((step.epoch, step.samples, step.last))
        };
        (0..steps).map_while(next).collect()
    }

    #[test]
    fn the_partial_batch_is_kept_or_dropped() {
        let keep = Schedule::new(5, 2, false, None).unwrap();
        assert_eq!(keep.batches_per_epoch(), 3);
        let kept = [(0, 0..2, false), (0, 2..4, false), (0, 4..5, true)];
        assert_eq!(samples(&keep, 3), kept);
        assert_eq!(samples(&keep, 4)[3], (1, 0..2, false));

        let drop = Schedule::new(5, 2, true, None).unwrap();
        assert_eq!(drop.batches_per_epoch(), 2);
        let dropped = [(0, 0..2, false), (0, 2..4, true), (1, 0..2, false)];
        assert_eq!(samples(&drop, 3), dropped);
    }

    #[test]
    fn epochs_end_the_sequence() {
        let schedule = Schedule::new(4, 4, false, Some(2)).unwrap();
        assert_eq!(samples(&schedule, 9), [(0, 0..4, true), (1, 0..4, true)]);
    }

    #[test]
    fn positions_are_normalised() {
        let keep = Schedule::new(5, 2, false, None).unwrap();
        assert_eq!(keep.normalize(at(3, 5)).unwrap(), at(4, 0));
        assert_eq!(keep.normalize(at(3, 4)).unwrap(), at(3, 4));
        let drop = Schedule::new(5, 2, true, None).unwrap();
        assert_eq!(drop.normalize(at(3, 4)).unwrap(), at(4, 0));
        assert!(matches!(keep.normalize(at(3, 6)), Err(DataError::Position { len: 5, .. })));
        assert!(keep.normalize(at(0, u64::MAX)).is_err());
    }

    #[test]
    fn a_batch_larger_than_the_dataset_is_the_whole_dataset() {
        let schedule = Schedule::new(3, usize::MAX, false, None).unwrap();
        assert_eq!(samples(&schedule, 1), [(0, 0..3, true)]);
        assert!(Schedule::new(3, 4, true, None).is_err());
    }
}
