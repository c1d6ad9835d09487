//! Microkernels: register tiles of a product, one below the other, over a run of terms, in canonical order.
//!
//! A tile is at most `rows × 2·lanes` numbers. Inside a block of terms every number is one chain of fused
//! multiply-adds; finished blocks go to a binary counter of tiles that stays in the first-level cache
//! (`meshwork_graph::canonical::TreeSum`, slot `l` is the root of 2^l blocks). Every instruction set
//! does the same arithmetic per number, so all give the same bits.

#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod pairs_x86;
mod portable;
#[cfg(target_arch = "x86_64")]
pub(super) mod x86;

use super::ahead::Lines;
use crate::simd::Level;

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
    /// Tiles, one below the other, up to which the right operand's panels are read in place: what is read often is packed,
    /// unless all of a panel stays in the first-level cache where it lies.
    pub few: usize,
    /// Columns up to which panels of the left operand that stay in the second-level cache, but not in the first one, are read in
    /// place. Zen 3 waits for its second one where Zen 4 does not (256 × 256 × 256, the left side transposed: 78 GFLOP/s, 90 packed).
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

    /// Terms for which kernels ask for a line, where blocks have so many of them; none if they do not ask.
    pub fn asking(&self, block: usize) -> Option<usize> {
        match block {
            _ if block > SILENT => Some(ASKING),
            // Tiles are so low that kernels sum four blocks in registers; those for any pairs do not, and ask for nothing.
            _ if self.slender.is_some() => Some(2 * SILENT),
            _ => None,
        }
    }

    /// Columns of the widest tile.
    pub fn columns(&self) -> usize {
        2 * self.lanes
    }
}

/// The pointer, but compilers no longer know how it was computed. They would compute those of all rows beforehand, which are
/// more than there are registers.
#[inline(always)]
#[allow(clippy::pointers_in_nomem_asm_block)]
pub fn opaque<T>(mut pointer: *const T) -> *const T {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: no instruction.
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) pointer, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = &mut pointer;
    pointer
}

/// Stands in tables for tiles that there are none of.
#[allow(dead_code)]
unsafe fn absent<T>(_: &Call<T>) {
    unreachable!("tiles of two vectors are no higher than `Kernels::rows`, and taller ones have packed left sides")
}

/// Does nothing, where compilers need no anchors.
fn anchor<T>(_: &mut T) {}

/// Defines a microkernel over vectors, and the table of its instances.
///
/// `$anchor` gets every sum that has been added to. It is no instruction, but compilers move neither the addition nor loads
/// across it. Without it LLVM loads the left side of four terms first, and then keeps that and sums of AVX-512's tiles in
/// memory: with 12 rows in place the kernel reached 65 % of what it does.
///
/// Tiles of up to `$together` vectors sum four blocks in registers, which takes three times as many: for a block, for
/// the one before, and for the pair before.
///
/// `$again` is whether a number of the left side is loaded for each vector, as an operand of its multiply-add.
macro_rules! microkernel {
    (
        $(#[$attribute:meta])* $name:ident: $number:ty, $vector:ty, $lanes:literal, $zero:expr, $load:path, $store:path, $splat:path, $fma:expr, $add:path, $anchor:path, $together:literal, $again:literal
    ) => {
        $(#[$attribute])*
        #[allow(unused_unsafe, clippy::absurd_extreme_comparisons)]
        unsafe fn $name<const ROWS: usize, const VECTORS: usize, const PANEL: bool, const COPY: bool>(call: &$crate::gemm::kernel::Call<$number>) {
            let fma = $fma;
            // SAFETY: the caller promises what the call names and the instructions.
            unsafe {
                let zero: $vector = $zero;
                let tile = ROWS * VECTORS * $lanes;
                let (mut ahead, mut line, mut lines) = (call.ahead, (*call.ahead).first, (*call.ahead).count);
                let (a_step, b_term) = (call.a_step, call.b_term);
                for number in 0..call.tiles as isize {
                    let below = number * call.way;
                    let mut acc = [[zero; VECTORS]; ROWS];
                    if !call.start.is_null() {
                        for (i, row) in acc.iter_mut().enumerate() {
                            for (j, x) in row.iter_mut().enumerate() {
                                *x = $load(call.start.offset(below * tile as isize).add((i * VECTORS + j) * $lanes));
                            }
                        }
                    }
                    let (first, right, mut copy) = (call.a.offset(below * call.a_tile), call.b.offset(below * call.b_tile), call.copy.offset(below * call.copy_tile));
                    // An address has a multiple of a distance in it, up to two of these: every third row of the left side, or
                    // the fourth of four terms, has a pointer of its own.
                    let mut a = [first; 3];
                    for (i, a) in a.iter_mut().enumerate() {
                        if i > 0 && i < if PANEL { 2 } else { ROWS.div_ceil(3) } {
                            *a = $crate::gemm::kernel::opaque(first.wrapping_offset(3 * i as isize * a_step));
                        }
                    }
                    let mut b = [right, $crate::gemm::kernel::opaque(right.wrapping_offset(3 * b_term))];
                    // Macros, because closures might not be inlined.
                    macro_rules! term {
                        ($k:literal) => {
                            let mut right = [zero; VECTORS];
                            for (j, x) in right.iter_mut().enumerate() {
                                *x = $load(b[$k / 3].offset($k % 3 * b_term).add(j * $lanes));
                                if COPY {
                                    $store(copy.add(($k * VECTORS + j) * $lanes), *x);
                                }
                            }
                            let mut left = a[0].add($k);
                            for (i, row) in acc.iter_mut().enumerate() {
                                let at = if PANEL {
                                    a[$k / 3].offset($k % 3 * a_step).add(i)
                                } else if ROWS <= 9 {
                                    a[i / 3].offset((i % 3) as isize * a_step).add($k)
                                } else {
                                    // Compilers do not unroll the loop if they have to find the pointers of so many rows.
                                    if i % 3 == 0 && i > 0 {
                                        left = $crate::gemm::kernel::opaque(left.offset(3 * a_step));
                                    }
                                    left.offset((i % 3) as isize * a_step)
                                };
                                let x = $splat(at);
                                for (j, sum) in row.iter_mut().enumerate() {
                                    let x = if $again && j > 0 { $splat($crate::gemm::kernel::opaque(at)) } else { x };
                                    *sum = fma(x, right[j], *sum);
                                    $anchor(sum);
                                }
                            }
                        };
                    }
                    macro_rules! add {
                        ($tile:expr) => {
                            let tile: *const $number = $tile;
                            for (i, row) in acc.iter_mut().enumerate() {
                                for (j, x) in row.iter_mut().enumerate() {
                                    *x = $add($load(tile.add((i * VECTORS + j) * $lanes)), *x);
                                }
                            }
                        };
                    }
                    macro_rules! forward {
                        ($terms:literal) => {
                            a = a.map(|a| a.wrapping_offset($terms * if PANEL { a_step } else { 1 }));
                            b = b.map(|b| b.wrapping_offset($terms * b_term));
                            if COPY {
                                copy = copy.add($terms * VECTORS * $lanes);
                            }
                        };
                    }
                    macro_rules! four {
                        () => {
                            term!(0);
                            term!(1);
                            term!(2);
                            term!(3);
                            forward!(4);
                        };
                    }
                    // Asks for a line. Without a branch, across which compilers move sums.
                    macro_rules! ask {
                        ($prefetch:path) => {
                            $prefetch(line);
                            lines -= 1;
                            let end = lines == 0;
                            line = line.wrapping_offset((*ahead).step);
                            ahead = ahead.add(end as usize);
                            line = std::hint::select_unpredictable(end, (*ahead).first, line);
                            lines = std::hint::select_unpredictable(end, (*ahead).count, lines);
                        };
                    }
                    // So many times four terms, and a line for each as long as there are any: a loop that asks for none is a
                    // sixth shorter, which matters where another thread of the same core takes half of what it decodes. Sums stay
                    // in registers from one loop to the other. Where four blocks are summed in registers loops always ask: there
                    // would be four times two of them.
                    macro_rules! fours {
                        ($count:expr) => {
                            let mut count = $count;
                            while count > 0 && lines <= $crate::gemm::ahead::Lines::MOST {
                                four!();
                                ask!($crate::stream::prefetch);
                                count -= 1;
                            }
                            for _ in 0..count {
                                four!();
                            }
                        };
                    }
                    let (mut left, mut blocks) = (call.terms, 0usize);
                    // Hands the root of 2^level blocks over to the counter.
                    macro_rules! keep {
                        ($level:literal) => {
                            let (mut slot, mut carry) = (call.counter.add($level * tile), blocks >> $level);
                            while carry & 1 == 1 {
                                add!(slot);
                                slot = slot.add(tile);
                                carry >>= 1;
                            }
                            for (i, row) in acc.iter_mut().enumerate() {
                                for (j, x) in row.iter_mut().enumerate() {
                                    $store(slot.add((i * VECTORS + j) * $lanes), *x);
                                    *x = zero;
                                }
                            }
                        };
                    }
                    macro_rules! finish {
                        () => {
                            left -= call.block;
                            keep!(0);
                            blocks += 1;
                        };
                    }
                    'blocks: {
                        // Four blocks at once, whose sums are added in registers: only their root goes to the counter.
                        macro_rules! quads {
                            ($block:block, $ask:block) => {
                                while left >= 4 * call.block {
                                    macro_rules! next {
                                        () => {{
                                            acc = [[zero; VECTORS]; ROWS];
                                            $block
                                        }};
                                    }
                                    macro_rules! join {
                                        ($left:expr) => {
                                            for (sums, left) in acc.iter_mut().zip(&$left) {
                                                for (sum, &left) in sums.iter_mut().zip(left) {
                                                    *sum = $add(left, *sum);
                                                }
                                            }
                                        };
                                    }
                                    $block
                                    let one = acc;
                                    next!();
                                    $ask
                                    join!(one);
                                    let two = acc;
                                    next!();
                                    let one = acc;
                                    next!();
                                    $ask
                                    join!(one);
                                    join!(two);
                                    left -= 4 * call.block;
                                    if left == 0 {
                                        break 'blocks;
                                    }
                                    keep!(2);
                                    blocks += 4;
                                }
                            };
                        }
                        // Blocks of four and eight without an inner loop: its instructions would cost as much as a term.
                        let together = ROWS * VECTORS <= $together;
                        if together && call.block > 8 {
                            quads!(
                                {
                                    for _ in 0..call.block / 4 {
                                        four!();
                                        ask!($crate::stream::prefetch);
                                    }
                                    for _ in 0..call.block % 4 {
                                        term!(0);
                                        forward!(1);
                                    }
                                },
                                {}
                            );
                        }
                        if call.block == 4 {
                            if together {
                                quads!({ four!(); }, { ask!($crate::stream::prefetch_near); });
                            }
                            while left > 4 {
                                four!();
                                finish!();
                            }
                        }
                        if call.block == 8 {
                            if together {
                                quads!({ four!(); four!(); }, { ask!($crate::stream::prefetch_near); });
                            }
                            while left > 8 {
                                four!();
                                four!();
                                finish!();
                            }
                        }
                        loop {
                            let length = left.min(call.block);
                            fours!(length / 4);
                            for _ in 0..length % 4 {
                                term!(0);
                                forward!(1);
                            }
                            if left <= call.block {
                                break;
                            }
                            finish!();
                        }
                    }
                    while blocks != 0 {
                        add!(call.counter.add(blocks.trailing_zeros() as usize * tile));
                        blocks &= blocks - 1;
                    }
                    for m in 0..call.merges {
                        add!((*call.merge.add(m)).offset(below * tile as isize));
                    }
                    let out = call.out.offset(below * call.out_tile);
                    for (i, row) in acc.iter().enumerate() {
                        for (j, x) in row.iter().enumerate() {
                            $store(out.offset(i as isize * call.out_row).add(j * $lanes), *x);
                        }
                    }
                }
            }
        }
    };
}
pub(crate) use microkernel;

/// Defines the table of a microkernel's instances: rows of tiles that are one or two vectors wide, of those that are one, and of
/// those that are one and need the left side packed.
macro_rules! table {
    ($table:ident, $number:ty, $name:ident, $copy:literal, [$($rows:literal)*], [$($slender:literal)*], [$($tall:literal)*]) => {
        pub static $table: $crate::gemm::kernel::Table<$number> = &[$([
            [$name::<$rows, 1, true, $copy>, $name::<$rows, 1, false, $copy>],
            [$name::<$rows, 2, true, $copy>, $name::<$rows, 2, false, $copy>],
        ],)* $([
            [$name::<$slender, 1, true, $copy>, $name::<$slender, 1, false, $copy>],
            [$crate::gemm::kernel::absent; 2],
        ],)* $([
            [$name::<$tall, 1, true, $copy>, $crate::gemm::kernel::absent],
            [$crate::gemm::kernel::absent; 2],
        ],)*];
    };
}
pub(crate) use table;

macro_rules! choose {
    ($name:ident, $number:ty, $portable:ident, $neon:ident, $avx2:ident, $avx512:ident, $low:ident, $tall:ident, $copying:ident, $bytes:literal) => {
        /// The microkernels of a level.
        pub fn $name(level: Level) -> Kernels<$number> {
            match level {
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Bf16 if *crate::simd::UP_TO_ZEN_4 => {
                    let slender = Some(Slender { terms: 64, few: 17, spread: 65 });
                    let (together, table) = ([240, 576 << 10], x86::$low);
                    Kernels {
                        lanes: 64 / $bytes,
                        slender,
                        floor: 4,
                        low: &[],
                        few: 33,
                        from_second: 256,
                        ways: 4,
                        depth: 512,
                        together,
                        table,
                        tall: Some(x86::$tall),
                        copying: Some(x86::$copying),
                    }
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx512 | Level::Avx512Bf16 => {
                    let (together, table) = ([240, 576 << 10], x86::$avx512);
                    Kernels {
                        lanes: 64 / $bytes,
                        slender: None,
                        floor: 4,
                        low: &[(8, 4)],
                        few: 11,
                        from_second: 256,
                        ways: 4,
                        depth: 512,
                        together,
                        table,
                        tall: None,
                        copying: None,
                    }
                }
                #[cfg(target_arch = "x86_64")]
                Level::Avx2 => {
                    let (together, table) = ([120, 288 << 10], x86::$avx2);
                    Kernels {
                        lanes: 32 / $bytes,
                        slender: None,
                        floor: 4,
                        low: &[(256, 4)],
                        few: 11,
                        from_second: 64,
                        ways: 3,
                        depth: 1024,
                        together,
                        table,
                        tall: None,
                        copying: None,
                    }
                }
                #[cfg(target_arch = "aarch64")]
                Level::Neon => {
                    let (together, table) = ([120, 288 << 10], neon::$neon);
                    Kernels {
                        lanes: 16 / $bytes,
                        slender: None,
                        floor: 4,
                        low: &[(32, 6)],
                        few: 11,
                        from_second: 256,
                        ways: 4,
                        depth: 512,
                        together,
                        table,
                        tall: None,
                        copying: None,
                    }
                }
                _ => {
                    let (together, table) = ([120, 288 << 10], portable::$portable);
                    Kernels {
                        lanes: 4,
                        slender: None,
                        floor: 1,
                        low: &[(32, 3)],
                        few: 11,
                        from_second: 256,
                        ways: 4,
                        depth: 512,
                        together,
                        table,
                        tall: None,
                        copying: None,
                    }
                }
            }
        }
    };
}

choose!(of_f32, f32, PORTABLE_F32, NEON_F32, AVX2_F32, AVX512_F32, LOW_F32, TALL_F32, LOW_COPYING_F32, 4);
choose!(of_f64, f64, PORTABLE_F64, NEON_F64, AVX2_F64, AVX512_F64, LOW_F64, TALL_F64, LOW_COPYING_F64, 8);

/// The microkernels of a level for pairs of bf16: see [`super::Real::pairs`].
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

#[cfg(test)]
mod tests {
    use super::super::Real;
    use super::*;
    use meshwork_graph::canonical::TreeSum;

    /// Numbers whose sums depend on every rounding and on the order.
    struct Numbers(u32);

    impl Numbers {
        fn next<T: Real>(&mut self) -> T {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            T::count((self.0 >> 8) as usize % 2003) / T::count((self.0 >> 20) as usize % 97 + 1)
        }

        fn some<T: Real>(&mut self, count: usize) -> Vec<T> {
            (0..count).map(|_| self.next()).collect()
        }
    }

    /// One tile size of a table, for some terms and blocks: every number is the canonical sum.
    fn check<T: Real + std::fmt::Debug>(
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
    fn check_table<T: Real + std::fmt::Debug>(table: Table<T>, lanes: usize, most: usize, copies: bool) {
        let cuts =
            [[1, 1], [9, 64], [8, 1], [7, 2], [23, 4], [64, 8], [65, 8], [100, 12], [61, 13], [144, 16], [300, 32]];
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
                check_table(x86::AVX2_F32, 8, 6, false);
                check_table(x86::AVX2_F64, 4, 6, false);
            }
            // A processor chooses one of the two; here both are checked.
            if Level::Avx512.is_available() {
                check_table(x86::AVX512_F32, 16, 12, false);
                check_table(x86::AVX512_F64, 8, 12, false);
                check_table(x86::LOW_F32, 16, 4, false);
                check_table(x86::LOW_F64, 8, 4, false);
                check_table(x86::TALL_F32, 16, 0, false);
                check_table(x86::TALL_F64, 8, 0, false);
                check_table(x86::LOW_COPYING_F32, 16, 4, true);
                check_table(x86::LOW_COPYING_F64, 8, 4, true);
            }
        }
    }
}
