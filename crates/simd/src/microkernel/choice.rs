//! Which microkernels a level has, and what suits them.

#[cfg(target_arch = "aarch64")]
use super::neon;
use super::{ASKING, SILENT, Table, portable};
#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512, pairs_x86, zen4};
use crate::Level;

/// Tiles one vector wide and twice as high as those of two. They read half as many numbers of the right side, whose panels
/// stay in the first-level cache; others take them from the second one, which neighbours may be using as well. Sums of few
/// terms are stored the better the wider their tiles are.
#[derive(Clone, Copy, Debug)]
pub struct Slender {
    /// Terms from which tiles are slender.
    pub terms: usize,
    /// As [`Kernels::few`].
    pub few: usize,
    /// As `few`, for so many terms that kernels ask for lines, where those of a panel lie on several sets of the first-level
    /// cache: to take them from the second one, tile by tile, costs less than packing.
    pub spread: usize,
}

/// The microkernels of a level.
#[derive(Clone, Copy)]
pub struct Kernels<T: 'static> {
    /// Numbers in a vector; a tile is one or two vectors wide.
    pub lanes: usize,
    /// Slender tiles, if there are any.
    pub slender: Option<Slender>,
    /// Rows below which a tile takes as long as one with so many.
    pub floor: usize,
    /// Lower tiles for short blocks, which end with stores of all sums: terms of a block, and rows of a tile up to so many.
    /// Zen 3 hides eight vectors of stores and waits 20 cycles for twelve.
    pub low: &'static [(usize, usize)],
    /// Vectors of a tile up to which kernels sum several short blocks in registers, and ask for lines meanwhile.
    pub joined: usize,
    /// Tiles, one below the other, up to which the right operand's panels are read in place: what is read often is packed,
    /// unless all of a panel stays in the first-level cache where it lies.
    pub few: usize,
    /// Columns up to which panels of the left operand that stay in the second-level cache, but not in the first one, are read in
    /// place. Zen 3 waits for its second one where Zen 4 does not, so that what a single panel of the right side reads is all that it
    /// does not pay to pack (256 × 256 × 256, the left side transposed: 78 GFLOP/s a thread, 90 packed).
    pub from_second: usize,
    /// Lines of a set of the first-level cache that a panel of the right operand read in place may take: lines of the next one
    /// come meanwhile, and the left side needs some.
    pub ways: usize,
    /// Terms that are summed before sums leave the tiles, at most. More of them store sums less often, fewer leave
    /// panels of the right side in the first-level cache.
    pub depth: usize,
    /// Rows whose panels stay in the second-level cache together, and bytes of these panels, at most: the more, the less often
    /// panels of the right side come from the third.
    pub together: [usize; 2],
    /// The functions.
    pub table: Table<T>,
    /// Those of the tallest tiles, if there are any: of one vector, for left sides that are packed. Where the terms of the right side
    /// lie on few sets of the first-level cache each tile takes them from the second or third one, line by line, which these
    /// give as fast as ten rows or more need them.
    pub tall: Option<Table<T>>,
    /// Those that leave a copy of what they read of the right side, if there are any. A vector that is stored costs one and a half
    /// cycles, where packing waits for the second-level cache.
    pub copying: Option<Table<T>>,
}

impl<T> Kernels<T> {
    /// Rows of the highest tile of two vectors.
    pub fn rows(&self) -> usize {
        if self.slender.is_some() { self.highest() / 2 } else { self.highest() }
    }

    /// Rows of the highest tile.
    pub fn highest(&self) -> usize {
        self.table.len()
    }

    /// Terms for which kernels ask for a line, where blocks have so many of them and tiles so many vectors; none if they do not
    /// ask. Those for any pairs of narrow numbers join no blocks, and leave what they would ask for then.
    pub fn asking(&self, block: usize, vectors: usize) -> Option<usize> {
        match block {
            _ if block > SILENT => Some(ASKING),
            _ if vectors <= self.joined => Some(2 * SILENT),
            _ => None,
        }
    }

    /// Columns of the widest tile.
    pub fn columns(&self) -> usize {
        2 * self.lanes
    }
}

macro_rules! choose {
    ($name:ident, $number:ty, $portable:ident, $neon:ident, $avx2:ident, $avx512:ident, $low:ident, $tall:ident, $copying:ident, $bytes:literal) => {
        /// The microkernels of a level.
        pub fn $name(level: Level) -> Kernels<$number> {
            let portable = Kernels {
                lanes: 4,
                slender: None,
                floor: 1,
                low: &[(32, 3)],
                joined: 0,
                few: 11,
                from_second: 256,
                ways: 4,
                depth: 512,
                together: [120, 288 << 10],
                table: portable::$portable,
                tall: None,
                copying: None,
            };
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Bf16 if *crate::level::UP_TO_ZEN_4 => Kernels {
                    lanes: 64 / $bytes,
                    slender: Some(Slender { terms: 64, few: 17, spread: 65 }),
                    floor: 4,
                    low: &[],
                    joined: 8,
                    few: 33,
                    together: [240, 576 << 10],
                    table: zen4::$low,
                    tall: Some(zen4::$tall),
                    copying: Some(zen4::$copying),
                    ..portable
                },
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Bf16 => Kernels {
                    lanes: 64 / $bytes,
                    floor: 4,
                    low: &[(8, 6)],
                    joined: 12,
                    together: [240, 576 << 10],
                    table: avx512::$avx512,
                    ..portable
                },
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => Kernels {
                    lanes: 32 / $bytes,
                    floor: 4,
                    low: &[(256, 4)],
                    from_second: 16,
                    ways: 3,
                    depth: 1024,
                    table: avx2::$avx2,
                    ..portable
                },
                #[cfg(target_arch = "aarch64")]
                Level::Neon => {
                    Kernels { lanes: 16 / $bytes, floor: 4, low: &[(32, 6)], table: neon::$neon, ..portable }
                }
                _ => portable,
            }
        }
    };
}

choose!(of_f32, f32, PORTABLE_F32, NEON_F32, AVX2_F32, AVX512_F32, LOW_F32, TALL_F32, LOW_COPYING_F32, 4);
choose!(of_f64, f64, PORTABLE_F64, NEON_F64, AVX2_F64, AVX512_F64, LOW_F64, TALL_F64, LOW_COPYING_F64, 8);

/// The microkernels of a level for pairs of bf16, if it has some, as high and wide as the others: the fast ones, and those for any
/// numbers.
pub fn of_pairs(level: Level) -> Option<[Table<f32>; 2]> {
    #[cfg(target_arch = "x86_64")]
    if level == Level::Avx512Bf16 {
        return Some(pairs_x86::tables());
    }
    let _ = level;
    None
}

/// Whether the processor multiplies pairs of bf16.
pub fn multiplies_pairs() -> bool {
    #[cfg(target_arch = "x86_64")]
    return pairs_x86::multiplies_pairs();
    #[cfg(not(target_arch = "x86_64"))]
    false
}
