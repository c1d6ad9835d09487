//! Microkernels: register tiles of a product, one below the other, over a run of terms, in canonical order.
//!
//! A tile is at most `rows × 2·lanes` numbers. Inside a block of terms every number is one chain of fused
//! multiply-adds; finished blocks go to a binary counter of tiles that stays in the first-level cache
//! (`meshwork_graph::canonical::TreeSum`, slot `l` is the root of 2^l blocks). Every instruction set
//! does the same arithmetic per number, so all give the same bits.

#[cfg(target_arch = "x86_64")]
pub mod avx2;
#[cfg(target_arch = "x86_64")]
pub mod avx512;
mod choice;
mod loops;
#[cfg(target_arch = "aarch64")]
pub mod neon;
#[cfg(target_arch = "x86_64")]
mod pairs_x86;
pub mod portable;
#[cfg(target_arch = "x86_64")]
pub mod x86;
#[cfg(target_arch = "x86_64")]
pub mod zen4;

pub use choice::{Kernels, Slender, multiplies_pairs, of_f32, of_f64, of_pairs};

use crate::line::Lines;

/// Levels that the counter of one call can have: a call sums fewer than 2^16 blocks.
pub const COUNTER: usize = 16;

/// Terms for which a kernel asks for one line of the caches.
pub const ASKING: usize = 4;
/// Terms from which kernels ask for lines. Tiles of fewer are stored as fast as the caches take them, many with one call; with lines
/// to ask for a call is a tile or two, which took up to twice as long (1024 × 9 × 1024).
pub const WORTH_ASKING: usize = 128;
/// Terms of blocks up to which kernels ask for no lines, unless they sum four blocks in registers: then for two in that time.
pub const SILENT: usize = 8;

/// What one call of a microkernel computes: tiles below each other, above, or beside.
pub struct Call<T> {
    /// How many tiles.
    pub tiles: usize,
    /// 1 where each tile is below the one before or beside it, −1 where it is above.
    pub way: isize,
    /// Terms.
    pub terms: usize,
    /// Terms of a block.
    pub block: usize,
    /// The left side: element (row, term) is at `term · a_step + row` in a panel, at `row · a_step + term` in rows.
    pub a: *const T,
    /// Distance between the terms of a panel, or between rows.
    pub a_step: isize,
    /// Distance between the panels, or rows, of tiles below each other; 0 where they lie beside each other.
    pub a_tile: isize,
    /// The panel of the right side.
    pub b: *const T,
    /// Distance between the terms of the right side.
    pub b_term: isize,
    /// Distance between the panels of tiles beside each other; 0 where they lie below.
    pub b_tile: isize,
    /// Room for [`COUNTER`] tiles.
    pub counter: *mut T,
    /// Where kernels that copy leave what they read of the right side, terms one after the other.
    pub copy: *mut T,
    /// As `b_tile`, of what is left there.
    pub copy_tile: isize,
    /// The first of the tiles that first chains continue, or null: they begin at +0. The one below is right behind it.
    pub start: *const T,
    /// The first ones of tiles that are added to the left of the result, in this order; those below are right behind
    /// them.
    pub merge: *const *const T,
    /// Number of tiles in `merge`, for each result.
    pub merges: usize,
    /// Where the results go.
    pub out: *mut T,
    /// Distance between the rows of the results. Other tiles are dense.
    pub out_row: isize,
    /// Distance between the results of neighbouring tiles.
    pub out_tile: isize,
    /// Lines of the caches that are asked for meanwhile, one every [`ASKING`] terms: all at once they would keep the
    /// operands waiting, for a core waits for few lines at a time. In blocks of up to [`SILENT`] terms there are fewer:
    /// see [`Kernels::asking`]. Behind the runs is one that never ends: [`Lines::NONE`].
    pub ahead: *const Lines,
}

/// Computes tiles.
///
/// # Safety
/// The processor must have the kernel's instructions, and all that the call names must be there.
pub type Run<T> = unsafe fn(&Call<T>);

/// How a microkernel reads the left side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From a packed panel.
    Panel = 0,
    /// From rows in memory, whose terms lie side by side.
    Rows = 1,
}

/// Microkernels by rows, vectors and access: `table[rows - 1][vectors - 1][access]`.
pub type Table<T> = &'static [[[Run<T>; 2]; 2]];
