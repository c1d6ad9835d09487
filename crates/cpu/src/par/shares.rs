//! Who takes which task of a job.
//!
//! Each thread has a share: a run of neighbouring tasks, which it takes from the front. When its own is used up it takes
//! tasks from the ends of others'. So threads end together, whatever tasks take, but what a thread wrote in one job, rows of
//! a gradient for example, it mostly finds in its own caches in the next, whose tasks are cut alike.

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tasks of a share that nobody has taken: the first one in the lower half, the end in the upper half. It has lines of
/// the caches to itself.
#[derive(Default)]
struct Share(CachePadded<AtomicU64>);

const HALF: u32 = 32;

impl Share {
    fn put(&self, first: usize, end: usize) {
        self.0.store((end as u64) << HALF | first as u64, Ordering::Relaxed);
    }

    /// Takes one, where `next` says which, and what is left, of those from `first` to `end`.
    fn take(&self, next: impl Fn(u64, u64) -> (u64, [u64; 2])) -> Option<usize> {
        let mut share = self.0.load(Ordering::Relaxed);
        loop {
            let (first, end) = (share & u64::from(u32::MAX), share >> HALF);
            if first >= end {
                return None;
            }
            let (task, [first, end]) = next(first, end);
            match self.0.compare_exchange_weak(share, end << HALF | first, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(task as usize),
                Err(now) => share = now,
            }
        }
    }
}

/// Tasks `0..count`, cut into shares.
pub struct Shares(SmallVec<[Share; 2]>);

impl Shares {
    /// So many shares, all empty.
    pub fn new(shares: usize) -> Shares {
        Shares((0..shares.max(1)).map(|_| Share::default()).collect())
    }

    /// Tasks `0..count` in so many shares.
    pub fn of(count: usize, shares: usize) -> Shares {
        let new = Shares::new(shares);
        new.deal(count);
        new
    }

    /// Replaces what is left by tasks `0..count`. Whoever takes them must have been told after this.
    ///
    /// # Panics
    /// When there are 2^32 tasks or more.
    pub fn deal(&self, count: usize) {
        assert!(u32::try_from(count).is_ok(), "a job has fewer than 2^32 tasks, not {count}");
        let bound = |i: usize| (i as u128 * count as u128).div_ceil(self.0.len() as u128) as usize;
        self.0.iter().enumerate().for_each(|(i, share)| share.put(bound(i), bound(i + 1)));
    }

    /// The next task for who has share number `own`; a number that there is none of is for who has no share.
    pub fn take(&self, own: usize) -> Option<usize> {
        let (before, from) = self.0.split_at(own.min(self.0.len()));
        let mine = from.first().and_then(|share| share.take(|first, end| (first, [first + 1, end])));
        let others = || from.iter().skip(1).chain(before);
        mine.or_else(|| others().find_map(|share| share.take(|first, end| (end - 1, [first, end - 1]))))
    }

    /// Leaves nothing.
    pub fn clear(&self) {
        self.0.iter().for_each(|share| share.put(0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn shares_are_taken_from_the_front_and_those_of_others_from_the_end() {
        let shares = Shares::of(7, 3);
        let taken = |own| shares.take(own);
        // 0..3, 3..5, 5..7.
        assert_eq!([taken(1), taken(1), taken(1)], [Some(3), Some(4), Some(6)]);
        assert_eq!([taken(0), taken(2), taken(2)], [Some(0), Some(5), Some(2)]);
        assert_eq!([taken(9), taken(9), taken(0)], [Some(1), None, None]);
        shares.deal(2);
        assert_eq!([taken(2), taken(0), taken(1)], [Some(0), Some(1), None]);
        shares.deal(5);
        shares.clear();
        assert_eq!(taken(0), None);
    }

    #[test]
    fn every_task_is_taken_once() {
        for (threads, count) in [(1, 5), (3, 1000), (4, 3), (5, 0), (4, 20_000)] {
            let shares = Shares::of(count, threads - threads / 4);
            let taken: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            std::thread::scope(|scope| {
                for own in 0..threads {
                    let (shares, taken) = (&shares, &taken);
                    scope.spawn(move || {
                        while let Some(task) = shares.take(own) {
                            taken[task].fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
            });
            assert!(taken.into_iter().all(|times| times.into_inner() == 1));
        }
    }
}
