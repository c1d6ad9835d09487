//! Every tile of every level against the canonical sum.

use meshwork_graph::canonical::TreeSum;
#[cfg(target_arch = "x86_64")]
use meshwork_simd::Level;
use meshwork_simd::line::Lines;
#[cfg(target_arch = "aarch64")]
use meshwork_simd::microkernel::neon;
use meshwork_simd::microkernel::{Access, COUNTER, Call, Table, portable};
#[cfg(target_arch = "x86_64")]
use meshwork_simd::microkernel::{avx2, avx512, zen4};
use std::fmt::Debug;
use std::ops::Add;

/// A number that products are summed in.
trait Real: Copy + PartialEq + Debug + Add<Output = Self> + 'static {
    const ZERO: Self;

    /// The nearest number to a quotient.
    fn quotient(a: u32, b: u32) -> Self;

    /// `self · b + c`, rounded once.
    fn fma(self, b: Self, c: Self) -> Self;
}

macro_rules! real {
    ($($number:ident)*) => {
        $(
            impl Real for $number {
                const ZERO: Self = 0.0;

                fn quotient(a: u32, b: u32) -> Self {
                    a as $number / b as $number
                }

                fn fma(self, b: Self, c: Self) -> Self {
                    self.mul_add(b, c)
                }
            }
        )*
    };
}

real!(f32 f64);

/// Numbers whose sums depend on every rounding and on the order.
struct Numbers(u32);

impl Numbers {
    fn next<T: Real>(&mut self) -> T {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        T::quotient((self.0 >> 8) % 2003, (self.0 >> 20) % 97 + 1)
    }

    fn some<T: Real>(&mut self, count: usize) -> Vec<T> {
        (0..count).map(|_| self.next()).collect()
    }
}

/// One tile size of a table, for some terms and blocks: every number is the canonical sum.
fn check<T: Real>(
    (table, copies): (Table<T>, bool),
    lanes: usize,
    [rows, vectors]: [usize; 2],
    access: Access,
    [terms, block]: [usize; 2],
) {
    const TILES: usize = 3;
    let (width, mut numbers) = (vectors * lanes, Numbers((rows * 31 + terms * 7 + block) as u32));
    // Terms and rows are farther apart than they need be; what kernels copy is dense.
    let b_term = if copies { width } else { width + 3 };
    let [start, first, second]: [Vec<T>; 3] = std::array::from_fn(|_| numbers.some(TILES * rows * width));
    let (a_step, row_step, term_step, a_tile) = match access {
        Access::Panel => (rows + 5, 1, rows + 5, (rows + 5) * terms),
        Access::Rows => (terms + 3, terms + 3, 1, rows * (terms + 3)),
    };
    let (a, b) = (numbers.some::<T>(TILES * a_tile), numbers.some::<T>(terms * b_term));
    for (continues, merges, way) in [(false, 0, 1), (true, 0, 1), (false, 2, 1), (true, 0, -1), (false, 2, -1)] {
        // The tile that is computed first.
        let top = if way == 1 { 0 } else { TILES - 1 };
        let merge = [first.as_ptr(), second.as_ptr()].map(|x| x.wrapping_add(top * rows * width));
        let mut counter = vec![T::ZERO; COUNTER * rows * width];
        let mut out = vec![T::ZERO; TILES * rows * width];
        let mut copy = vec![T::ZERO; if copies { terms * width } else { 0 }];
        let lines = |count: usize| Lines { first: a.as_ptr().cast(), step: 64, count };
        let ahead = [lines(3), lines(2), *Lines::NONE];
        let call = Call {
            way,
            tiles: TILES,
            terms,
            block,
            a: a.as_ptr().wrapping_add(top * a_tile),
            a_step: a_step as isize,
            a_tile: a_tile as isize,
            b: b.as_ptr(),
            b_term: b_term as isize,
            b_tile: 0,
            copy: copy.as_mut_ptr(),
            copy_tile: 0,
            counter: counter.as_mut_ptr(),
            start: if continues { start.as_ptr().wrapping_add(top * rows * width) } else { std::ptr::null() },
            merge: merge.as_ptr(),
            merges,
            out: out.as_mut_ptr().wrapping_add(top * rows * width),
            out_row: width as isize,
            out_tile: (rows * width) as isize,
            ahead: if continues { ahead.as_ptr() } else { Lines::NONE },
        };
        // SAFETY: only tables of this processor are checked; all operands are there.
        unsafe { table[rows - 1][vectors - 1][access as usize](&call) };
        assert!(!copies || copy == b, "{rows} × {vectors} of {terms} terms: a copy");
        for (at, &found) in out.iter().enumerate() {
            let (tile, row, column) = (at / (rows * width), at / width % rows, at % width);
            let mut sum = TreeSum::new();
            for begin in (0..terms).step_by(block) {
                let chain = (begin..terms.min(begin + block))
                    .fold(if continues && begin == 0 { start[at] } else { T::ZERO }, |sum, k| {
                        a[tile * a_tile + row * row_step + k * term_step].fma(b[k * b_term + column], sum)
                    });
                sum.push(chain, |x, y| x + y);
            }
            let mut expected = sum.finish(|x, y| x + y).expect("terms");
            for tiles in [&first, &second].into_iter().take(merges) {
                expected = tiles[at] + expected;
            }
            assert!(
                found == expected,
                "{rows} × {vectors} of {terms} terms in blocks of {block}, {access:?}, row {row}: {found:?}, not {expected:?}"
            );
        }
    }
}

/// All tiles of a table, of which those of two vectors have `most` rows at most; its kernels copy or do not. Tables without any of
/// two are of those that need the left side packed.
fn check_table<T: Real>(table: Table<T>, lanes: usize, most: usize, copies: bool) {
    let cuts = [[1, 1], [9, 64], [8, 1], [7, 2], [23, 4], [64, 8], [65, 8], [100, 12], [61, 13], [144, 16], [300, 32]];
    for rows in 1..=table.len() {
        for vectors in if rows <= most { 1..=2 } else { 1..=1 } {
            for access in [Access::Panel, Access::Rows].into_iter().take(if most == 0 { 1 } else { 2 }) {
                cuts.iter().for_each(|&cut| check((table, copies), lanes, [rows, vectors], access, cut));
            }
        }
    }
}

#[test]
fn every_tile_sums_in_canonical_order() {
    check_table(portable::PORTABLE_F32, 4, 4, false);
    check_table(portable::PORTABLE_F64, 4, 4, false);
    #[cfg(target_arch = "aarch64")]
    {
        check_table(neon::NEON_F32, 4, 8, false);
        check_table(neon::NEON_F64, 2, 8, false);
    }
    #[cfg(target_arch = "x86_64")]
    {
        if Level::Avx2.is_available() {
            check_table(avx2::AVX2_F32, 8, 6, false);
            check_table(avx2::AVX2_F64, 4, 6, false);
        }
        // A processor chooses one of the two; here both are checked.
        if Level::Avx512.is_available() {
            check_table(avx512::AVX512_F32, 16, 12, false);
            check_table(avx512::AVX512_F64, 8, 12, false);
            check_table(zen4::LOW_F32, 16, 4, false);
            check_table(zen4::LOW_F64, 8, 4, false);
            check_table(zen4::TALL_F32, 16, 0, false);
            check_table(zen4::TALL_F64, 8, 0, false);
            check_table(zen4::LOW_COPYING_F32, 16, 4, true);
            check_table(zen4::LOW_COPYING_F64, 8, 4, true);
        }
    }
}
