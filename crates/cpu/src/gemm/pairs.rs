//! Operands of bf16 as pairs of terms, for microkernels that multiply such pairs (`microkernel::of_pairs`).
//!
//! A pair takes 32 bits: the first term the upper half, the second the lower one. If the number of terms is odd, the last
//! pair's second product is −0, which changes no sum: +0 on the left by [`Factor::Right`]'s −0.
//!
//! # Why the bits are those of f32
//!
//! A product of two bf16 has at most 16 bits and is exact in f32, so adding it with one rounding is the fused
//! multiply-add of the canonical chain. What the fast kernels do otherwise is to take subnormal numbers for zeros, and
//! perhaps another NaN. Neither can come about where [`Span::suits`]: let 2^l and 2^r be the least exponents of the
//! operands' numbers other than zero. Products are whole multiples of 2^(l − 7) · 2^(r − 7), thus so are all sums of
//! them, rounded or not, and if that is 2^−126 or more, each is zero or a normal number. Elsewhere kernels take pairs apart
//! again.

use super::block::Chunks;
use super::real::{Element, Real, same};
use crate::Level;
use half::bf16;
use meshwork_simd::microkernel::Table;

/// The least and the greatest magnitude of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bits of the least magnitude other than zero, less one.
    pub least: u16,
    /// Bits of the greatest magnitude.
    pub most: u16,
}

/// Bits of a magnitude.
pub const MAGNITUDE: u16 = 0x7fff;
/// Exponent of infinities and NaN, as it is stored.
const SPECIAL: u16 = 255;

impl Span {
    /// That of no numbers, or of zeros.
    pub const NONE: Span = Span { least: u16::MAX, most: 0 };

    /// The numbers of both.
    pub fn with(self, other: Span) -> Span {
        Span { least: self.least.min(other.least), most: self.most.max(other.most) }
    }

    /// The stored exponents of the least and the greatest magnitude.
    fn exponents(self) -> [u16; 2] {
        [if self == Span::NONE { SPECIAL } else { (self.least + 1) >> 7 }, self.most >> 7]
    }

    /// Whether sums of products of such numbers by such others are the same with and without subnormal numbers: see the
    /// module. Exponents are stored with 127 added to them.
    pub fn suits(self, other: Span) -> bool {
        let ([l, left], [r, right]) = (self.exponents(), other.exponents());
        let normal = l.min(r) > 0 && l + r >= 2 * 127 - 126 + 14;
        // A product is less than 2^(left + right + 2).
        let finite = left.max(right) < SPECIAL && left + right <= 2 * 127 + 125;
        normal && finite
    }
}

/// An operand of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    Left,
    Right,
}

impl Factor {
    /// The bits that stand for a missing last term.
    pub fn pad(self) -> u16 {
        match self {
            Factor::Left => 0,
            Factor::Right => 0x8000,
        }
    }
}

/// What is known of a product whose operands are packed as pairs.
pub struct Pairs<T: 'static> {
    fast: Table<T>,
    exact: Table<T>,
    /// The numbers of the operands in the chains that are being computed.
    left: Span,
    right: Span,
}

impl<T: Real> Pairs<T> {
    /// If operands of these types can be packed as pairs, of whose terms there are so many, and the level has kernels for
    /// them.
    pub fn new<L: Element<Real = T>, R: Element<Real = T>>(
        level: Level,
        chunks: &Chunks,
        terms: usize,
    ) -> Option<Self> {
        // No pair of two blocks.
        let whole = chunks.block.is_multiple_of(2) || terms <= chunks.block || chunks.terms < chunks.block;
        if !whole || !same::<L, bf16>() || !same::<R, bf16>() {
            return None;
        }
        T::pairs(level).map(|[fast, exact]| Pairs { fast, exact, left: Span::NONE, right: Span::NONE })
    }

    /// Begins new chains.
    pub fn begin(&mut self) {
        (self.left, self.right) = (Span::NONE, Span::NONE);
    }

    /// Adds numbers of the operands.
    pub fn meet(&mut self, factor: Factor, span: Span) {
        let known = match factor {
            Factor::Left => &mut self.left,
            Factor::Right => &mut self.right,
        };
        *known = known.with(span);
    }

    /// The kernels for the operands' numbers.
    pub fn table(&self) -> Table<T> {
        if self.left.suits(self.right) { self.fast } else { self.exact }
    }
}

/// Lines and terms of an operand: element (line, term) is at `data[lines[line] + terms[term]]`.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    pub factor: Factor,
    pub data: *const bf16,
    pub lines: &'a [isize],
    pub terms: &'a [isize],
}

impl Operand<'_> {
    /// Packs panels as [`super::pack::pack`] does, of pairs.
    ///
    /// # Safety
    /// As there.
    pub unsafe fn pack(self, level: Level, width: usize, out: *mut u32) -> Span {
        #[cfg(target_arch = "x86_64")]
        if level >= Level::Avx512 {
            // SAFETY: the caller's promise.
            return unsafe { super::pairs_x86::pack(self, width, out) };
        }
        let _ = level;
        let pairs = self.terms.len().div_ceil(2);
        let mut span = Span::NONE;
        for (p, lines) in self.lines.chunks(width).enumerate() {
            // SAFETY: panel `p` of the caller's room, elements of the caller's.
            span = span.with(unsafe { Operand { lines, ..self }.scalar(width, out.add(p * width * pairs)) });
        }
        span
    }

    /// Copies lines whose terms lie side by side, as pairs, one behind the other.
    ///
    /// # Safety
    /// As for [`Operand::pack`].
    pub unsafe fn copy(self, level: Level, out: *mut u32) -> Span {
        #[cfg(target_arch = "x86_64")]
        if level >= Level::Avx512 {
            // SAFETY: the caller's promise.
            return unsafe { super::pairs_x86::copy(self, out) };
        }
        // SAFETY: panels of one line are lines.
        unsafe { self.pack(level, 1, out) }
    }

    /// Packs one panel, element by element.
    ///
    /// # Safety
    /// As for [`Operand::pack`].
    pub unsafe fn scalar(self, width: usize, out: *mut u32) -> Span {
        let mut span = Span::NONE;
        for (k, pair) in self.terms.chunks(2).enumerate() {
            for i in 0..width {
                let half = |half: usize| match (self.lines.get(i), pair.get(half)) {
                    // SAFETY: an element of the caller's.
                    (Some(line), Some(term)) => unsafe { (*self.data.offset(line + term)).to_bits() },
                    (Some(_), None) => self.factor.pad(),
                    (None, _) => 0,
                };
                let halves = [half(0), half(1)];
                for bits in halves.map(|bits| bits & MAGNITUDE) {
                    span = span.with(Span { least: bits.wrapping_sub(1), most: bits });
                }
                // SAFETY: the caller's room.
                unsafe { *out.add(k * width + i) = u32::from(halves[0]) << 16 | u32::from(halves[1]) };
            }
        }
        span
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(numbers: &[f32]) -> Span {
        numbers.iter().fold(Span::NONE, |span, &x| {
            let bits = bf16::from_f32(x).to_bits() & MAGNITUDE;
            span.with(Span { least: bits.wrapping_sub(1), most: bits })
        })
    }

    #[test]
    fn spans_suit_whose_products_are_multiples_of_a_normal_number() {
        let power = |n: i32| 2f32.powi(n);
        let suits = |left: &[f32], right: &[f32]| {
            assert_eq!(span(left).suits(span(right)), span(right).suits(span(left)));
            span(left).suits(span(right))
        };
        assert!(suits(&[1.0, -3.0, 0.0], &[0.5, -0.0]));
        assert!(suits(&[0.0], &[0.0]) && suits(&[], &[]) && suits(&[], &[1.0]));
        assert!(suits(&[power(-56)], &[1.0, -power(-56)]));
        assert!(!suits(&[power(-56)], &[1.0, power(-57)]));
        assert!(suits(&[power(-112)], &[1.0]) && !suits(&[power(-113)], &[1.0]));
        // Subnormal numbers, though the products are not.
        assert!(!suits(&[power(-127)], &[power(100)]) && suits(&[power(-126)], &[power(100)]));
        assert!(!suits(&[f32::INFINITY], &[1.0]) && !suits(&[0.0], &[f32::NAN]));
        assert!(suits(&[power(63)], &[power(62)]) && !suits(&[power(63)], &[power(63)]));
    }

    #[test]
    fn panels_are_the_same_at_every_level() {
        let data: Vec<bf16> = (0..8000u16).map(|i| bf16::from_bits(i.wrapping_mul(30_011))).collect();
        let patterns: [fn(isize) -> isize; 5] = [|i| i, |i| i * 31, |i| i / 9 * 13 + i % 9, |i| -i, |_| 5];
        for (lines, terms) in patterns.iter().flat_map(|lines| patterns.iter().map(move |terms| (lines, terms))) {
            for (count, length) in [(1, 1), (5, 2), (16, 33), (43, 64), (43, 95), (64, 31)] {
                let lines: Vec<isize> = (0..count).map(lines).collect();
                let terms: Vec<isize> = (0..length).map(terms).collect();
                for factor in [Factor::Left, Factor::Right] {
                    // SAFETY: offsets are between −160 and 5000.
                    let middle = unsafe { data.as_ptr().add(1500) };
                    compare(Operand { factor, data: middle, lines: &lines, terms: &terms });
                }
            }
        }
    }

    fn compare(operand: Operand) {
        let packed = |level: Level, width: usize| {
            let size = operand.lines.len().next_multiple_of(width) * operand.terms.len().div_ceil(2);
            let (mut out, mut lines) = (vec![0x1234_5678; size], Vec::new());
            // SAFETY: the room is as large as `pack` wants it.
            let span = unsafe { operand.pack(level, width, out.as_mut_ptr()) };
            // What stands in lines that are missing means nothing.
            let pairs = operand.terms.len().div_ceil(2);
            (0..operand.lines.len()).for_each(|line| {
                let at = |k: usize| (line / width * pairs + k) * width + line % width;
                lines.extend((0..pairs).map(|k| out[at(k)]));
            });
            (lines, span)
        };
        for width in [1, 2, 3, 4, 8, 11, 12, 16, 32] {
            let expected = packed(Level::Portable, width);
            for level in Level::available() {
                assert_eq!(packed(level, width), expected, "{level:?}, width {width}");
                if width == 1 && operand.terms.windows(2).all(|w| w[1] == w[0] + 1) {
                    let mut out = vec![0; expected.0.len()];
                    // SAFETY: as above.
                    let span = unsafe { operand.copy(level, out.as_mut_ptr()) };
                    assert_eq!((out, span), expected, "{level:?}, lines");
                }
            }
        }
    }
}
