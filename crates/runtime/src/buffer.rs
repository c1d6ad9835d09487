//! Device memory: aligned blocks that are reused, and an exact account of what is in use.

use rustc_hash::FxHashMap;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::sync::{Arc, Mutex};

/// Alignment of every block: a cache line, and enough for any vector load.
const ALIGNMENT: usize = meshwork_graph::passes::ALIGNMENT;

/// Freed blocks are kept for reuse up to this many bytes: fresh memory costs a page fault every 4 KiB.
const MAX_CACHED: usize = 512 << 20;

/// Bytes in use on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// In use now, the arena of a running program included.
    pub allocated: usize,
    /// The most that was in use since the start or the last reset.
    pub peak: usize,
    /// Held for reuse, on top of what is in use.
    pub cached: usize,
}

impl MemoryStats {
    fn add(&mut self, bytes: usize) {
        self.allocated += bytes;
        self.peak = self.peak.max(self.allocated);
    }
}

/// The memory of one device.
#[derive(Default)]
pub(crate) struct Pool {
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    stats: MemoryStats,
    free: FxHashMap<usize, Vec<Block>>,
}

struct Block(*mut u8);

// SAFETY: a free block belongs to whoever takes it from the list.
unsafe impl Send for Block {}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1).next_multiple_of(ALIGNMENT), ALIGNMENT).expect("a size that fits in memory")
}

impl Pool {
    fn lock(&self) -> std::sync::MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn stats(&self) -> MemoryStats {
        self.lock().stats
    }

    pub fn reset_peak(&self) {
        let mut state = self.lock();
        state.stats.peak = state.stats.allocated;
    }

    /// Counts memory that is held elsewhere as in use.
    pub fn account(&self, bytes: usize) {
        self.lock().stats.add(bytes);
    }

    pub fn unaccount(&self, bytes: usize) {
        self.lock().stats.allocated -= bytes;
    }

    fn take(&self, bytes: usize) -> *mut u8 {
        let size = layout(bytes).size();
        let cached = {
            let mut state = self.lock();
            state.stats.add(bytes);
            let block = state.free.get_mut(&size).and_then(Vec::pop);
            if block.is_some() {
                state.stats.cached -= size;
            }
            block
        };
        match cached {
            Some(block) => block.0,
            None => {
                // SAFETY: the layout has a size.
                let pointer = unsafe { alloc(layout(bytes)) };
                if pointer.is_null() {
                    handle_alloc_error(layout(bytes));
                }
                pointer
            }
        }
    }

    fn give_back(&self, pointer: *mut u8, bytes: usize) {
        let size = layout(bytes).size();
        let mut state = self.lock();
        state.stats.allocated -= bytes;
        if state.stats.cached + size <= MAX_CACHED {
            state.stats.cached += size;
            state.free.entry(size).or_default().push(Block(pointer));
        } else {
            drop(state);
            // SAFETY: the block was allocated with this layout and nobody has it any more.
            unsafe { dealloc(pointer, layout(bytes)) };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
        for (size, blocks) in state.free.drain() {
            for block in blocks {
                // SAFETY: blocks are listed under the size that they were allocated with.
                unsafe { dealloc(block.0, layout(size)) };
            }
        }
    }
}

/// A block of device memory, given back when dropped.
///
/// Who may touch the elements is a matter of events: the queue that computes a buffer writes it before its
/// event is complete, everybody reads after that.
pub struct Buffer {
    pointer: *mut u8,
    bytes: usize,
    pool: Arc<Pool>,
}

// SAFETY: access to the elements is ordered by events, as described above.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(pool: &Arc<Pool>, bytes: usize) -> Self {
        Buffer { pointer: pool.take(bytes), bytes, pool: pool.clone() }
    }

    /// A buffer filled with a copy of `contents`.
    pub(crate) fn of(pool: &Arc<Pool>, contents: &[u8]) -> Self {
        let buffer = Buffer::new(pool, contents.len());
        // SAFETY: the new block has this size and nobody else has it.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), buffer.pointer, contents.len()) };
        buffer
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// The bytes.
    ///
    /// # Safety
    /// The event of the value must be complete, and no work that overwrites the buffer may have been handed over.
    pub unsafe fn contents(&self) -> &[u8] {
        // SAFETY: the block has this size; the caller promises that nobody writes it.
        unsafe { std::slice::from_raw_parts(self.pointer, self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.give_back(self.pointer, self.bytes);
    }
}
