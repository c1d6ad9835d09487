//! Passes over what taps give to many windows: a few taps at a time, for as many windows as stay in the first-level cache.

use super::phases::TOGETHER;
use std::ops::Range;

/// Windows of a pass.
const BLOCK: usize = 1024;

/// Blocks of a range, each a multiple of what passes take at a time; the last one may go beyond.
#[inline(always)]
pub fn blocks(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(BLOCK).map(move |start| {
        let count = (range.end - start).min(BLOCK).next_multiple_of(TOGETHER);
        start..start + count
    })
}

/// Calls `$name::<…, N, FIRST>(taps, rest…)` for all taps, up to four (`N`) at a time; `FIRST` for the first ones.
macro_rules! in_fours {
    ($taps:expr, $name:ident::<$($generic:tt),*>$args:tt) => {
        for (i, taps) in $taps.chunks(4).enumerate() {
            in_fours!(@match i == 0, taps, $name, [$($generic),*], $args, [1, 2, 3, 4])
        }
    };
    (@match $first:expr, $taps:ident, $name:ident, $generics:tt, $args:tt, [$($n:literal),*]) => {
        match ($first, $taps.len()) {
            $(
                (true, $n) => in_fours!(@call $name, $generics, $n, true, $taps, $args),
                (false, $n) => in_fours!(@call $name, $generics, $n, false, $taps, $args),
            )*
            (_, count) => unreachable!("{count} taps together"),
        }
    };
    (@call $name:ident, [$($generic:tt),*], $n:literal, $first:literal, $taps:ident, ($($arg:expr),*)) => {
        $name::<$($generic,)* $n, $first>(std::array::from_fn(|i| $taps[i]), $($arg),*)
    };
}
pub(super) use in_fours;
