//! Packing with AVX-512: panels of neighbouring rows, in whole lines of the caches where their width allows it, and panels
//! of rows whose terms are neighbours, which are transposed by squares of whole lines.

use super::pack_x86;
use half::{bf16, f16};
use meshwork_simd::line::LINE;
use meshwork_simd::line::prefetch;
use std::arch::x86_64::*;

/// How many lines of a row ahead the one is that is asked for while one is read: no processor's prefetcher follows so many
/// rows.
const LINES_AHEAD: usize = 2;

/// Terms that are copied of some panels before others are: a piece of each panel is written in one go, and what is read of the
/// terms stays in the first-level cache.
const TERMS: usize = 16;
/// Panels that are copied together.
const PANELS: usize = 4;

/// Elements that masked vectors of f32 are loaded from.
pub trait Source: pack_x86::Source {
    /// The elements of `mask`, where memory need not be readable elsewhere; `others` in the other lanes.
    ///
    /// # Safety
    /// Those of the mask must be readable, and the processor must have AVX-512 F, BW and VL.
    unsafe fn load(others: __m512, mask: __mmask16, from: *const Self) -> __m512;
}

impl Source for f32 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load(others: __m512, mask: __mmask16, from: *const f32) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_loadu_ps(others, mask, from) }
    }
}

impl Source for bf16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load(others: __m512, mask: __mmask16, from: *const bf16) -> __m512 {
        // SAFETY: the caller's promise.
        let bits = unsafe { _mm256_maskz_loadu_epi16(mask, from.cast()) };
        let x = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)));
        _mm512_mask_blend_ps(mask, others, x)
    }
}

impl Source for f16 {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    unsafe fn load(others: __m512, mask: __mmask16, from: *const f16) -> __m512 {
        // SAFETY: the caller's promise.
        let bits = unsafe { _mm256_maskz_loadu_epi16(mask, from.cast()) };
        _mm512_mask_blend_ps(mask, others, _mm512_cvtph_ps(bits))
    }
}

/// Widths of the panels that [`by_rows`] packs.
pub fn packs(width: usize) -> bool {
    width <= 16 || width == 32
}

/// Copies panels of rows that lie side by side, which begin at `firsts`.
///
/// # Safety
/// As for [`super::pack::pack`]; the processor must have AVX-512, the width be one of [`packs`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn by_rows<S: Source>(
    data: *const S,
    firsts: &[isize],
    terms: &[isize],
    [width, distance]: [usize; 2],
    out: *mut f32,
) {
    for (number, terms) in terms.chunks(TERMS).enumerate() {
        for (group, firsts) in firsts.chunks(PANELS).enumerate() {
            // SAFETY: the caller's promise.
            unsafe {
                let out = out.add(group * PANELS * distance + number * TERMS * width);
                match width {
                    4 => {
                        let (fours, rest) = terms.as_chunks();
                        by_four(data, firsts, fours, distance, out);
                        by_masks(data, firsts, rest, width, distance, out.add(fours.len() * 16));
                    }
                    12 => {
                        let (fours, rest) = terms.as_chunks();
                        by_twelve(data, firsts, fours, distance, out);
                        by_masks(data, firsts, rest, width, distance, out.add(fours.len() * 48));
                    }
                    8 => {
                        let (pairs, rest) = terms.as_chunks();
                        by_eight(data, firsts, pairs, distance, out);
                        by_masks(data, firsts, rest, width, distance, out.add(pairs.len() * 16));
                    }
                    16 => by_lines::<S, 1>(data, firsts, terms, distance, out),
                    32 => by_lines::<S, 2>(data, firsts, terms, distance, out),
                    _ => by_masks(data, firsts, terms, width, distance, out),
                }
            }
        }
    }
}

/// Two vectors of eight as one. What vectors are put together from is loaded in so many bytes as are needed: masked loads of a
/// whole line, of which these are a part, touch two lines wherever that does not begin on one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn halves(low: __m256, high: __m256) -> __m512 {
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}

/// Four elements at `low` and four at `high`.
///
/// # Safety
/// They must be readable, and the processor have AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn quarters<S: Source>(low: *const S, high: *const S) -> __m256 {
    // SAFETY: the caller's promise.
    unsafe { _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(S::load4(low)), S::load4(high)) }
}

/// Copies panels of four rows, four terms at a time: they are a line. Four panels side by side are read in whole lines.
///
/// # Safety
/// As for [`by_rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn by_four<S: Source>(
    data: *const S,
    firsts: &[isize],
    fours: &[[isize; 4]],
    distance: usize,
    mut out: *mut f32,
) {
    let zero = _mm512_setzero_ps();
    for four in fours {
        let terms = four.map(|term| data.wrapping_offset(term));
        let mut to = out;
        for panels in firsts.chunks(4) {
            let beside = panels.len() == 4 && panels.windows(2).all(|pair| pair[1] == pair[0] + 4);
            // SAFETY: elements of the panels' rows of four terms, and a line of each panel.
            unsafe {
                if beside {
                    let [a, b, c, d] = terms.map(|term| S::load(zero, 0xffff, term.wrapping_offset(panels[0])));
                    // Quarters of terms: the first two of a and b, the last two, and those of c and d.
                    let (low, high) = (_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xee>(a, b));
                    let (low_too, high_too) = (_mm512_shuffle_f32x4::<0x44>(c, d), _mm512_shuffle_f32x4::<0xee>(c, d));
                    for (i, (left, right)) in [(low, low_too), (high, high_too)].into_iter().enumerate() {
                        _mm512_storeu_ps(to.add(2 * i * distance), _mm512_shuffle_f32x4::<0x88>(left, right));
                        _mm512_storeu_ps(to.add((2 * i + 1) * distance), _mm512_shuffle_f32x4::<0xdd>(left, right));
                    }
                } else {
                    for (i, &first) in panels.iter().enumerate() {
                        let [a, b, c, d] = terms.map(|term| term.wrapping_offset(first));
                        _mm512_storeu_ps(to.add(i * distance), halves(quarters(a, b), quarters(c, d)));
                    }
                }
            }
            to = to.wrapping_add(panels.len() * distance);
        }
        out = out.wrapping_add(16);
    }
}

/// Copies panels of eight rows, two terms at a time: they are a line.
///
/// # Safety
/// As for [`by_rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn by_eight<S: Source>(
    data: *const S,
    firsts: &[isize],
    pairs: &[[isize; 2]],
    distance: usize,
    mut out: *mut f32,
) {
    for pair in pairs {
        let [a, b] = pair.map(|term| data.wrapping_offset(term));
        let mut to = out;
        for &first in firsts {
            // SAFETY: elements of eight rows of two terms, and a line of a panel.
            unsafe {
                let [a, b] = [a, b].map(|term| term.wrapping_offset(first));
                _mm512_storeu_ps(to, halves(S::load8(a), S::load8(b)));
            }
            to = to.wrapping_add(distance);
        }
        out = out.wrapping_add(16);
    }
}

/// Copies panels of twelve rows, four terms at a time: they are three lines.
///
/// # Safety
/// As for [`by_rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn by_twelve<S: Source>(
    data: *const S,
    firsts: &[isize],
    fours: &[[isize; 4]],
    distance: usize,
    mut out: *mut f32,
) {
    for four in fours {
        let [a, b, c, d] = four.map(|term| data.wrapping_offset(term));
        let mut to = out;
        for &first in firsts {
            // SAFETY: elements of twelve rows of four terms, and 48 numbers of a panel.
            unsafe {
                let [a, b, c, d] = [a, b, c, d].map(|term| term.wrapping_offset(first));
                _mm512_storeu_ps(to, halves(S::load8(a), quarters(a.add(8), b)));
                _mm512_storeu_ps(to.add(16), halves(S::load8(b.add(4)), S::load8(c)));
                _mm512_storeu_ps(to.add(32), halves(quarters(c.add(8), d), S::load8(d.add(4))));
            }
            to = to.wrapping_add(distance);
        }
        out = out.wrapping_add(48);
    }
}

/// Copies panels term by term, `N` whole lines each.
///
/// # Safety
/// As for [`by_rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn by_lines<S: Source, const N: usize>(
    data: *const S,
    firsts: &[isize],
    terms: &[isize],
    distance: usize,
    mut out: *mut f32,
) {
    for &term in terms {
        let mut to = out;
        for &first in firsts {
            let from = data.wrapping_offset(term + first);
            for i in 0..N {
                // SAFETY: elements of a term, and as many numbers of a panel.
                unsafe {
                    let x = S::load(_mm512_setzero_ps(), 0xffff, from.wrapping_add(16 * i));
                    _mm512_storeu_ps(to.add(16 * i), x);
                }
            }
            to = to.wrapping_add(distance);
        }
        out = out.wrapping_add(16 * N);
    }
}

/// Copies panels of up to 16 rows term by term.
///
/// # Safety
/// As for [`by_rows`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn by_masks<S: Source>(
    data: *const S,
    firsts: &[isize],
    terms: &[isize],
    width: usize,
    distance: usize,
    mut out: *mut f32,
) {
    let mask = 0xffff >> (16 - width);
    for &term in terms {
        let mut to = out;
        for &first in firsts {
            // SAFETY: elements of a term, and as many numbers of a panel.
            unsafe {
                let x = S::load(_mm512_setzero_ps(), mask, data.wrapping_offset(term + first));
                _mm512_mask_storeu_ps(to, mask, x);
            }
            to = to.wrapping_add(distance);
        }
        out = out.wrapping_add(width);
    }
}

/// Packs a panel of up to 32 rows for `terms` terms that lie side by side from `data` on.
///
/// # Safety
/// As for [`super::pack::pack`]; the processor must have AVX-512.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn transpose<S: Source>(data: *const S, panel: &[isize], terms: usize, width: usize, out: *mut f32) {
    for start in (0..terms).step_by(16) {
        let columns = (terms - start).min(16);
        for row in (0..width).step_by(16) {
            let rows = &panel[row.min(panel.len())..(row + 16).min(panel.len())];
            for row in rows {
                prefetch(data.wrapping_offset(*row).wrapping_add(start).cast::<u8>().wrapping_add(LINES_AHEAD * LINE));
            }
            // SAFETY: elements of the rows, and as many numbers of each term of the panel.
            unsafe {
                let to = out.add(start * width + row);
                square(data.add(start), rows, columns, width, (width - row).min(16), to);
            }
        }
    }
}

/// Transposes up to 16 rows of up to 16 neighbouring elements; element `k` of all goes to `out + k · step`, `wide` numbers,
/// which are zeros where there is no row.
///
/// # Safety
/// As for [`transpose`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
pub unsafe fn square<S: Source>(
    data: *const S,
    rows: &[isize],
    columns: usize,
    step: usize,
    wide: usize,
    out: *mut f32,
) {
    let zero = _mm512_setzero_ps();
    let (read, written): (__mmask16, __mmask16) = (0xffff >> (16 - columns), 0xffff >> (16 - wide));
    let load = |row: isize| {
        // SAFETY: the caller's promise.
        unsafe { S::load(zero, read, data.wrapping_offset(row)) }
    };
    // A loop over fewer would keep all of them in memory.
    let mut x: [__m512; 16] = match rows.first_chunk::<16>() {
        Some(rows) => std::array::from_fn(|i| load(rows[i])),
        None => std::array::from_fn(|i| rows.get(i).map_or(zero, |&row| load(row))),
    };
    // Squares of two by two numbers, of four by four, and of eight by eight are transposed within those twice as large.
    let mut y = [zero; 16];
    for i in 0..8 {
        y[2 * i] = _mm512_unpacklo_ps(x[2 * i], x[2 * i + 1]);
        y[2 * i + 1] = _mm512_unpackhi_ps(x[2 * i], x[2 * i + 1]);
    }
    for i in 0..4 {
        let [a, b, c, d] = [y[4 * i], y[4 * i + 1], y[4 * i + 2], y[4 * i + 3]];
        x[4 * i] = _mm512_shuffle_ps::<0x44>(a, c);
        x[4 * i + 1] = _mm512_shuffle_ps::<0xee>(a, c);
        x[4 * i + 2] = _mm512_shuffle_ps::<0x44>(b, d);
        x[4 * i + 3] = _mm512_shuffle_ps::<0xee>(b, d);
    }
    // Now quarter q of x[4i + j] is column 4q + j of rows 4i to 4i + 3.
    for j in 0..4 {
        let (low, low_too) =
            (_mm512_shuffle_f32x4::<0x88>(x[j], x[4 + j]), _mm512_shuffle_f32x4::<0x88>(x[8 + j], x[12 + j]));
        let (high, high_too) =
            (_mm512_shuffle_f32x4::<0xdd>(x[j], x[4 + j]), _mm512_shuffle_f32x4::<0xdd>(x[8 + j], x[12 + j]));
        y[j] = _mm512_shuffle_f32x4::<0x88>(low, low_too);
        y[8 + j] = _mm512_shuffle_f32x4::<0xdd>(low, low_too);
        y[4 + j] = _mm512_shuffle_f32x4::<0x88>(high, high_too);
        y[12 + j] = _mm512_shuffle_f32x4::<0xdd>(high, high_too);
    }
    // As above.
    if columns == 16 && wide == 16 {
        for (k, &y) in y.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { _mm512_storeu_ps(out.add(k * step), y) };
        }
        return;
    }
    for (k, &y) in y[..columns].iter().enumerate() {
        // SAFETY: the caller's promise.
        unsafe { _mm512_mask_storeu_ps(out.add(k * step), written, y) };
    }
}
