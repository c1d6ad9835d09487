//! How far hand-overs may be ahead of a device.

/// Most groups of hand-overs that wait for a device. Who hands over more waits until so many are left: a thread that wakes takes
/// a core from the kernels, so it shall wake seldom. Where a thread wakes it that has nothing to do just now, it takes that
/// one's, and shall give it back soon.
const MAX_WAITING: usize = 8;
const LEFT: usize = 3;
const LEFT_BY_IDLE: usize = 6;

/// Small hand-overs are one group until they have so many kernels, or read so many bytes: to wake takes longer than to
/// record one. A step of a training is a group by itself.
const KERNELS: usize = 8;
const BYTES: usize = 16 << 20;

/// The latest groups of hand-overs to a device.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The last numbers of the groups that have ended, oldest first.
    ends: [u64; MAX_WAITING],
    /// What the group that goes on has so far.
    kernels: usize,
    bytes: usize,
}

impl Ahead {
    /// Notes kernels, or copies, and what they read.
    pub fn add(&mut self, kernels: usize, bytes: usize) {
        self.kernels += kernels;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// A hand-over has ended, and its group with it if that is large enough: `number` is called for a number behind all tasks.
    pub fn end(&mut self, number: impl FnOnce() -> u64) {
        if self.kernels >= KERNELS || self.bytes >= BYTES {
            (self.kernels, self.bytes) = (0, 0);
            self.ends.rotate_left(1);
            self.ends[MAX_WAITING - 1] = number();
        }
    }

    /// Up to which number tasks must have ended before more is handed over, and up to which they shall have ended if they
    /// have not. `by_idle`: threads with nothing to do wake who waits.
    pub fn room(&self, by_idle: bool) -> (u64, u64) {
        let left = if by_idle { LEFT_BY_IDLE } else { LEFT };
        (self.ends[0], self.ends[MAX_WAITING - left - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hand-overs of so many kernels and bytes, with numbers from 1 on, until one would have to wait; gives how many.
    fn hand_overs(kernels: usize, bytes: usize) -> usize {
        let mut ahead = Ahead::default();
        let mut count = 0;
        while ahead.room(true).0 == 0 {
            count += 1;
            ahead.add(kernels, bytes);
            ahead.end(|| count as u64);
        }
        count
    }

    #[test]
    fn steps_of_trainings_wait_eight_at_a_time_and_small_hand_overs_in_groups() {
        assert_eq!(hand_overs(12, 1 << 20), MAX_WAITING);
        assert_eq!(hand_overs(1, 1 << 10), MAX_WAITING * KERNELS);
        assert_eq!(hand_overs(3, 0), MAX_WAITING * 3);
        assert_eq!(hand_overs(1, 64 << 20), MAX_WAITING);
        assert_eq!(hand_overs(1, 6 << 20), MAX_WAITING * 3);
    }

    #[test]
    fn who_waits_sleeps_until_several_groups_have_ended() {
        let mut ahead = Ahead::default();
        for number in 1..=MAX_WAITING as u64 {
            ahead.add(KERNELS, 0);
            ahead.end(|| number);
        }
        assert_eq!(ahead.room(true), (1, 2));
        assert_eq!(ahead.room(false), (1, 5));
    }

    #[test]
    fn a_device_without_work_has_room() {
        let mut ahead = Ahead::default();
        (0..1000).for_each(|_| ahead.end(|| unreachable!("nothing was handed over")));
        assert_eq!(ahead.room(true), (0, 0));
    }
}
