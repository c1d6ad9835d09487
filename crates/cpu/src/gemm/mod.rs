//! Matrix products in canonical order, the ground of `Dot` and of the convolutions.
//!
//! `out[row, column] = Σ_term a[row, term] · b[term, column]`, where the terms are cut into blocks: inside a block
//! one chain of fused multiply-adds in the order of the terms, beginning at +0; over the blocks the binary
//! tree of adjacent pairs (`meshwork_graph::canonical::TreeSum`). Nothing else may depend on how the work is
//! cut, and nothing does:
//!
//! - **tiles** ([`microkernel`](meshwork_simd::microkernel); their shapes: [`tile`]) hold their blocks in registers and their tree in the first-level cache;
//! - **chunks** of terms ([`block`]) keep packed panels in the caches. They are aligned runs of 2^c blocks, whose roots
//!   go to a counter of whole partial matrices, or parts of one long block, whose chains go on where they stopped;
//! - **tasks** ([`drive`]) take ranges of rows and columns, and, where outputs are few beside the terms, aligned runs of
//!   2^p blocks, whose roots are merged by the same tree at the end (`merge`).
//!
//! Products with few rows, which packing would slow down, read the right operand in place: along its rows (`strip`) or, where
//! its terms lie side by side, as inner products (`inner`).
//!
//! Operands lie anywhere ([`offsets`]) and are packed into panels ([`pack`]) or, where that costs less, read in place: the left one
//! a block of rows at a time ([`left`]), panels of the right one for few rows, by tall tiles, or by the first tile of each, whose
//! kernel copies them (`right`); a right one that many tasks need is packed once (`packed`). Of bf16, two terms are packed as one number where
//! there are instructions for such pairs (`pairs`). Tiles follow each other downwards, or upwards, and those of few terms along
//! the rows of the result (`beside`). While kernels compute they ask for the lines of the caches that are needed next (`ahead`):
//! those of their results, of the next block of the left operand and of the next panel of the right one.

pub mod ahead;
mod beside;
pub mod block;
pub mod drive;
mod inner;
#[cfg(target_arch = "x86_64")]
mod inner_x86;
pub mod left;
mod merge;
pub mod offsets;
pub mod pack;
#[cfg(target_arch = "x86_64")]
pub mod pack_avx512;
#[cfg(target_arch = "x86_64")]
pub mod pack_x86;
mod packed;
pub(crate) mod pairs;
#[cfg(target_arch = "x86_64")]
mod pairs_x86;
pub mod real;
mod right;
pub mod scratch;
mod store;
mod strip;
pub mod tile;

pub use drive::{multiply, scratch_bytes};
pub use offsets::Offsets;
pub use real::{Element, Real};

/// What a product computes, apart from where its elements lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows of the result.
    pub rows: usize,
    /// Columns of the result.
    pub columns: usize,
    /// Terms of each sum.
    pub terms: usize,
    /// Terms of a block; the last one may have fewer.
    pub block: usize,
    /// Terms that lie side by side in the left operand; long blocks are cut there.
    pub run: usize,
}

/// One operand: element (line, term) is at `lines[line] + terms[term]`. Lines are rows of the left or columns of the
/// right operand.
#[derive(Clone, Debug)]
pub struct Side {
    /// Offsets of the lines.
    pub lines: Offsets,
    /// Offsets of the terms.
    pub terms: Offsets,
}

/// The result: element (row, column) is at `rows[row] + columns[column]`.
#[derive(Clone, Debug)]
pub struct Place {
    /// Offsets of the rows.
    pub rows: Offsets,
    /// Offsets of the columns.
    pub columns: Offsets,
}
