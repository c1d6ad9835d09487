//! Blocks of memory from the system.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};

/// Alignment of every block: a cache line, and enough for any vector load.
const ALIGNMENT: usize = meshwork_graph::passes::ALIGNMENT;
/// Bytes of a huge page.
const HUGE_PAGE: usize = 2 << 20;
/// Blocks of so many bytes ask for huge pages: rows of a matrix lie pages apart, and a processor remembers few pages.
const LARGE: usize = 2 * HUGE_PAGE;

/// Bytes of a block that has room for so many.
pub(crate) fn block_size(bytes: usize) -> usize {
    bytes.max(1).next_multiple_of(ALIGNMENT)
}

fn layout(bytes: usize) -> Layout {
    let size = block_size(bytes);
    let alignment = if size >= LARGE { HUGE_PAGE } else { ALIGNMENT };
    Layout::from_size_align(size, alignment).expect("a size that fits in memory")
}

/// A block of at least so many bytes, of any contents.
pub(crate) fn take(bytes: usize) -> *mut u8 {
    let layout = layout(bytes);
    // SAFETY: the layout has a size.
    let block = unsafe { alloc(layout) };
    if block.is_null() {
        handle_alloc_error(layout);
    }
    #[cfg(target_os = "linux")]
    if layout.align() == HUGE_PAGE {
        // SAFETY: whole pages of the block. It is advice, which may be refused.
        unsafe { libc::madvise(block.cast(), layout.size() / HUGE_PAGE * HUGE_PAGE, libc::MADV_HUGEPAGE) };
    }
    block
}

/// Gives a block back.
///
/// # Safety
/// It must come from [`take`] with a number of bytes of the same [`block_size`], and nobody may use it any more.
pub(crate) unsafe fn give_back(block: *mut u8, bytes: usize) {
    // SAFETY: it was allocated with this layout.
    unsafe { dealloc(block, layout(bytes)) };
}
