//! Addresses in the arena of a program.
//!
//! Memory that is free is used again. Of most tensors, and of scratch memory, one half of the threads writes the lower half and
//! the other one the upper half, and a line of the caches that cores of another part of the processor have takes far longer to
//! write (on Zen 4 25 to 37 ns instead of 1). So what is large lies in *tracks*: all of a track's storages have their middles at the
//! same address, and threads find on their side what they wrote themselves. Storages that are alive together lie in different
//! tracks. What is small fills the gaps.

/// A storage of the arena.
#[derive(Clone, Copy, Debug)]
pub struct Life {
    /// Its size, a multiple of the alignment.
    pub bytes: usize,
    /// The first step that uses it.
    pub first: usize,
    /// The last one.
    pub last: usize,
}

impl Life {
    fn meets(&self, other: &Life) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

/// Bytes of a storage from which on it matters who writes where.
const LARGE: usize = 16 << 10;

/// Bytes of an arena up to which it does: caches do not hold more.
const CACHED: usize = 64 << 20;

/// Storages around a common middle.
struct Track {
    start: usize,
    bytes: usize,
    members: Vec<usize>,
}

/// Addresses for storages so that none that are alive in the same step overlap, and the size of the arena.
pub fn addresses(lives: &[Life]) -> (Vec<usize>, usize) {
    let mut waiting: Vec<usize> = (0..lives.len()).collect();
    waiting.sort_by_key(|&s| (std::cmp::Reverse(lives[s].bytes), s));
    let mut arena = Arena { lives, at: vec![None; lives.len()] };
    let (large, small) = waiting.split_at(waiting.partition_point(|&s| lives[s].bytes >= LARGE));
    arena.lay_tracks(large);
    if arena.size() > CACHED {
        arena.at.fill(None);
        large.iter().for_each(|&s| arena.fill_gap(s));
    }
    small.iter().for_each(|&s| arena.fill_gap(s));
    let size = arena.size();
    (arena.at.into_iter().flatten().collect(), size)
}

struct Arena<'a> {
    lives: &'a [Life],
    at: Vec<Option<usize>>,
}

impl Arena<'_> {
    fn size(&self) -> usize {
        self.lives.iter().zip(&self.at).filter_map(|(life, at)| at.map(|at| at + life.bytes)).max().unwrap_or(0)
    }

    /// Places storages, which come by falling size, each in the smallest track that is free while it lives.
    fn lay_tracks(&mut self, storages: &[usize]) {
        let mut tracks: Vec<Track> = Vec::new();
        for &s in storages {
            let life = &self.lives[s];
            let is_free = |track: &&mut Track| track.members.iter().all(|&other| !life.meets(&self.lives[other]));
            let track = match tracks.iter_mut().rev().find(is_free) {
                Some(track) => track,
                None => {
                    let start = tracks.last().map_or(0, |track| track.start + track.bytes);
                    tracks.push(Track { start, bytes: life.bytes, members: Vec::new() });
                    tracks.last_mut().expect("just added")
                }
            };
            track.members.push(s);
            let margin = (track.bytes - life.bytes) / 2;
            self.at[s] = Some(track.start + margin - margin % super::place::ALIGNMENT);
        }
    }

    /// Places a storage at the lowest address that is free while it lives.
    fn fill_gap(&mut self, s: usize) {
        let life = &self.lives[s];
        let neighbours = self.lives.iter().zip(&self.at).filter(|(other, _)| life.meets(other));
        let mut taken: Vec<(usize, usize)> =
            neighbours.filter_map(|(other, at)| at.map(|at| (at, at + other.bytes))).collect();
        taken.sort_unstable();
        let mut at = 0;
        for (from, to) in taken {
            if at + life.bytes <= from {
                break;
            }
            at = at.max(to);
        }
        self.at[s] = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random storages: most live for a few of 20 steps.
    fn lives(scale: usize) -> Vec<Life> {
        let mut state = 7u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut life = || {
            let (first, steps) = (random(20), random(4) * random(4));
            Life { bytes: 64 * (1 + random(scale)), first, last: first + steps }
        };
        (0..60).map(|_| life()).collect()
    }

    #[test]
    fn storages_that_are_alive_together_do_not_overlap() {
        for scale in [1, 100, 10_000, 1_000_000] {
            let lives = lives(scale);
            let (addresses, size) = addresses(&lives);
            assert_eq!(addresses.len(), lives.len());
            for (i, a) in lives.iter().enumerate() {
                assert!(addresses[i].is_multiple_of(64) && addresses[i] + a.bytes <= size);
                for (j, b) in lives.iter().enumerate().skip(i + 1) {
                    let apart = addresses[i] + a.bytes <= addresses[j] || addresses[j] + b.bytes <= addresses[i];
                    assert!(apart || !a.meets(b), "{a:?} at {} and {b:?} at {}", addresses[i], addresses[j]);
                }
            }
            assert!(size < lives.iter().map(|life| life.bytes).sum(), "memory is used again");
        }
    }

    #[test]
    fn what_is_large_lies_around_the_same_middle() {
        let life = |kib: usize, first, last| Life { bytes: kib << 10, first, last };
        let lives = [life(100, 0, 1), life(400, 1, 2), life(60, 2, 3), life(1, 2, 2), life(32, 3, 4)];
        let (at, size) = addresses(&lives);
        let middle = |i: usize| at[i] + lives[i].bytes / 2;
        assert_eq!(middle(0), middle(2));
        assert_eq!(middle(1), middle(4));
        assert_eq!(size, 500 << 10);
        assert!(at[3] + (1 << 10) <= size);
    }

    #[test]
    fn what_no_cache_holds_lies_where_there_is_room() {
        let life = |mib: usize, first, last| Life { bytes: mib << 20, first, last };
        let lives = [life(60, 0, 1), life(40, 1, 2), life(50, 2, 3)];
        assert_eq!(addresses(&lives), (vec![0, 60 << 20, 0], 100 << 20));
    }
}
