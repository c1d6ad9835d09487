//! Packing: rows of an operand into panels, term by term, as the microkernels read them.
//!
//! Element (row, term) lies at `rows[row] + terms[term]`. A panel has `width` rows: its element (row, term) goes to
//! `term · width + row`. Rows that are missing from the last panel become zeros.

use super::real::{Element, same};
use crate::simd::Level;

/// Elements that packing may write after the last panel.
pub const SLACK: usize = 16;

/// Packs `rows` × `terms` into panels that are `terms.len() · width` apart.
///
/// # Safety
/// Every element must be readable, and between the first and the last of them must be nothing but memory of the same
/// buffer. `out` must have room for the panels and [`SLACK`] more.
pub unsafe fn pack<S: Element>(
    level: Level,
    data: *const S,
    rows: &[isize],
    terms: &[isize],
    width: usize,
    out: *mut S::Real,
) {
    #[cfg(target_arch = "x86_64")]
    if same::<S, f32>() && level >= Level::Avx2 {
        // SAFETY: the caller's promise; the types are the same.
        unsafe { super::pack_x86::pack(data.cast(), rows, terms, width, out.cast()) };
        return;
    }
    let _ = (level, same::<S, f32>());
    for (p, panel) in rows.chunks(width).enumerate() {
        // SAFETY: panel `p` of the caller's room, elements of the caller's.
        unsafe {
            let out = out.add(p * width * terms.len());
            for (k, &term) in terms.iter().enumerate() {
                scalar(data, panel, term, width, out.add(k * width));
            }
        }
    }
}

/// One term of a panel, element by element.
///
/// # Safety
/// As for [`pack`].
#[inline(always)]
pub unsafe fn scalar<S: Element>(data: *const S, panel: &[isize], term: isize, width: usize, out: *mut S::Real) {
    // SAFETY: the caller's promise.
    unsafe {
        for (i, &row) in panel.iter().enumerate() {
            *out.add(i) = (*data.offset(row + term)).widen();
        }
        for i in panel.len()..width {
            *out.add(i) = super::Real::ZERO;
        }
    }
}
