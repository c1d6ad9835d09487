//! Blocks that nobody uses, kept for whoever needs as many bytes: fresh memory costs a page fault every 4 KiB.

use crate::memory;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// A block of memory.
pub(crate) struct Block(pub *mut u8);

// SAFETY: a free block belongs to whoever takes it, another one to its buffer.
unsafe impl Send for Block {}
// SAFETY: the pointer is only read.
unsafe impl Sync for Block {}

/// Free blocks by their size, up to so many bytes in all. Those that have waited longest go first: sizes of which nobody
/// needs any more would take the room of all others.
pub(crate) struct FreeBlocks {
    most: usize,
    bytes: usize,
    /// How many blocks have come so far.
    clock: u64,
    /// In the order in which they came, each with its number.
    by_size: FxHashMap<usize, VecDeque<(u64, Block)>>,
}

impl FreeBlocks {
    pub fn new(most: usize) -> Self {
        FreeBlocks { most, bytes: 0, clock: 0, by_size: FxHashMap::default() }
    }

    /// Bytes of all blocks.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The block of a size that came last.
    pub fn take(&mut self, size: usize) -> Option<Block> {
        let (_, block) = self.by_size.get_mut(&size)?.pop_back()?;
        self.bytes -= size;
        Some(block)
    }

    /// Keeps a block, and gives those that have to make room for it, with their sizes: the block itself if it is larger than all
    /// may be.
    pub fn keep(&mut self, block: Block, size: usize) -> Vec<(usize, Block)> {
        if size > self.most {
            return vec![(size, block)];
        }
        let gone = if self.bytes + size > self.most { self.oldest(self.most - size) } else { vec![] };
        self.clock += 1;
        self.bytes += size;
        self.by_size.entry(size).or_default().push_back((self.clock, block));
        gone
    }

    /// Takes those that came first, until three quarters of so many bytes are left: the next ones find room for a while.
    fn oldest(&mut self, most: usize) -> Vec<(usize, Block)> {
        let all = self.by_size.iter().flat_map(|(&size, blocks)| blocks.iter().map(move |&(number, _)| (number, size)));
        let mut all: Vec<(u64, usize)> = all.collect();
        all.sort_unstable();
        let mut gone = vec![];
        for (_, size) in all {
            if self.bytes <= most / 4 * 3 {
                break;
            }
            let blocks = self.by_size.get_mut(&size).expect("a size that has blocks");
            gone.extend(blocks.pop_front().map(|(_, block)| (size, block)));
            self.bytes -= size;
        }
        self.by_size.retain(|_, blocks| !blocks.is_empty());
        gone
    }
}

impl Drop for FreeBlocks {
    fn drop(&mut self) {
        for (size, blocks) in self.by_size.drain() {
            for (_, block) in blocks {
                // SAFETY: blocks are listed under their size, and nobody has them any more.
                unsafe { memory::give_back(block.0, size) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(free: &mut FreeBlocks, size: usize) -> Vec<usize> {
        let gone = free.keep(Block(memory::take(size)), size);
        let sizes = gone.iter().map(|(size, _)| *size).collect();
        // SAFETY: they were taken with their sizes.
        gone.into_iter().for_each(|(size, block)| unsafe { memory::give_back(block.0, size) });
        sizes
    }

    fn take(free: &mut FreeBlocks, size: usize) -> bool {
        let block = free.take(size);
        // SAFETY: it was taken with this size.
        block.iter().for_each(|block| unsafe { memory::give_back(block.0, size) });
        block.is_some()
    }

    #[test]
    fn what_waits_longest_makes_room() {
        let mut free = FreeBlocks::new(4096);
        for size in [1024, 1024, 512, 1536] {
            assert!(keep(&mut free, size).is_empty());
        }
        assert_eq!(free.bytes(), 4096);
        assert!(take(&mut free, 1024), "there are two");
        assert!(keep(&mut free, 1024).is_empty(), "there is room again");
        assert_eq!(keep(&mut free, 2048), [1024, 512, 1536], "the oldest ones, up to three quarters of the rest");
        assert_eq!(free.bytes(), 3072);
        assert!(take(&mut free, 1024) && take(&mut free, 2048), "the youngest ones stay");
        assert!(!take(&mut free, 1024) && !take(&mut free, 512));
        assert_eq!(free.bytes(), 0);
    }

    #[test]
    fn a_block_larger_than_all_may_be_is_not_kept() {
        let mut free = FreeBlocks::new(4096);
        assert!(keep(&mut free, 4096).is_empty());
        assert_eq!(keep(&mut free, 4160), [4160]);
        assert!(take(&mut free, 4096), "the others stay");
    }
}
