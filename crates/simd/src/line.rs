//! Lines of the caches, and how a core asks for them before it reads them.

use std::mem::size_of;

/// Bytes of a cache line.
pub const LINE: usize = 64;

/// Memory of a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Line(#[allow(dead_code)] pub [u8; LINE]);

/// A cache that lines are brought into.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    First,
    Second,
}

/// Asks for a cache line. This has no effect on memory, whatever the address.
#[inline(always)]
pub fn prefetch(line: *const u8) {
    bring(line, Cache::First);
}

/// The same for the second cache: the first one is left to what is in use.
#[inline(always)]
pub fn prefetch_near(line: *const u8) {
    bring(line, Cache::Second);
}

/// Asks for lines that will be written, `first` at the start of one. Those that other cores have come together, while a store waits for the one before.
#[inline]
pub fn prefetch_to_write(first: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..bytes.div_ceil(LINE) {
        let line = first.wrapping_add(line * LINE);
        // SAFETY: a hint, whatever the address. Processors that do not know it do nothing.
        unsafe { std::arch::asm!("prefetchw [{0}]", in(reg) line, options(nostack, preserves_flags)) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (first, bytes);
}

/// Asks for the lines of so many elements.
pub fn prefetch_all<T>(first: *const T, count: usize) {
    (0..count * size_of::<T>()).step_by(LINE).for_each(|at| prefetch(first.cast::<u8>().wrapping_add(at)));
}

/// Asks for all lines of a value. They come together, while a thread that reads one after the other waits for each.
pub fn prefetch_value<T: ?Sized>(value: &T) {
    let first: *const u8 = std::ptr::from_ref(value).cast();
    let lines = (first.addr() % LINE + size_of_val(value)).div_ceil(LINE);
    (0..lines).for_each(|line| prefetch(first.wrapping_add(line * LINE)));
}

#[inline(always)]
fn bring(line: *const u8, to: Cache) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has the instruction, which never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};
        match to {
            Cache::First => _mm_prefetch::<_MM_HINT_T0>(line.cast()),
            Cache::Second => _mm_prefetch::<_MM_HINT_T1>(line.cast()),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (line, to);
}

/// Lines so many bytes apart.
#[derive(Clone, Copy)]
pub struct Lines {
    /// The first of them.
    pub first: *const u8,
    /// Their distance.
    pub step: isize,
    /// How many there are: [`Lines::MOST`] or fewer, or no end of them.
    pub count: usize,
}

impl Lines {
    /// Behind the lines that are needed: one that is there, again and again.
    pub const NONE: &Lines = &Lines { first: (&raw const THERE).cast(), step: 0, count: usize::MAX };

    /// Lines of a run that ends, at most.
    pub const MOST: usize = usize::MAX / 2;
}

/// What is asked for when nothing is needed.
static THERE: u8 = 0;

// SAFETY: addresses, which nobody follows but the processor.
unsafe impl Sync for Lines {}
