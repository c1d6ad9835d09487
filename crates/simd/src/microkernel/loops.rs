//! The loops of a microkernel, for vectors of any instruction set: a macro, since functions that need an instruction set are
//! not made of generic ones.

use super::Call;

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
pub unsafe fn absent<T>(_: &Call<T>) {
    unreachable!("tiles of two vectors are no higher than `Kernels::rows`, and taller ones have packed left sides")
}

/// Does nothing, where compilers need no anchors.
pub fn anchor<T>(_: &mut T) {}

/// `for i in 0..count`, which is not 0, as compilers unroll it soonest: with iterators, or a condition before each pass, they took
/// half as long again for all of a microkernel.
macro_rules! each {
    ($i:ident < $count:expr, $body:block) => {{
        let mut $i = 0;
        loop {
            $body
            $i += 1;
            if $i == $count {
                break;
            }
        }
    }};
}
pub(crate) use each;

/// What is done for a tile of so many vectors or fewer; nothing at all for 0, which compilers need not even read.
macro_rules! few {
    ($vectors:expr, 0, $body:block) => {};
    ($vectors:expr, $most:literal, $body:block) => {
        if $vectors <= $most {
            $body
        }
    };
}
pub(crate) use few;

/// Defines a microkernel over vectors, and the table of its instances.
///
/// `$anchor` gets every sum that has been added to. It is no instruction, but compilers move neither the addition nor loads
/// across it. Without it LLVM loads the left side of four terms first, and then keeps that and sums of AVX-512's tiles in
/// memory: with 12 rows in place the kernel reached 65 % of what it does.
///
/// Tiles of up to `$together` vectors sum four blocks in registers, which takes three times as many: for a block, for
/// the one before, and for the pair before. Higher ones of up to `$paired` vectors sum two blocks of four or eight terms.
///
/// `$again` is whether a number of the left side is loaded for each vector, as an operand of its multiply-add.
macro_rules! microkernel {
    (
        $(#[$attribute:meta])* $name:ident: $number:ty, $vector:ty, $lanes:literal, $zero:expr, $load:path, $store:path, $splat:path, $fma:expr, $add:path, $anchor:path, $together:tt, $paired:tt, $again:literal
    ) => {
        $(#[$attribute])*
        #[allow(unused_unsafe, unused_macros, unused_labels)]
        unsafe fn $name<const ROWS: usize, const VECTORS: usize, const PANEL: bool, const COPY: bool>(call: &$crate::microkernel::Call<$number>) {
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
                    // Every vector of a tile.
                    macro_rules! all {
                        ($i:ident, $j:ident, $body:block) => {
                            $crate::microkernel::loops::each!($i < ROWS, { $crate::microkernel::loops::each!($j < VECTORS, $body) })
                        };
                    }
                    if !call.start.is_null() {
                        let start = call.start.offset(below * tile as isize);
                        all!(i, j, { acc[i][j] = $load(start.add((i * VECTORS + j) * $lanes)) });
                    }
                    let (first, right, mut copy) = (call.a.offset(below * call.a_tile), call.b.offset(below * call.b_tile), call.copy.offset(below * call.copy_tile));
                    // An address has a multiple of a distance in it, up to two of these: every third row of the left side, or
                    // the fourth of four terms, has a pointer of its own.
                    let mut a = [first; 3];
                    for (i, a) in a.iter_mut().enumerate() {
                        if i > 0 && i < if PANEL { 2 } else { ROWS.div_ceil(3) } {
                            *a = $crate::microkernel::loops::opaque(first.wrapping_offset(3 * i as isize * a_step));
                        }
                    }
                    let mut b = [right, $crate::microkernel::loops::opaque(right.wrapping_offset(3 * b_term))];
                    // Macros, because closures might not be inlined.
                    macro_rules! term {
                        ($k:literal) => {
                            let mut right = [zero; VECTORS];
                            $crate::microkernel::loops::each!(j < VECTORS, {
                                right[j] = $load(b[$k / 3].offset($k % 3 * b_term).add(j * $lanes));
                                if COPY {
                                    $store(copy.add(($k * VECTORS + j) * $lanes), right[j]);
                                }
                            });
                            let mut left = a[0].add($k);
                            $crate::microkernel::loops::each!(i < ROWS, {
                                let at = if PANEL {
                                    a[$k / 3].offset($k % 3 * a_step).add(i)
                                } else if ROWS <= 9 {
                                    a[i / 3].offset((i % 3) as isize * a_step).add($k)
                                } else {
                                    // Compilers do not unroll the loop if they have to find the pointers of so many rows.
                                    if i % 3 == 0 && i > 0 {
                                        left = $crate::microkernel::loops::opaque(left.offset(3 * a_step));
                                    }
                                    left.offset((i % 3) as isize * a_step)
                                };
                                let x = $splat(at);
                                $crate::microkernel::loops::each!(j < VECTORS, {
                                    let x = if $again && j > 0 { $splat($crate::microkernel::loops::opaque(at)) } else { x };
                                    acc[i][j] = fma(x, right[j], acc[i][j]);
                                    $anchor(&mut acc[i][j]);
                                });
                            });
                        };
                    }
                    macro_rules! add {
                        ($tile:expr) => {
                            let tile: *const $number = $tile;
                            all!(i, j, { acc[i][j] = $add($load(tile.add((i * VECTORS + j) * $lanes)), acc[i][j]) });
                        };
                    }
                    macro_rules! forward {
                        ($terms:literal) => {
                            // Compilers would keep a pointer for every row instead, most of them in memory.
                            a = a.map(|a| $crate::microkernel::loops::opaque(a.wrapping_offset($terms * if PANEL { a_step } else { 1 })));
                            b = b.map(|b| $crate::microkernel::loops::opaque(b.wrapping_offset($terms * b_term)));
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
                            while count > 0 && lines <= $crate::line::Lines::MOST {
                                four!();
                                ask!($crate::line::prefetch);
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
                            all!(i, j, {
                                $store(slot.add((i * VECTORS + j) * $lanes), acc[i][j]);
                                acc[i][j] = zero;
                            });
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
                                            all!(i, j, { acc[i][j] = $add($left[i][j], acc[i][j]) });
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
                        // Two blocks at once.
                        macro_rules! pairs {
                            ($block:block) => {
                                while left >= 2 * call.block {
                                    $block
                                    let one = acc;
                                    acc = [[zero; VECTORS]; ROWS];
                                    $block
                                    ask!($crate::line::prefetch_near);
                                    all!(i, j, { acc[i][j] = $add(one[i][j], acc[i][j]) });
                                    left -= 2 * call.block;
                                    if left == 0 {
                                        break 'blocks;
                                    }
                                    keep!(1);
                                    blocks += 2;
                                }
                            };
                        }
                        $crate::microkernel::loops::few!(ROWS * VECTORS, $together, {
                            if call.block > 8 {
                                quads!(
                                    {
                                        for _ in 0..call.block / 4 {
                                            four!();
                                            ask!($crate::line::prefetch);
                                        }
                                        for _ in 0..call.block % 4 {
                                            term!(0);
                                            forward!(1);
                                        }
                                    },
                                    {}
                                );
                            }
                        });
                        // Blocks of four and eight without an inner loop: its instructions would cost as much as a term.
                        if call.block == 4 {
                            $crate::microkernel::loops::few!(ROWS * VECTORS, $together, {
                                quads!({ four!(); }, { ask!($crate::line::prefetch_near); });
                            });
                            $crate::microkernel::loops::few!(ROWS * VECTORS, $paired, {
                                pairs!({ four!(); });
                            });
                            while left > 4 {
                                four!();
                                finish!();
                            }
                        }
                        if call.block == 8 {
                            $crate::microkernel::loops::few!(ROWS * VECTORS, $together, {
                                quads!({ four!(); four!(); }, { ask!($crate::line::prefetch_near); });
                            });
                            $crate::microkernel::loops::few!(ROWS * VECTORS, $paired, {
                                pairs!({ four!(); four!(); });
                            });
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
                    all!(i, j, { $store(out.offset(i as isize * call.out_row).add(j * $lanes), acc[i][j]) });
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
        /// Microkernels by rows, vectors and access.
        pub static $table: $crate::microkernel::Table<$number> = &[$([
            [$name::<$rows, 1, true, $copy>, $name::<$rows, 1, false, $copy>],
            [$name::<$rows, 2, true, $copy>, $name::<$rows, 2, false, $copy>],
        ],)* $([
            [$name::<$slender, 1, true, $copy>, $name::<$slender, 1, false, $copy>],
            [$crate::microkernel::loops::absent; 2],
        ],)* $([
            [$name::<$tall, 1, true, $copy>, $crate::microkernel::loops::absent],
            [$crate::microkernel::loops::absent; 2],
        ],)*];
    };
}
pub(crate) use table;
