//! Tiles of weights and slopes as pairs of bf16, for the microkernels of `gemm::pairs`: two numbers in 32 bits, the first
//! one in the upper half.

use super::softmax::UNIT;
use crate::Level;
use crate::gemm::pairs::Span;
use meshwork_simd::multiversion;

/// Magnitude of a number.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// The least and the greatest magnitude that was met in each lane.
struct Seen<const W: usize> {
    least: [u32; W],
    most: [u32; W],
}

impl<const W: usize> Seen<W> {
    #[inline(always)]
    fn new() -> Self {
        Seen { least: [u32::MAX; W], most: [0; W] }
    }

    #[inline(always)]
    fn add(&mut self, bits: &[u32; W]) {
        for (bits, (least, most)) in bits.iter().zip(self.least.iter_mut().zip(&mut self.most)) {
            let magnitude = bits & MAGNITUDE;
            *least = (*least).min(magnitude.wrapping_sub(1));
            *most = (*most).max(magnitude);
        }
    }

    #[inline(always)]
    fn span(&self) -> Span {
        let (least, most) = (self.least.iter().min(), self.most.iter().max());
        let half = |bits: Option<&u32>| (bits.expect("lanes") >> 16) as u16;
        Span { least: half(least), most: half(most) }
    }
}

/// The bits of a row of numbers of bf16, +0 behind the first ones.
#[inline(always)]
fn bits<const W: usize>(row: &[f32; W], within: &[u32; W]) -> [u32; W] {
    std::array::from_fn(|c| row[c].to_bits() & within[c])
}

/// All bits of the first `columns`, none of those behind them.
#[inline(always)]
fn within<const W: usize>(columns: usize) -> [u32; W] {
    std::array::from_fn(|c| if c < columns { u32::MAX } else { 0 })
}

/// Two rows become one.
#[inline(always)]
fn of_rows<const W: usize>(tile: &[f32], columns: usize, out: &mut [u32]) -> Span {
    let (within, mut seen) = (within::<W>(columns), Seen::<W>::new());
    for (rows, out) in tile.as_chunks::<W>().0.chunks(2).zip(out.as_chunks_mut::<W>().0) {
        let upper = bits(&rows[0], &within);
        let lower = rows.get(1).map_or([0; W], |row| bits(row, &within));
        seen.add(&upper);
        seen.add(&lower);
        *out = std::array::from_fn(|c| upper[c] | lower[c] >> 16);
    }
    seen.span()
}

/// Two columns become one.
#[inline(always)]
fn of_columns<const W: usize>(tile: &[f32], columns: usize, out: &mut [u32]) -> Span {
    let (within, mut seen) = (within::<W>(columns), Seen::<W>::new());
    for (row, out) in tile.as_chunks::<W>().0.iter().zip(out.chunks_exact_mut(W / 2)) {
        let row = bits(row, &within);
        seen.add(&row);
        for (j, pair) in out.iter_mut().enumerate() {
            *pair = row[2 * j] | row[2 * j + 1] >> 16;
        }
    }
    seen.span()
}

macro_rules! widths {
    ($($width:literal: $of_rows:ident $of_columns:ident;)*) => {
        $(
            multiversion! {
                fn $of_rows(tile: &[f32], columns: usize, out: &mut [u32]) -> Span = of_rows::<$width>;
            }
            multiversion! {
                fn $of_columns(tile: &[f32], columns: usize, out: &mut [u32]) -> Span = of_columns::<$width>;
            }
        )*

        /// Makes pairs of neighbouring rows of a tile, which has rows of `width` numbers of bf16 of which the first `columns`
        /// count; says which numbers they are. An odd last row is paired with zeros.
        pub fn pair_rows(level: Level, width: usize, tile: &[f32], columns: usize, out: &mut [u32]) -> Span {
            match width {
                $($width => $of_rows(level, tile, columns, out),)*
                _ => unreachable!("tiles are not {width} wide"),
            }
        }

        /// Makes pairs of neighbouring columns of a tile, in the same way.
        pub fn pair_columns(level: Level, width: usize, tile: &[f32], columns: usize, out: &mut [u32]) -> Span {
            match width {
                $($width => $of_columns(level, tile, columns, out),)*
                _ => unreachable!("tiles are not {width} wide"),
            }
        }
    };
}

widths! {
    8: of_rows_8 of_columns_8;
    16: of_rows_16 of_columns_16;
    32: of_rows_32 of_columns_32;
}

const _: () = assert!(UNIT == 32, "the widths above");
