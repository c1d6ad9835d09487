//! Small planes, of which many lie side by side: neighbours belong to different planes.

use super::rows::overlapping;
use crate::gemm::Element;

/// Copies the element at each of `places.len()` positions of so many planes, which are `apart`: those of position `i` to what begins at
/// `places[i]`.
///
/// # Safety
/// The elements must be there, and room for them.
#[inline(always)]
pub unsafe fn turn<S: Element>(from: *const S, apart: usize, planes: usize, to: *mut S::Real, places: &[usize]) {
    // SAFETY: the caller's promise.
    unsafe { overlapping!(places.len(), turn_some::<S>(from, apart, planes, to, places)) }
}

#[inline(always)]
unsafe fn turn_some<S: Element, const N: usize>(
    from: *const S,
    apart: usize,
    planes: usize,
    to: *mut S::Real,
    places: &[usize],
) {
    for first in (0..places.len()).step_by(N) {
        let first = first.min(places.len() - N);
        let to: [_; N] = std::array::from_fn(|i| to.wrapping_add(places[first + i]));
        for plane in 0..planes {
            // SAFETY: the caller's promise.
            unsafe {
                let from: [S; N] = from.add(plane * apart + first).cast::<[S; N]>().read_unaligned();
                for (to, x) in to.iter().zip(from) {
                    *to.add(plane) = x.widen();
                }
            }
        }
    }
}

/// The other way round.
///
/// # Safety
/// As for [`turn`].
#[inline(always)]
pub unsafe fn turn_back<S: Element>(from: *const S::Real, places: &[usize], to: *mut S, apart: usize, planes: usize) {
    // SAFETY: the caller's promise.
    unsafe { overlapping!(places.len(), turn_some_back::<S>(from, places, to, apart, planes)) }
}

#[inline(always)]
unsafe fn turn_some_back<S: Element, const N: usize>(
    from: *const S::Real,
    places: &[usize],
    to: *mut S,
    apart: usize,
    planes: usize,
) {
    for first in (0..places.len()).step_by(N) {
        let first = first.min(places.len() - N);
        let from: [_; N] = std::array::from_fn(|i| from.wrapping_add(places[first + i]));
        for plane in 0..planes {
            // SAFETY: the caller's promise.
            unsafe {
                let some: [S; N] = std::array::from_fn(|i| S::narrow(*from[i].add(plane)));
                to.add(plane * apart + first).cast::<[S; N]>().write_unaligned(some);
            }
        }
    }
}
