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

    /// A room of `bytes` for every slot of a job: for one half of them at the start of what is left, for the others at its end.
    pub fn slots(&mut self, count: usize, bytes: usize) -> Slots {
        let first = self.split(count / 2 * bytes);
        let others = (count - count / 2) * bytes;
        assert!(others <= self.left, "scratch memory: {others} bytes needed, {} left", self.left);
        self.left = (self.left - others) / ALIGN * ALIGN;
        // SAFETY: inside the memory, as just checked.
        let others = Arena { next: unsafe { self.next.add(self.left) }, left: others };
        Slots { halves: [first, others], bytes }
    }
}

/// Rooms of slots. Whatever lies between them, the kernels of a program have their scratch memory around the same middle, and in
/// each of them a thread finds its room where it had one before.
#[derive(Clone, Copy)]
pub struct Slots {
    halves: [Arena; 2],
    bytes: usize,
}

impl Slots {
    /// The room of slot `index`.
    pub fn room(&self, index: usize) -> Arena {
        let [mut first, mut others] = self.halves;
        let at = index * self.bytes;
        if at < first.left {
            first.split(at);
            return first.split(self.bytes);
        }
        others.split(at - first.left);
        others.split(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use meshwork_simd::line::{LINE, Line};

    #[test]
    fn rooms_of_slots_lie_at_both_ends_and_what_is_shared_between_them() {
        for (count, bytes, shared, more) in [(1, 128, 0, 0), (2, 192, 64, 0), (3, 64, 256, 128), (8, 640, 320, 64)] {
            let size = count * bytes + shared + more;
            let mut lines = vec![Line([0; LINE]); size / LINE];
            let first = lines.as_ptr().addr();
            // SAFETY: the memory of the lines.
            let mut arena = Arena::new(unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size) });
            let slots = arena.slots(count, bytes);
            let between: *mut u8 = arena.take(shared);
            let mut rooms: Vec<_> = (0..count).map(|i| slots.room(i).take::<u8>(bytes).addr() - first).collect();
            assert!(rooms.iter().all(|&at| at.is_multiple_of(ALIGN) && at + bytes <= size));
            assert!(rooms.is_sorted());
            assert_eq!(rooms[count - 1] + bytes, size);
            rooms.insert(count / 2, between.addr() - first);
            let sizes = (0..=count).map(|i| if i == count / 2 { shared } else { bytes });
            let ends: Vec<usize> = rooms.iter().zip(sizes).map(|(at, size)| at + size).collect();
            assert!(ends.iter().zip(&rooms[1..]).all(|(end, next)| end <= next), "{rooms:?}");
        }
    }
}
