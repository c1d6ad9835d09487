//! Extrema of rows of f32 with vectors of 512 bits.

use super::columns::ABREAST;
use meshwork_graph::canonical::LANES;
use std::arch::x86_64::*;

/// Takes the numbers of some rows, as many of each as there are results, into the largest or smallest ones so far. NaN where one is.
///
/// # Safety
/// The rows must have so many numbers.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn take_rows<const LARGEST: bool>(out: &mut [f32], rows: &[*const f32; ABREAST]) {
    for column in (0..out.len()).step_by(LANES) {
        let mask = u16::MAX >> (LANES - LANES.min(out.len() - column));
        let result = out[column..].as_mut_ptr();
        // SAFETY: the mask leaves out what is not there.
        unsafe {
            let [a, b, c, d] = rows.map(|row| _mm512_maskz_loadu_ps(mask, row.add(column)));
            let best = _mm512_maskz_loadu_ps(mask, result);
            let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, b)
                | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(c, d)
                | _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(best, best);
            let best =
                extremum::<LARGEST>(best, extremum::<LARGEST>(extremum::<LARGEST>(a, b), extremum::<LARGEST>(c, d)));
            _mm512_mask_storeu_ps(result, mask, _mm512_mask_mov_ps(best, is_nan, _mm512_set1_ps(f32::NAN)));
        }
    }
}

/// The larger or the smaller numbers, zeros ordered by their signs.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
fn extremum<const LARGEST: bool>(a: __m512, b: __m512) -> __m512 {
    // Bit 2: the sign is that of the result.
    if LARGEST { _mm512_range_ps::<5>(a, b) } else { _mm512_range_ps::<4>(a, b) }
}
