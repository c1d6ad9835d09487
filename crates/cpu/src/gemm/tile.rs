//! The shape of a product's tiles.

use super::Size;
use super::beside::are_beside;
use super::block::FAR;
use meshwork_simd::line::LINE;
use meshwork_simd::microkernel::{ASKING, Kernels, WORTH_ASKING};

/// The highest and widest part of a result that a kernel computes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Its rows.
    pub rows: usize,
    /// Its columns: one vector or two.
    pub columns: usize,
    /// Tiles, one below the other, up to which the right operand's panels are read in place: see [`Kernels::few`].
    pub few: usize,
    /// As `few`, for panels whose terms lie on several sets of the first-level cache.
    pub spread: usize,
    /// Whether there are kernels that copy panels: see [`Kernels::copying`].
    pub copies: bool,
    /// Whether it is one of [`Kernels::tall`].
    pub is_tall: bool,
}

/// Rows up to which tall tiles compute products: more of them are worth copying panels.
const TALL: usize = 128;
/// Terms of a block from which they do: all their sums leave the registers at its end.
const LONG: usize = 64;
/// Rows of tall tiles which take as long as those of fewer: a line of the third-level cache comes every ten cycles.
const PACE: usize = 10;

impl Tile {
    /// The tile for products of a size whose right operand's terms lie on few sets of the first-level cache, if there are such and
    /// they are the fastest.
    pub fn tall<T>(kernels: &Kernels<T>, size: &Size) -> Option<Tile> {
        let tallest = kernels.tall?.len();
        let suits = (kernels.highest() + 1..=TALL).contains(&size.rows) && size.block.min(size.terms) >= LONG;
        let rows = fitting(tallest, PACE, size.rows);
        suits.then_some(Tile { rows, columns: kernels.lanes, few: TALL, spread: TALL, copies: false, is_tall: true })
    }

    /// The tile for products of a size; `is_crowded` says of the left operand what [`is_crowded`](super::left::is_crowded) does.
    pub fn of<T>(kernels: &Kernels<T>, size: &Size, is_crowded: bool) -> Tile {
        let copies = kernels.copying.is_some();
        match kernels.slender {
            Some(slender)
                if size.terms >= slender.terms
                    && size.rows > kernels.rows()
                    && !is_crowded
                    && (size.rows <= kernels.highest() || !are_beside::<T>([size.rows, size.columns], size.terms)) =>
            {
                let rows = fitting(kernels.highest(), kernels.floor, size.rows);
                let spread = if size.terms < WORTH_ASKING { slender.few } else { slender.spread };
                Tile { rows, columns: kernels.lanes, few: slender.few, spread, copies, is_tall: false }
            }
            _ => {
                let few = kernels.few;
                Tile {
                    rows: rows_of(kernels, size),
                    columns: kernels.columns(),
                    few,
                    spread: few,
                    copies,
                    is_tall: false,
                }
            }
        }
    }
}

/// The height of tiles of two vectors that wastes least on `rows` rows.
pub fn height<T>(kernels: &Kernels<T>, rows: usize) -> usize {
    fitting(kernels.rows(), kernels.floor, rows)
}

/// The height, at most `most`, that wastes least on `rows` rows, where tiles below `floor` take as long as those of it.
fn fitting(most: usize, floor: usize, rows: usize) -> usize {
    let cost = |height: usize| {
        let rest = rows % height;
        rows / height * height.max(floor) + if rest > 0 { rest.max(floor) } else { 0 }
    };
    if rows <= most {
        return rows.max(1);
    }
    (most - most / 3..=most).min_by_key(|&h| (cost(h), most - h)).expect("a height")
}

/// As [`height`], but for the blocks of a product: the sums of short blocks leave the registers often, which lower
/// tiles hide better, and tiles of few terms have no time to ask for many lines of a far result.
fn rows_of<T>(kernels: &Kernels<T>, size: &Size) -> usize {
    let low = kernels.low.iter().find(|&&(block, _)| size.block <= block);
    if let Some(&(_, rows)) = low
        && size.rows > kernels.rows()
        && size.block < size.terms
    {
        return rows;
    }
    if size.rows > kernels.rows() && size.block < size.terms && size.rows * size.columns >= FAR {
        let lines = (kernels.columns() * size_of::<T>()).div_ceil(LINE);
        let rows = size.terms / ASKING / lines;
        if rows < kernels.rows() {
            return rows.max(kernels.floor);
        }
    }
    height(kernels, size.rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::gemm::Real;

    #[test]
    fn there_are_kernels_for_the_tiles_of_every_size() {
        fn check<T: Real>() {
            let counts = [1, 3, 4, 5, 7, 8, 9, 12, 13, 17, 20, 63, 64, 100, 1000];
            for kernels in Level::available().into_iter().map(T::kernels) {
                for (rows, terms) in counts.iter().flat_map(|&rows| counts.map(|terms| (rows, terms))) {
                    for (columns, block) in [(1, 8), (1000, 8), (16, terms), (1000, 256)] {
                        let size = Size { rows, columns, terms, block, run: 1 };
                        for is_crowded in [false, true] {
                            let tile = Tile::of(&kernels, &size, is_crowded);
                            let vectors = tile.columns / kernels.lanes;
                            assert!(tile.rows > 0 && tile.rows <= rows.min(kernels.highest()), "{tile:?} for {size:?}");
                            assert!(tile.columns.is_multiple_of(kernels.lanes), "{tile:?} for {size:?}");
                            assert!((1..=2).contains(&vectors), "{tile:?} for {size:?}");
                            let is_slender = kernels.slender.is_some_and(|slender| terms >= slender.terms);
                            let beside = rows > kernels.highest() && are_beside::<T>([rows, columns], terms);
                            let may_be = rows > kernels.rows() && !is_crowded && !beside;
                            assert_eq!(vectors == 1, is_slender && may_be, "{tile:?} for {size:?}");
                        }
                        if let Some(tall) = Tile::tall(&kernels, &size) {
                            assert!(
                                tall.rows > 0 && tall.rows <= kernels.tall.expect("tiles").len(),
                                "{tall:?} for {size:?}"
                            );
                            assert!(rows > kernels.highest() && tall.columns == kernels.lanes, "{tall:?} for {size:?}");
                        }
                    }
                }
            }
        }
        check::<f32>();
        check::<f64>();
    }
}
