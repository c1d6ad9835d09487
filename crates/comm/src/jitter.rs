//! Random delays, for tests of programs that must not depend on timing.

use std::time::Duration;

/// Delays of a rank: pseudo-random ones, from a seed.
#[derive(Clone, Debug)]
pub struct Jitter(u64);

impl Jitter {
    /// The delays of one rank.
    pub fn new(seed: u64, rank: usize) -> Jitter {
        Jitter(seed ^ (rank as u64) << 32)
    }

    /// Delays of its own, for work that is handed to another thread.
    pub fn fork(&mut self) -> Jitter {
        Jitter(self.next())
    }

    /// SplitMix64 (Steele, Lea and Flood, 2014).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Lets others go first, for up to a third of a millisecond, or not.
    pub fn delay(&mut self) {
        let n = self.next() >> 32;
        match n % 8 {
            0 => crate::sync::thread::sleep(Duration::from_micros(n / 8 % 300)),
            1..4 => crate::sync::thread::yield_now(),
            4 => (0..n / 8 % 2000).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }
}
