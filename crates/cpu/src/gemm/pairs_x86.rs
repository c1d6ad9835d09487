//! Pairs of bf16 with AVX-512: lines that lie side by side are interleaved two terms at a time, terms that do are transposed in
//! squares of sixteen lines by sixteen pairs.

use super::pairs::{MAGNITUDE, Operand, Span};
use half::bf16;
use std::arch::x86_64::*;

/// Pairs in a vector.
const LANES: usize = 16;
/// Panels that are packed together, so that what is read lies less apart.
const GROUP: usize = 4;

/// Magnitudes that were met, in lanes.
struct Seen {
    least: __m512i,
    most: __m512i,
}

impl Seen {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn new() -> Self {
        Seen { least: _mm512_set1_epi16(-1), most: _mm512_setzero_si512() }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn add(&mut self, pairs: __m512i) {
        let bits = _mm512_and_si512(pairs, _mm512_set1_epi16(MAGNITUDE as i16));
        self.most = _mm512_max_epu16(self.most, bits);
        self.least = _mm512_min_epu16(self.least, _mm512_sub_epi16(bits, _mm512_set1_epi16(1)));
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn span(&self) -> Span {
        let [mut least, mut most] = [[0u16; 2 * LANES]; 2];
        // SAFETY: room for the lanes.
        unsafe {
            _mm512_storeu_si512(least.as_mut_ptr().cast(), self.least);
            _mm512_storeu_si512(most.as_mut_ptr().cast(), self.most);
        }
        least.into_iter().zip(most).fold(Span::NONE, |span, (least, most)| span.with(Span { least, most }))
    }
}

/// A mask of the first lanes.
fn first(lanes: usize) -> u32 {
    if lanes >= 32 { u32::MAX } else { (1 << lanes) - 1 }
}

fn side_by_side(offsets: &[isize]) -> bool {
    offsets.windows(2).all(|w| w[1] == w[0] + 1)
}

/// See [`Operand::pack`].
///
/// # Safety
/// As there; the processor must have AVX-512 F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn pack(operand: Operand, width: usize, out: *mut u32) -> Span {
    let distance = width * operand.terms.len().div_ceil(2);
    let mut seen = Seen::new();
    let mut span = Span::NONE;
    let across = width <= 2 * LANES && side_by_side(operand.terms);
    let (mut panel, mut line) = (out, 0);
    while line < operand.lines.len() {
        let rest = &operand.lines[line..];
        let dense = rest.chunks(width).take(GROUP).take_while(|lines| side_by_side(lines)).count();
        let lines = &rest[..rest.len().min(dense.max(1) * width)];
        let part = Operand { lines, ..operand };
        // SAFETY: the caller's promise.
        unsafe {
            match width {
                ..=LANES if dense > 0 => interleave::<1>(part, width, distance, panel, &mut seen),
                17..=32 if dense > 0 => interleave::<2>(part, width, distance, panel, &mut seen),
                _ if across => transpose(part, width, panel, &mut seen),
                _ => span = span.with(part.scalar(width, panel)),
            }
        }
        panel = panel.wrapping_add(distance * dense.max(1));
        line += lines.len();
    }
    span.with(seen.span())
}

/// Packs panels whose lines lie side by side, of `N` vectors.
///
/// # Safety
/// As for [`pack`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn interleave<const N: usize>(
    operand: Operand,
    width: usize,
    distance: usize,
    mut out: *mut u32,
    seen: &mut Seen,
) {
    let load = |line: isize, term: isize, i: usize, mask: u32| {
        let from = operand.data.wrapping_offset(line + term).wrapping_add(i * LANES);
        // SAFETY: the elements of the mask are there.
        unsafe { _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask as __mmask16, from.cast())) }
    };
    for pair in operand.terms.chunks(2) {
        let mut to = out;
        for lines in operand.lines.chunks(width) {
            for i in 0..N {
                let mask = first(lines.len().saturating_sub(i * LANES)) & 0xffff;
                let upper = _mm512_slli_epi32::<16>(load(lines[0], pair[0], i, mask));
                let lower = match pair.get(1) {
                    Some(&term) => load(lines[0], term, i, mask),
                    None => _mm512_set1_epi32(i32::from(operand.factor.pad())),
                };
                let pairs = _mm512_or_si512(upper, lower);
                seen.add(pairs);
                let within = first((width - i * LANES).min(LANES)) as __mmask16;
                // SAFETY: lanes of the panel.
                unsafe { _mm512_mask_storeu_epi32(to.add(i * LANES).cast(), within, pairs) };
            }
            to = to.wrapping_add(distance);
        }
        out = out.wrapping_add(width);
    }
}

/// Up to sixteen pairs of a line, from 32 terms on that lie side by side; zeros behind the last one.
///
/// # Safety
/// There must be `count` terms at `from`, at least one.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pairs_at(from: *const bf16, count: usize, pad: u16) -> __m512i {
    // SAFETY: the caller's promise.
    let pairs = unsafe { _mm512_maskz_loadu_epi16(first(count), from.cast()) };
    let pairs = _mm512_rol_epi32::<16>(pairs);
    if count >= 2 * LANES || count.is_multiple_of(2) {
        return pairs;
    }
    _mm512_mask_or_epi32(pairs, 1 << (count / 2), pairs, _mm512_set1_epi32(i32::from(pad)))
}

/// Packs one panel of lines whose terms lie side by side.
///
/// # Safety
/// As for [`pack`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn transpose(operand: Operand, width: usize, out: *mut u32, seen: &mut Seen) {
    let count = operand.terms.len();
    for i in (0..width).step_by(LANES) {
        let lines = operand.lines.get(i..).unwrap_or(&[]);
        let lines = &lines[..lines.len().min(LANES)];
        let within = first((width - i).min(LANES)) as __mmask16;
        for term in (0..count).step_by(2 * LANES) {
            let mut square = [_mm512_setzero_si512(); LANES];
            for (line, row) in lines.iter().zip(&mut square) {
                let from = operand.data.wrapping_offset(line + operand.terms[term]);
                // SAFETY: terms of a line.
                *row = unsafe { pairs_at(from, count - term, operand.factor.pad()) };
                seen.add(*row);
            }
            for (k, pairs) in transposed(square).into_iter().take((count - term).div_ceil(2)).enumerate() {
                // SAFETY: lanes of the panel.
                unsafe {
                    let to = out.add((term / 2 + k) * width + i);
                    _mm512_mask_storeu_epi32(to.cast(), within, pairs);
                }
            }
        }
    }
}

/// The transpose of sixteen vectors.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    // Of four rows, columns 4 l + c in quarter l of vector c.
    let fours: [[__m512i; 4]; 4] = std::array::from_fn(|g| {
        let [a, b, c, d] = [rows[4 * g], rows[4 * g + 1], rows[4 * g + 2], rows[4 * g + 3]];
        let (x, y) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
        let (z, w) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(x, y),
            _mm512_unpackhi_epi64(x, y),
            _mm512_unpacklo_epi64(z, w),
            _mm512_unpackhi_epi64(z, w),
        ]
    });
    let mut out = rows;
    for c in 0..4 {
        let [a, b, x, y] = [fours[0][c], fours[1][c], fours[2][c], fours[3][c]];
        let (even, even_too) = (_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0x88>(x, y));
        let (odd, odd_too) = (_mm512_shuffle_i32x4::<0xdd>(a, b), _mm512_shuffle_i32x4::<0xdd>(x, y));
        out[c] = _mm512_shuffle_i32x4::<0x88>(even, even_too);
        out[4 + c] = _mm512_shuffle_i32x4::<0x88>(odd, odd_too);
        out[8 + c] = _mm512_shuffle_i32x4::<0xdd>(even, even_too);
        out[12 + c] = _mm512_shuffle_i32x4::<0xdd>(odd, odd_too);
    }
    out
}

/// See [`Operand::copy`].
///
/// # Safety
/// As there; the processor must have AVX-512 F, BW and VL.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn copy(operand: Operand, mut out: *mut u32) -> Span {
    let count = operand.terms.len();
    let mut seen = Seen::new();
    for &line in operand.lines {
        for term in (0..count).step_by(2 * LANES) {
            let pairs = (count - term).div_ceil(2);
            // SAFETY: the caller's promise.
            unsafe {
                let from = operand.data.offset(line + operand.terms[term]);
                let vector = pairs_at(from, count - term, operand.factor.pad());
                seen.add(vector);
                _mm512_mask_storeu_epi32(out.add(term / 2).cast(), first(pairs.min(LANES)) as __mmask16, vector);
            }
        }
        out = out.wrapping_add(count.div_ceil(2));
    }
    seen.span()
}
