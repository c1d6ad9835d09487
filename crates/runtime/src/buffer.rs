//! Device memory: aligned blocks that are reused, and an exact account of what is in use.

use crate::free::{Block, FreeBlocks};
use crate::{DeviceId, memory};
use meshwork_queue::{Event, Part};
use smallvec::SmallVec;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

/// Bytes of the freed blocks that are kept, at most.
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
pub(crate) struct Pool {
    device: DeviceId,
    state: Mutex<PoolState>,
}

struct PoolState {
    stats: MemoryStats,
    free: FreeBlocks,
}

impl Pool {
    pub fn new(device: DeviceId) -> Pool {
        let (stats, free) = (MemoryStats::default(), FreeBlocks::new(MAX_CACHED));
        Pool { device, state: Mutex::new(PoolState { stats, free }) }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn stats(&self) -> MemoryStats {
        let state = self.lock();
        MemoryStats { cached: state.free.bytes(), ..state.stats }
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
        let size = memory::block_size(bytes);
        let kept = {
            let mut state = self.lock();
            state.stats.add(bytes);
            state.free.take(size)
        };
        kept.map_or_else(|| memory::take(bytes), |block| block.0)
    }

    fn give_back(&self, block: Block, bytes: usize) {
        let gone = {
            let mut state = self.lock();
            state.stats.allocated -= bytes;
            state.free.keep(block, memory::block_size(bytes))
        };
        // SAFETY: the blocks were taken with these sizes, and nobody has them any more.
        gone.into_iter().for_each(|(size, block)| unsafe { memory::give_back(block.0, size) });
    }
}

/// A block of device memory, taken when it is first written and given back when dropped: what waits to be computed needs
/// no memory yet.
///
/// Who may touch the elements is a matter of events: the task that computes a buffer writes it before its event is
/// complete, everybody reads after that, and who overwrites it again waits for the tasks that read it.
pub struct Buffer {
    block: OnceLock<Block>,
    bytes: usize,
    pool: Arc<Pool>,
    /// Tasks that read the elements, and may not have ended.
    readers: Mutex<SmallVec<[Arc<Event>; 2]>>,
}

/// Readers are looked through for ended ones when there are so many.
const MANY_READERS: usize = 8;

// SAFETY: access to the elements is ordered by events, as described above.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    pub(crate) fn new(pool: &Arc<Pool>, bytes: usize) -> Self {
        Buffer { block: OnceLock::new(), bytes, pool: pool.clone(), readers: Mutex::default() }
    }

    /// A buffer filled with a copy of `contents`.
    pub(crate) fn of(pool: &Arc<Pool>, contents: &[u8]) -> Self {
        let buffer = Buffer::new(pool, contents.len());
        // SAFETY: the new block has this size and nobody else has it.
        unsafe { std::ptr::copy_nonoverlapping(contents.as_ptr(), buffer.pointer(), contents.len()) };
        buffer
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it has memory: not before it is first written.
    pub fn has_memory(&self) -> bool {
        self.block.get().is_some()
    }

    /// Whose memory it is.
    pub fn device(&self) -> DeviceId {
        self.pool.device
    }

    fn readers(&self) -> MutexGuard<'_, SmallVec<[Arc<Event>; 2]>> {
        self.readers.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes a task that reads the elements.
    pub(crate) fn add_reader(&self, task: &Arc<Event>) {
        let mut readers = self.readers();
        if readers.len() >= MANY_READERS && readers.len().is_power_of_two() {
            readers.retain(|reader| !reader.is_complete(Part::End));
        }
        readers.push(task.clone());
    }

    /// The tasks that whoever overwrites the elements must wait for.
    pub(crate) fn take_readers(&self) -> SmallVec<[Arc<Event>; 2]> {
        std::mem::take(&mut *self.readers())
    }

    /// The first byte.
    pub fn pointer(&self) -> *mut u8 {
        self.block.get_or_init(|| Block(self.pool.take(self.bytes))).0
    }

    /// The bytes.
    ///
    /// # Safety
    /// The event of the value must be complete, and no work that overwrites the buffer may have been handed over.
    pub unsafe fn contents(&self) -> &[u8] {
        // SAFETY: the block has this size; the caller promises that nobody writes it.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.bytes) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.give_back(block, self.bytes);
        }
    }
}
