//! Packing with AVX2 of f32, and of bf16 and f16 that become f32 on the way: by pieces of rows that lie side by side (two of which fill a vector where they are long),
//! or by transposing runs of terms.

use super::pack::{WIDEST, scalar};
use super::pack_avx512;
use super::real::Element;
use half::{bf16, f16};
use std::arch::x86_64::*;

/// Elements that vectors of f32 are loaded from.
pub trait Source: Element<Real = f32> {
    /// Eight elements.
    ///
    /// # Safety
    /// They must be readable, and the processor must have AVX2 and F16C.
    unsafe fn load8(from: *const Self) -> __m256;

    /// Four elements.
    ///
    /// # Safety
    /// As for [`Source::load8`].
    unsafe fn load4(from: *const Self) -> __m128;
}

impl Source for f32 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load8(from: *const f32) -> __m256 {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load4(from: *const f32) -> __m128 {
        // SAFETY: the caller's promise.
        unsafe { _mm_loadu_ps(from) }
    }
}

impl Source for bf16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load8(from: *const bf16) -> __m256 {
        // SAFETY: the caller's promise.
        let bits = unsafe { _mm_loadu_si128(from.cast()) };
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(bits)))
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load4(from: *const bf16) -> __m128 {
        // SAFETY: the caller's promise.
        let bits = unsafe { _mm_loadl_epi64(from.cast()) };
        _mm_castsi128_ps(_mm_slli_epi32::<16>(_mm_cvtepu16_epi32(bits)))
    }
}

impl Source for f16 {
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load8(from: *const f16) -> __m256 {
        // SAFETY: the caller's promise.
        _mm256_cvtph_ps(unsafe { _mm_loadu_si128(from.cast()) })
    }

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn load4(from: *const f16) -> __m128 {
        // SAFETY: the caller's promise.
        _mm_cvtph_ps(unsafe { _mm_loadl_epi64(from.cast()) })
    }
}

/// A vector of eight that a panel is copied with: from `source`, to `target` within the panel.
#[derive(Clone, Copy)]
struct Piece {
    target: usize,
    source: isize,
}

/// Cuts a panel's rows into pieces of at most eight neighbours.
fn pieces(panel: &[isize], out: &mut [Piece; WIDEST]) -> usize {
    let (mut count, mut i) = (0, 0);
    while i < panel.len() {
        let mut length = 1;
        while length < 8 && i + length < panel.len() && panel[i + length] == panel[i] + length as isize {
            length += 1;
        }
        out[count] = Piece { target: i, source: panel[i] };
        (count, i) = (count + 1, i + length);
    }
    count
}

/// Eight rows in at most two pieces: where vectors begin whose first and last elements they are.
#[derive(Clone, Copy)]
struct Splice {
    sources: [isize; 2],
    /// Rows of the first piece.
    split: usize,
}

impl Splice {
    fn new(rows: &[isize]) -> Option<Self> {
        let end = |start: usize| start + 1 + rows[start..].windows(2).take_while(|w| w[1] == w[0] + 1).count();
        let split = end(0);
        if split == rows.len() {
            return Some(Splice { sources: [rows[0]; 2], split });
        }
        (end(split) == rows.len()).then(|| Splice { sources: [rows[0], rows[split] - split as isize], split })
    }
}

/// The splices of a full panel of `N` vectors, if these read only what lies between the rows `bounds`.
fn splices<const N: usize>(panel: &[isize], bounds: [isize; 2]) -> Option<[Splice; N]> {
    if panel.len() != 8 * N {
        return None;
    }
    let mut out = [Splice { sources: [0; 2], split: 0 }; N];
    for (to, rows) in out.iter_mut().zip(panel.chunks_exact(8)) {
        *to = Splice::new(rows).filter(|s| s.sources.iter().all(|&s| s >= bounds[0] && s + 7 <= bounds[1]))?;
    }
    Some(out)
}

/// Terms from `start` on that lie side by side.
fn run(terms: &[isize], start: usize) -> usize {
    let mut end = start + 1;
    while end < terms.len() && terms[end] == terms[end - 1] + 1 {
        end += 1;
    }
    end - start
}

/// See [`super::pack::pack`].
///
/// # Safety
/// As there; the processor must have AVX2, and AVX-512 if `wide`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn pack<S: pack_avx512::Source>(
    data: *const S,
    rows: &[isize],
    terms: &[isize],
    [width, distance]: [usize; 2],
    out: *mut f32,
    wide: bool,
) {
    let (Some(&last_row), Some(&last_term)) = (rows.iter().max(), terms.iter().max()) else { return };
    // A vector may be read up to here.
    let limit = last_row + last_term + 1;
    let bounds = [rows.iter().copied().min().unwrap_or(last_row), last_row];
    let runs = 1 + terms.windows(2).filter(|w| w[1] != w[0] + 1).count();
    let panels = rows.len().div_ceil(width);
    let (transposes, wide) = (wide, wide && pack_avx512::packs(width));
    let few = !wide && (terms.len() < TOGETHER || distance.is_multiple_of(CONFLICT));
    let most = if few { FEW } else { GROUP };
    let together = (if wide { AT_ONCE } else { TOGETHER } / width).clamp(1, most);
    let panel = |p: usize| &rows[p * width..rows.len().min((p + 1) * width)];
    let mut found = [Piece { target: 0, source: 0 }; WIDEST];
    let mut p = 0;
    while p < panels {
        // SAFETY: panel `p` of the caller's room.
        let out = unsafe { out.add(p * distance) };
        let mut dense = (p..panels.min(p + together)).take_while(|&p| is_dense(panel(p), width)).count();
        if dense > 0 && wide {
            let firsts: [isize; GROUP] = std::array::from_fn(|i| if i < dense { rows[(p + i) * width] } else { 0 });
            // SAFETY: the caller's promise.
            unsafe { pack_avx512::by_rows(data, &firsts[..dense], terms, [width, distance], out) };
            p += dense;
            continue;
        }
        if dense > 0 && width >= 4 {
            let mut firsts = [0; GROUP];
            (0..dense).for_each(|i| firsts[i] = rows[(p + i) * width]);
            // SAFETY: the caller's promise.
            unsafe {
                if width == 4 && dense > 1 && firsts[..dense].windows(2).all(|w| w[1] == w[0] + 4) {
                    dense -= dense % 2;
                    by_pairs(data.offset(firsts[0]), dense / 2, terms, distance, out);
                } else {
                    by_rows(data, &firsts[..dense], terms, [width, distance], limit, out);
                }
            }
            p += dense;
            continue;
        }
        // SAFETY: the caller's promise.
        let spliced = unsafe {
            match width {
                16 => by_splices::<S, 2>(data, panel(p), bounds, terms, out),
                32 => by_splices::<S, 4>(data, panel(p), bounds, terms, out),
                _ => false,
            }
        };
        if spliced {
            p += 1;
            continue;
        }
        let count = pieces(panel(p), &mut found);
        // SAFETY: the caller's promise.
        unsafe {
            if count > 2 * width.div_ceil(8) + 1 && runs * 8 <= terms.len() {
                if transposes {
                    let mut k = 0;
                    while k < terms.len() {
                        let length = run(terms, k);
                        pack_avx512::transpose(data.offset(terms[k]), panel(p), length, width, out.add(k * width));
                        k += length;
                    }
                    p += 1;
                    continue;
                }
                by_runs(data, panel(p), terms, width, out);
            } else {
                by_pieces(data, panel(p), &found[..count], terms, width, limit, out);
            }
        }
        p += 1;
    }
}

/// Elements of a term that are copied together, where there are so many terms: terms may be pages apart.
const TOGETHER: usize = 64;
/// As [`TOGETHER`], where panels are written in whole lines.
const AT_ONCE: usize = 256;
/// Panels that are copied together, at most.
const GROUP: usize = 16;

/// Panels so many numbers apart begin in the same set of the first-level cache, or in one of two.
const CONFLICT: usize = 512;
/// Panels that are copied together where they do, at most (a set holds twice as many lines), or where terms are few.
const FEW: usize = 4;

/// Whether a panel is full and its rows lie side by side.
fn is_dense(panel: &[isize], width: usize) -> bool {
    panel.len() == width && panel.windows(2).all(|w| w[1] == w[0] + 1)
}

/// Copies panels of rows that lie side by side, which begin at `firsts`; `width` is at least 4.
///
/// # Safety
/// As for [`pack`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn by_rows<S: Source>(
    data: *const S,
    firsts: &[isize],
    terms: &[isize],
    [width, distance]: [usize; 2],
    limit: isize,
    out: *mut f32,
) {
    let reach = firsts.iter().max().map_or(0, |first| first + 8);
    let narrow = width < 8;
    // SAFETY: the caller's promise; vectors overlap so that they end with the row, or end before `limit` and are
    // overwritten by the next term, which is not another panel's.
    unsafe {
        let (last, terms) = match terms.split_last() {
            Some((last, others)) if narrow => {
                for (k, &term) in others.iter().enumerate() {
                    let mut to = out.add(k * width);
                    let whole = term + reach <= limit;
                    for &first in firsts {
                        let from = data.offset(first + term);
                        if whole {
                            _mm256_storeu_ps(to, S::load8(from));
                        } else {
                            _mm_storeu_ps(to, S::load4(from));
                            _mm_storeu_ps(to.add(width - 4), S::load4(from.add(width - 4)));
                        }
                        to = to.add(distance);
                    }
                }
                (others.len(), std::slice::from_ref(last))
            }
            _ => (0, terms),
        };
        let out = out.add(last * width);
        for (k, &term) in terms.iter().enumerate() {
            let mut to = out.add(k * width);
            for &first in firsts {
                let from = data.offset(first + term);
                if width == 16 {
                    _mm256_storeu_ps(to, S::load8(from));
                    _mm256_storeu_ps(to.add(8), S::load8(from.add(8)));
                } else if width < 8 {
                    _mm_storeu_ps(to, S::load4(from));
                    _mm_storeu_ps(to.add(width - 4), S::load4(from.add(width - 4)));
                } else {
                    for i in (0..width - 8).step_by(8) {
                        _mm256_storeu_ps(to.add(i), S::load8(from.add(i)));
                    }
                    _mm256_storeu_ps(to.add(width - 8), S::load8(from.add(width - 8)));
                }
                to = to.add(distance);
            }
        }
    }
}

/// Copies a panel of rows that lie side by side; `width` is a multiple of eight.
///
/// # Safety
/// As for [`super::pack::pack_columns`].
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn copy(data: *const f32, terms: &[isize], width: usize, mut out: *mut f32) {
    for &term in terms {
        // SAFETY: the caller's promise.
        unsafe {
            let from = data.offset(term);
            for i in (0..width).step_by(8) {
                _mm256_storeu_ps(out.add(i), _mm256_loadu_ps(from.add(i)));
            }
            out = out.add(width);
        }
    }
}

/// Copies pairs of neighbouring panels of four rows, two terms at a time; their rows lie side by side.
///
/// # Safety
/// As for [`pack`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn by_pairs<S: Source>(data: *const S, pairs: usize, terms: &[isize], distance: usize, out: *mut f32) {
    let (twos, rest) = terms.as_chunks::<2>();
    // SAFETY: a vector has the rows of one pair; the panels are the caller's.
    unsafe {
        for (k, two) in twos.iter().enumerate() {
            let [first, second] = two.map(|term| data.offset(term));
            for pair in 0..pairs {
                let (a, b) = (S::load8(first.add(8 * pair)), S::load8(second.add(8 * pair)));
                let to = out.add(2 * pair * distance + 8 * k);
                _mm256_storeu_ps(to, _mm256_permute2f128_ps::<0x20>(a, b));
                _mm256_storeu_ps(to.add(distance), _mm256_permute2f128_ps::<0x31>(a, b));
            }
        }
        for &term in rest {
            for panel in 0..2 * pairs {
                let x = S::load4(data.offset(term).add(4 * panel));
                _mm_storeu_ps(out.add(panel * distance + 4 * (terms.len() - 1)), x);
            }
        }
    }
}

/// Copies a panel of `N` vectors, if each of them has at most two pieces; says whether it did.
///
/// # Safety
/// As for [`pack`]; `bounds` are the least and the greatest row of the operand.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn by_splices<S: Source, const N: usize>(
    data: *const S,
    panel: &[isize],
    bounds: [isize; 2],
    terms: &[isize],
    mut out: *mut f32,
) -> bool {
    let Some(splices) = splices::<N>(panel, bounds) else { return false };
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let second = splices.map(|s| _mm256_castsi256_ps(_mm256_cmpgt_epi32(lanes, _mm256_set1_epi32(s.split as i32 - 1))));
    let sources = splices.map(|s| s.sources.map(|source| data.wrapping_offset(source)));
    for &term in terms {
        // SAFETY: the vectors lie between the operand's rows, the panel is the caller's.
        unsafe {
            for i in 0..N {
                let [a, b] = sources[i].map(|source| S::load8(source.wrapping_offset(term)));
                _mm256_storeu_ps(out.add(8 * i), _mm256_blendv_ps(a, b, second[i]));
            }
            out = out.add(8 * N);
        }
    }
    true
}

/// Copies vectors of eight in ascending order; what one writes too much, the next or the zeros overwrite.
///
/// # Safety
/// As for [`pack`]; what lies before `limit` may be read.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn by_pieces<S: Source>(
    data: *const S,
    panel: &[isize],
    pieces: &[Piece],
    terms: &[isize],
    width: usize,
    limit: isize,
    out: *mut f32,
) {
    if panel.len() < width {
        // SAFETY: the panel.
        unsafe { out.write_bytes(0, width * terms.len()) };
    }
    let reach = pieces.iter().map(|p| p.source + 8).max().unwrap_or(0);
    // SAFETY: the caller's promise; vectors end before `limit`, and stores at most seven elements after the panel.
    unsafe {
        for (k, &term) in terms.iter().enumerate() {
            let to = out.add(k * width);
            if term + reach > limit {
                scalar(data, panel, term, width, to);
                continue;
            }
            for piece in pieces {
                let x = S::load8(data.offset(term + piece.source));
                _mm256_storeu_ps(to.add(piece.target), x);
            }
        }
    }
}

/// Transposes squares of eight rows and eight neighbouring terms; the rest goes element by element.
///
/// # Safety
/// As for [`pack`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn by_runs<S: Source>(data: *const S, panel: &[isize], terms: &[isize], width: usize, out: *mut f32) {
    // The rows of the squares; where rows are missing, the last one again.
    let mut lines = [panel[panel.len() - 1]; WIDEST];
    lines[..panel.len()].copy_from_slice(panel);
    let squares = &lines.as_chunks::<8>().0[..width.div_ceil(8)];
    let mut k = 0;
    while k < terms.len() {
        let end = k + run(terms, k);
        // SAFETY: the caller's promise. What a store writes beyond its rows belongs to terms that are stored later:
        // the terms of a square ascend, and its right half is stored before its left half.
        unsafe {
            while k + 8 <= end {
                let (from, to) = (data.offset(terms[k]), out.add(k * width));
                for (i, rows) in squares.iter().enumerate().rev() {
                    square(from, rows, width, to.add(8 * i));
                }
                k += 8;
            }
            for (i, &term) in terms[k..end].iter().enumerate() {
                scalar(data, panel, term, width, out.add((k + i) * width));
            }
        }
        k = end;
    }
}

/// See [`super::pack::transpose`].
///
/// # Safety
/// As there; the processor must have AVX2, and AVX-512 if `wide`.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn transpose<S: pack_avx512::Source>(
    data: *const S,
    rows: &[isize],
    terms: usize,
    step: usize,
    out: *mut f32,
    wide: bool,
) {
    let edge = if wide { 16 } else { 8 };
    for first in (0..rows.len()).step_by(edge) {
        for term in (0..terms).step_by(edge) {
            // SAFETY: the caller's promise. The last eight of more overlap those before.
            unsafe {
                if wide {
                    let rows = &rows[first..rows.len().min(first + edge)];
                    let to = out.add(term * step + first);
                    pack_avx512::square(data.add(term), rows, (terms - term).min(edge), step, rows.len(), to);
                } else if let (Some(last), Some(end)) = (rows.len().checked_sub(edge), terms.checked_sub(edge)) {
                    let (first, term) = (first.min(last), term.min(end));
                    let rows = rows[first..].first_chunk().expect("eight rows");
                    square(data.add(term), rows, step, out.add(term * step + first));
                } else {
                    for (i, row) in rows.iter().enumerate().skip(first).take(edge) {
                        for k in term..terms.min(term + edge) {
                            *out.add(k * step + i) = (*data.offset(*row).add(k)).widen();
                        }
                    }
                }
            }
        }
    }
}

/// Transposes eight rows of eight neighbouring elements; term `k` goes to `out + k · width`, eight wide, in ascending
/// order.
///
/// # Safety
/// As for `by_pieces`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn square<S: Source>(data: *const S, rows: &[isize; 8], width: usize, out: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe {
        let r: [__m256; 8] = std::array::from_fn(|i| S::load8(data.offset(rows[i])));
        let low: [__m256; 4] = std::array::from_fn(|i| _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]));
        let high: [__m256; 4] = std::array::from_fn(|i| _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]));
        let quad = |a, b| (_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b));
        let (q0, q1) = quad(low[0], low[1]);
        let (q2, q3) = quad(high[0], high[1]);
        let (q4, q5) = quad(low[2], low[3]);
        let (q6, q7) = quad(high[2], high[3]);
        let pairs = [(q0, q4), (q1, q5), (q2, q6), (q3, q7)];
        for (k, &(a, b)) in pairs.iter().enumerate() {
            _mm256_storeu_ps(out.add(k * width), _mm256_permute2f128_ps::<0x20>(a, b));
        }
        for (k, &(a, b)) in pairs.iter().enumerate() {
            _mm256_storeu_ps(out.add((k + 4) * width), _mm256_permute2f128_ps::<0x31>(a, b));
        }
    }
}
