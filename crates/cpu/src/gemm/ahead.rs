//! The lines of the caches that a kernel asks for while it computes.

use meshwork_simd::line::{LINE, Lines};
use std::mem::{MaybeUninit, size_of};

/// Runs of lines that a kernel asks for, at most.
pub const RUNS: usize = 64;

/// The lines of one call: runs, behind which is one of none.
pub struct Ahead {
    runs: [MaybeUninit<Lines>; RUNS + 1],
    count: usize,
}

impl Ahead {
    /// No lines.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Ahead { runs: [MaybeUninit::uninit(); RUNS + 1], count: 0 }
    }

    /// Forgets all lines.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// The first run.
    #[inline]
    pub fn runs(&mut self) -> *const Lines {
        self.runs[self.count].write(*Lines::NONE);
        self.runs.as_ptr().cast()
    }

    /// Adds a run, if there is room.
    #[inline]
    fn add(&mut self, first: *const u8, step: isize, count: usize) {
        debug_assert!(count <= Lines::MOST);
        if self.count < RUNS && count > 0 {
            self.runs[self.count].write(Lines { first, step, count });
            self.count += 1;
        }
    }

    /// Adds the lines of rows of `across` elements, `step` elements apart: first those that rows begin with, for sums of few
    /// terms end before all are asked for.
    #[inline]
    pub fn rows<T>(&mut self, first: *const T, rows: usize, across: usize, step: isize) {
        for end in ends(across * size_of::<T>()) {
            self.add(first.cast::<u8>().wrapping_add(end), step * size_of::<T>() as isize, rows);
        }
    }

    /// Adds the next `count` lines of a source, about, as long as there is room.
    #[inline]
    pub fn some(&mut self, source: &mut Source, mut count: usize) {
        while count > 0 && self.count < RUNS {
            match source {
                Source::Pieces(pieces) => {
                    if !pieces.advance() {
                        return;
                    }
                    let lines = (pieces.end - pieces.next).div_ceil(LINE).min(count);
                    self.add(pieces.first.with_addr(pieces.next), LINE as isize, lines);
                    pieces.next += lines * LINE;
                    count -= lines;
                }
                Source::Even(Even { first, step, count: left, bytes }) => {
                    let pieces = count.div_ceil(bytes.div_ceil(LINE)).min(*left);
                    for end in ends(*bytes) {
                        self.add(first.wrapping_add(end), *step, pieces);
                    }
                    *first = first.wrapping_offset(pieces as isize * *step);
                    *left -= pieces;
                    return;
                }
            }
        }
    }
}

/// The last bytes of a piece's lines, as if it began with one. Where it begins within a line, that one has come with the piece
/// before, which lies beside it, and its last line is the next piece's first one.
#[inline]
fn ends(bytes: usize) -> impl Iterator<Item = usize> {
    (0..bytes).step_by(LINE).map(move |start| (start + LINE).min(bytes) - 1)
}

/// Memory that will be read soon.
pub enum Source<'a> {
    /// Pieces that lie anywhere, line by line.
    Pieces(Pieces<'a>),
    /// Pieces at equal distances, the first lines of some before their second ones.
    Even(Even),
}

/// Pieces of so many bytes each, wherever they lie.
pub struct Pieces<'a> {
    first: *const u8,
    /// Where pieces begin, in elements of `size` bytes.
    pieces: &'a [isize],
    size: usize,
    bytes: usize,
    /// The next line of the first piece, and its end.
    next: usize,
    end: usize,
}

/// `count` pieces of so many bytes each, `step` bytes apart.
pub struct Even {
    first: *const u8,
    step: isize,
    count: usize,
    bytes: usize,
}

impl<'a> Source<'a> {
    /// Pieces of `length` elements each.
    pub fn new<S>(first: *const S, pieces: &'a [isize], length: usize) -> Self {
        let size = size_of::<S>();
        Source::Pieces(Pieces { first: first.cast(), pieces, size, bytes: length * size, next: 0, end: 0 })
    }

    /// `count` pieces of `length` elements each, `step` elements apart.
    pub fn even<S>(first: *const S, step: isize, count: usize, length: usize) -> Self {
        let size = size_of::<S>();
        Source::Even(Even { first: first.cast(), step: step * size as isize, count, bytes: length * size })
    }

    /// Nothing.
    pub fn none() -> Self {
        Source::even(std::ptr::null::<u8>(), 0, 0, 1)
    }

    /// Lines, about.
    pub fn lines(&self) -> usize {
        match self {
            Source::Pieces(Pieces { pieces, bytes, .. }) => pieces.len() * bytes.div_ceil(LINE),
            Source::Even(Even { count, bytes, .. }) => count * bytes.div_ceil(LINE),
        }
    }
}

impl Pieces<'_> {
    /// Goes on to the next piece at the end of one; says whether there was one.
    #[inline]
    fn advance(&mut self) -> bool {
        if self.next < self.end {
            return true;
        }
        let Some((piece, rest)) = self.pieces.split_first() else { return false };
        let start = self.first.wrapping_offset(piece * self.size as isize).addr();
        (self.pieces, self.next, self.end) = (rest, start / LINE * LINE, start + self.bytes);
        self.bytes > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Offsets of all bytes whose lines a source asks for, `share` at a time.
    fn asked(mut source: Source, memory: &[f32], share: usize) -> Vec<usize> {
        let mut ahead = Ahead::new();
        let mut found = Vec::new();
        for _ in 0..source.lines().div_ceil(share) {
            ahead.clear();
            ahead.some(&mut source, share);
            // SAFETY: these were written.
            for run in unsafe { ahead.runs[..ahead.count].assume_init_ref() } {
                let start = run.first.addr() - memory.as_ptr().addr();
                found.extend((0..run.count).map(|i| start.wrapping_add_signed(i as isize * run.step)));
            }
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn shares_of_a_source_are_each_of_its_lines_once() {
        let memory = vec![0f32; 4096];
        let first = memory.as_ptr();
        for share in [1, 2, 3, 7, 100] {
            let one = asked(Source::even(first, 16, 37, 16), &memory, share);
            let lines: Vec<usize> = (0..37).map(|line| line * LINE + LINE - 1).collect();
            assert_eq!(one, lines, "{share} lines of one piece");
            let two = asked(Source::even(first, 100, 9, 32), &memory, share);
            let ends = |piece: usize| [piece * 400 + LINE - 1, piece * 400 + 2 * LINE - 1];
            assert_eq!(two, (0..9).flat_map(ends).collect::<Vec<_>>(), "{share} lines of pieces of two");
            let narrow = asked(Source::even(first, 100, 9, 12), &memory, share);
            let ends: Vec<usize> = (0..9).map(|piece| piece * 400 + 47).collect();
            assert_eq!(narrow, ends, "{share} lines of pieces that are narrower");
            assert_eq!(asked(Source::none(), &memory, share), [0usize; 0]);
        }
    }
}
