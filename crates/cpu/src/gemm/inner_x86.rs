//! Microkernels of [`super::inner`] for AVX2 and AVX-512.
//!
//! Vectors have eight numbers at both levels: Zen 4 permutes, multiplies and adds two such vectors a cycle or one of sixteen, and
//! of eight columns fewer are missing. Eight terms of eight columns take eight loads and 24 permutations, twelve cycles, and
//! for eight rows 64 multiply-adds, 32 cycles. Eight columns at a time come through the caches whatever the distance between
//! them is: a multiple of 4 KB puts them on one set of the first-level cache, which has room for eight lines.

use super::inner::{LANES, Tile};
use super::pack_x86::Source;
use crate::Level;
use meshwork_simd::microkernel::x86::anchor_ps;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Roots of blocks that wait for their neighbours, at most: there are fewer terms than 2^48.
const COUNTER: usize = 48;

/// The sums of eight columns, a vector for each row.
type Sums<const ROWS: usize> = [__m256; ROWS];

/// First half of two lines' terms, and the other one.
///
/// # Safety
/// As for [`turn`].
#[inline(always)]
unsafe fn halves<S: Source>(a: *const S, b: *const S) -> [__m256; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        let (a, b) = (S::load8(a), S::load8(b));
        let mut halves = [_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b)];
        // Compilers make one permutation by index of two of these, which takes longer.
        anchor_ps(&mut halves[0]);
        anchor_ps(&mut halves[1]);
        halves
    }
}

/// Transposes four by four numbers in each half.
///
/// # Safety
/// As for [`turn`].
#[inline(always)]
unsafe fn four([a, b, c, d]: [__m256; 4]) -> [__m256; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let (low, others) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let (high, more) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        [
            _mm256_shuffle_ps::<0x44>(low, others),
            _mm256_shuffle_ps::<0xee>(low, others),
            _mm256_shuffle_ps::<0x44>(high, more),
            _mm256_shuffle_ps::<0xee>(high, more),
        ]
    }
}

/// Eight terms of eight lines, each of which lies side by side: vector `k` has term `k` of all lines.
///
/// # Safety
/// Elements must be readable, and the processor have AVX2 and F16C.
#[inline(always)]
unsafe fn turn<S: Source>(line: impl Fn(usize) -> *const S) -> [__m256; LANES] {
    // SAFETY: the caller's promise.
    unsafe {
        let ([a, e], [b, f]) = (halves(line(0), line(4)), halves(line(1), line(5)));
        let ([c, g], [d, h]) = (halves(line(2), line(6)), halves(line(3), line(7)));
        let ([a, b, c, d], [e, f, g, h]) = (four([a, b, c, d]), four([e, f, g, h]));
        [a, b, c, d, e, f, g, h]
    }
}

/// Continues the chains of eight columns by one term, of which `x` has the elements.
///
/// # Safety
/// The term must be one of the left operand, and the processor have FMA.
#[inline(always)]
unsafe fn one<S, const ROWS: usize>(tile: &Tile<S>, term: usize, x: __m256, sums: &mut Sums<ROWS>) {
    // SAFETY: the caller's promise.
    unsafe {
        let factors = tile.left.add(term * ROWS);
        for (row, sum) in sums.iter_mut().enumerate() {
            *sum = _mm256_fmadd_ps(_mm256_set1_ps(*factors.add(row)), x, *sum);
        }
    }
}

/// Continues the chains of eight columns by eight terms; the columns begin at `right`.
///
/// # Safety
/// As for [`turn`] and [`one`].
#[inline(always)]
unsafe fn eight<S: Source, const ROWS: usize>(tile: &Tile<S>, right: *const S, term: usize, sums: &mut Sums<ROWS>) {
    // SAFETY: the caller's promise. No loop, which compilers may leave one.
    unsafe {
        let [a, b, c, d, e, f, g, h] = turn(|i| right.offset(i as isize * tile.step).add(term));
        one(tile, term, a, sums);
        one(tile, term + 1, b, sums);
        one(tile, term + 2, c, sums);
        one(tile, term + 3, d, sums);
        one(tile, term + 4, e, sums);
        one(tile, term + 5, f, sums);
        one(tile, term + 6, g, sums);
        one(tile, term + 7, h, sums);
    }
}

/// As [`eight`] for two blocks: chains of a few rows wait for each other, and two take little longer than one.
///
/// # Safety
/// As for [`eight`].
#[inline(always)]
unsafe fn twice_eight<S: Source, const ROWS: usize>(
    tile: &Tile<S>,
    right: *const S,
    [term, other]: [usize; 2],
    [sums, others]: [&mut Sums<ROWS>; 2],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, d, e, f, g, h] = turn(|i| right.offset(i as isize * tile.step).add(term));
        let [i, j, k, l, m, n, o, p] = turn(|i| right.offset(i as isize * tile.step).add(other));
        one(tile, term, a, sums);
        one(tile, other, i, others);
        one(tile, term + 1, b, sums);
        one(tile, other + 1, j, others);
        one(tile, term + 2, c, sums);
        one(tile, other + 2, k, others);
        one(tile, term + 3, d, sums);
        one(tile, other + 3, l, others);
        one(tile, term + 4, e, sums);
        one(tile, other + 4, m, others);
        one(tile, term + 5, f, sums);
        one(tile, other + 5, n, others);
        one(tile, term + 6, g, sums);
        one(tile, other + 6, o, others);
        one(tile, term + 7, h, sums);
        one(tile, other + 7, p, others);
    }
}

/// Continues the chains of eight columns by fewer terms than eight, which end at `terms.end`.
///
/// # Safety
/// As for [`eight`].
#[inline(always)]
unsafe fn rest<S: Source, const ROWS: usize>(
    tile: &Tile<S>,
    right: *const S,
    terms: Range<usize>,
    sums: &mut Sums<ROWS>,
) {
    let line = |i: usize| right.wrapping_offset(i as isize * tile.step);
    // SAFETY: the caller's promise; where a line has eight terms before the end, these are read.
    unsafe {
        if terms.end >= LANES {
            let first = terms.end - LANES;
            let turned = turn(|i| line(i).add(first));
            for term in terms {
                one(tile, term, turned[term - first], sums);
            }
        } else {
            for term in terms {
                let x: [f32; LANES] = std::array::from_fn(|i| (*line(i).add(term)).widen());
                one(tile, term, _mm256_loadu_ps(x.as_ptr()), sums);
            }
        }
    }
}

/// Computes eight columns, the first of which is at `right`, two blocks at a time if `PAIRS`.
///
/// # Safety
/// As for [`compute`].
#[inline(always)]
unsafe fn columns<S: Source, const ROWS: usize, const PAIRS: bool>(tile: &Tile<S>, right: *const S, out: *mut f32) {
    let mut counter = [const { MaybeUninit::<Sums<ROWS>>::uninit() }; COUNTER];
    let (terms, block) = (tile.terms, tile.block);
    let blocks = terms.div_ceil(block);
    let mut next = 0;
    while next < blocks {
        let first = next;
        let (start, end) = (first * block, ((first + 1) * block).min(terms));
        // SAFETY: terms of the operands, slots of the counter that have been written to, room of the caller.
        unsafe {
            let mut sums = [_mm256_setzero_ps(); ROWS];
            if PAIRS && (first + 2) * block <= terms && block.is_multiple_of(LANES) {
                let mut others = sums;
                for term in (start..end).step_by(LANES) {
                    twice_eight(tile, right, [term, term + block], [&mut sums, &mut others]);
                }
                for (sum, other) in sums.iter_mut().zip(others) {
                    *sum = _mm256_add_ps(*sum, other);
                }
                next += 2;
            } else {
                let mut term = start;
                while term + LANES <= end {
                    eight(tile, right, term, &mut sums);
                    term += LANES;
                }
                if term < end {
                    rest(tile, right, term..end, &mut sums);
                }
                next += 1;
            }
            let is_last = next == blocks;
            // Trees that end where these blocks end, one for each level.
            let full = (next - 1).trailing_ones() as usize;
            let mut merged = if is_last { first } else { first & ((1 << full) - 1) };
            while merged != 0 {
                let left = counter[merged.trailing_zeros() as usize].assume_init_ref();
                for (sum, &left) in sums.iter_mut().zip(left) {
                    *sum = _mm256_add_ps(left, *sum);
                }
                merged &= merged - 1;
            }
            if !is_last {
                counter[full].write(sums);
                continue;
            }
            for (row, &sum) in sums.iter().enumerate() {
                _mm256_storeu_ps(out.add(row * tile.across), sum);
            }
        }
    }
}

/// Computes a tile of `ROWS` rows.
///
/// # Safety
/// As for [`compute`].
#[inline(always)]
unsafe fn rows<S: Source, const ROWS: usize, const PAIRS: bool>(tile: &Tile<S>) {
    for column in (0..tile.columns).step_by(LANES) {
        let right = tile.right.wrapping_offset(column as isize * tile.step);
        // SAFETY: the caller's promise.
        unsafe { columns::<S, ROWS, PAIRS>(tile, right, tile.sums.add(column)) };
    }
}

/// As [`rows`], with 16 registers.
///
/// # Safety
/// As for [`compute`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn narrow<S: Source, const ROWS: usize, const PAIRS: bool>(tile: &Tile<S>) {
    // SAFETY: the caller's promise.
    unsafe { rows::<S, ROWS, PAIRS>(tile) }
}

/// As [`rows`], with 32 registers.
///
/// # Safety
/// As for [`compute`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
unsafe fn wide<S: Source, const ROWS: usize, const PAIRS: bool>(tile: &Tile<S>) {
    // SAFETY: the caller's promise.
    unsafe { rows::<S, ROWS, PAIRS>(tile) }
}

/// Computes a tile.
///
/// # Safety
/// Operands must be readable, sums writable; the processor must be able to run the level, AVX2 at least.
pub unsafe fn compute<S: Source>(level: Level, tile: &Tile<S>) {
    let is_wide = level >= Level::Avx512;
    // SAFETY: the caller's promise.
    unsafe {
        match (tile.rows, is_wide) {
            (1, true) => wide::<S, 1, true>(tile),
            (2, true) => wide::<S, 2, true>(tile),
            (3, true) => wide::<S, 3, true>(tile),
            (4, true) => wide::<S, 4, true>(tile),
            (5, true) => wide::<S, 5, true>(tile),
            (6, true) => wide::<S, 6, false>(tile),
            (7, true) => wide::<S, 7, false>(tile),
            (8, true) => wide::<S, 8, false>(tile),
            (9, true) => wide::<S, 9, false>(tile),
            (10, true) => wide::<S, 10, false>(tile),
            (11, true) => wide::<S, 11, false>(tile),
            (12, true) => wide::<S, 12, false>(tile),
            (1, false) => narrow::<S, 1, true>(tile),
            (2, false) => narrow::<S, 2, true>(tile),
            (3, false) => narrow::<S, 3, true>(tile),
            (4, false) => narrow::<S, 4, false>(tile),
            (5, false) => narrow::<S, 5, false>(tile),
            (6, false) => narrow::<S, 6, false>(tile),
            (7, false) => narrow::<S, 7, false>(tile),
            (8, false) => narrow::<S, 8, false>(tile),
            (rows, _) => unreachable!("{rows} rows at {level:?}"),
        }
    }
}

/// Packs `rows` lines of `terms` elements that lie side by side: the numbers of a term lie side by side then.
///
/// # Safety
/// Elements must be readable, [`super::inner::SLACK`] more numbers writable than there are, and the processor have AVX2 and F16C.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn pack<S: Source>(from: *const S, rows: usize, step: isize, terms: usize, to: *mut f32) {
    // SAFETY: the caller's promise; what a vector has too much is overwritten by the next rows or the next term, or slack.
    unsafe {
        let line = |row: usize| from.offset(row.min(rows - 1) as isize * step);
        let whole = if rows == 1 { 0 } else { terms / LANES * LANES };
        for term in (0..whole).step_by(LANES) {
            let low = turn(|row| line(row).add(term));
            let high = if rows > LANES { turn(|row| line(row + LANES).add(term)) } else { low };
            for (k, (low, high)) in low.into_iter().zip(high).enumerate() {
                let to = to.add((term + k) * rows);
                _mm256_storeu_ps(to, low);
                if rows > LANES {
                    _mm256_storeu_ps(to.add(LANES), high);
                }
            }
        }
        for term in whole..terms {
            for row in 0..rows {
                *to.add(term * rows + row) = (*line(row).add(term)).widen();
            }
        }
    }
}
