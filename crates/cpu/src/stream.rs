//! Stores that bypass the caches, for results that are larger than they are.

use std::ops::Range;

/// Outputs of at least this many bytes are written past the caches: nothing of them would be found there again.
pub const STREAM_BYTES: usize = 32 << 20;

/// Memory that will be read soon.
#[derive(Clone, Copy, Debug)]
pub struct Ahead {
    /// Its start.
    pub from: *const u8,
    /// How many of its cache lines to ask for with every line that is copied.
    pub lines: usize,
}

/// Part number `index` of `count`.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// Which.
    pub index: usize,
    /// Of how many.
    pub count: usize,
}

impl Share {
    /// Everything.
    pub const ALL: Share = Share { index: 0, count: 1 };

    /// A part of it.
    pub fn part(self, index: usize, count: usize) -> Share {
        Share { index: self.index * count + index, count: self.count * count }
    }

    /// So much of `0..len`.
    pub fn range(self, len: usize) -> Range<usize> {
        len * self.index / self.count..len * (self.index + 1) / self.count
    }
}

/// Bytes from what a loop reads of a long array to what it asks for. Intel's cores see few lines coming where many instructions
/// lie between two of them (maxima of 10,000 × 10,000: 20.1 → 11.8 ms, with fewer instructions); Zen 4's bring them sooner if
/// nobody asks (12.8 → 12.1 ms, or 8.8 → 7.9 while memory is faster). Older ones of AMD's were not measured.
pub fn ahead() -> usize {
    #[cfg(target_arch = "x86_64")]
    if *meshwork_simd::level::UP_TO_ZEN_4 {
        return 0;
    }
    4096
}

/// Copies `bytes` bytes with non-temporal stores where the processor has them, and meanwhile asks for what is `ahead`,
/// so that reading and writing memory never wait for each other. [`fence`] must follow before other threads read the
/// result.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize, ahead: &[Ahead]) {
    #[cfg(target_arch = "x86_64")]
    {
        use meshwork_simd::line::{LINE, prefetch};
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let head = to.align_offset(LINE).min(bytes);
        let lines = (bytes - head) / LINE;
        let tail = head + lines * LINE;
        // SAFETY: head, lines and tail are the bytes; the lines start at an aligned address.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            for line in 0..lines {
                for ahead in ahead {
                    for i in line * ahead.lines..(line + 1) * ahead.lines {
                        prefetch(ahead.from.wrapping_add(i * LINE));
                    }
                }
                let (source, target) = (from.add(head + line * LINE), to.add(head + line * LINE));
                let (source, target) = (source.cast::<__m128i>(), target.cast::<__m128i>());
                for i in 0..LINE / 16 {
                    _mm_stream_si128(target.add(i), _mm_loadu_si128(source.add(i)));
                }
            }
            std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), bytes - tail);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        let _ = ahead;
        std::ptr::copy_nonoverlapping(from, to, bytes);
    }
}

/// Orders the stores of [`copy`] before later ones.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has SSE.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_wherever_it_lies() {
        let from: Vec<u8> = (0..1000).map(|i| i as u8).collect();
        let ahead = [Ahead { from: from.as_ptr(), lines: 1 }, Ahead { from: from.as_ptr(), lines: 4 }];
        for (start, target, bytes) in [(0, 0, 1000), (1, 3, 700), (7, 64, 63), (0, 5, 0), (3, 1, 192)] {
            let mut to = vec![0u8; 1100];
            // SAFETY: both ranges lie in their memory.
            unsafe { copy(from.as_ptr().add(start), to.as_mut_ptr().add(target), bytes, &ahead) };
            fence();
            assert_eq!(to[target..target + bytes], from[start..start + bytes]);
            assert!(to[..target].iter().chain(&to[target + bytes..]).all(|&x| x == 0));
        }
    }
}
