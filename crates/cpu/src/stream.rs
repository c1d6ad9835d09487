//! Stores that bypass the caches, for results that are larger than they are.

/// Outputs of at least this many bytes are written past the caches: nothing of them would be found there again.
pub const STREAM_BYTES: usize = 32 << 20;

/// Copies `bytes` bytes with non-temporal stores where the processor has them. [`fence`] must follow before other
/// threads read the result.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
        let head = to.align_offset(16).min(bytes);
        let vectors = (bytes - head) / 16;
        let tail = head + vectors * 16;
        // SAFETY: head, vectors and tail are the bytes; the vectors start at an aligned address.
        unsafe {
            std::ptr::copy_nonoverlapping(from, to, head);
            let (source, target) = (from.add(head).cast::<__m128i>(), to.add(head).cast::<__m128i>());
            for i in 0..vectors {
                _mm_stream_si128(target.add(i), _mm_loadu_si128(source.add(i)));
            }
            std::ptr::copy_nonoverlapping(from.add(tail), to.add(tail), bytes - tail);
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
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
