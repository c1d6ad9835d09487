//! Carving typed rooms out of a kernel's scratch memory.

use std::mem::size_of;

/// Alignment of every room, in bytes.
const ALIGN: usize = 64;

/// Bytes of a room for `count` elements.
pub fn room<T>(count: usize) -> usize {
    (count * size_of::<T>()).next_multiple_of(ALIGN)
}

/// A part of the scratch memory that is given out from its start.
#[derive(Clone, Copy)]
pub struct Arena {
    next: *mut u8,
    left: usize,
}

// SAFETY: an arena is a range of memory; whoever takes rooms of one range from several threads keeps them apart.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// All of the scratch memory, which must be aligned to 64 bytes unless it is empty.
    pub fn new(scratch: &mut [u8]) -> Self {
        assert!(scratch.is_empty() || scratch.as_ptr().addr().is_multiple_of(ALIGN), "scratch memory is not aligned");
        Arena { next: scratch.as_mut_ptr(), left: scratch.len() }
    }

    /// The next `bytes`.
    pub fn split(&mut self, bytes: usize) -> Arena {
        assert!(bytes <= self.left, "scratch memory: {bytes} bytes needed, {} left", self.left);
        let part = Arena { next: self.next, left: bytes };
        // SAFETY: inside the memory, as just checked.
        self.next = unsafe { self.next.add(bytes) };
        self.left -= bytes;
        part
    }

    /// Room for `count` elements.
    pub fn take<T>(&mut self, count: usize) -> *mut T {
        self.split(room::<T>(count)).next.cast()
    }

    /// The part that belongs to slot `index` of equal ones of `bytes`.
    pub fn slot(&self, index: usize, bytes: usize) -> Arena {
        let mut arena = *self;
        arena.split(index * bytes);
        arena.split(bytes)
    }
}
