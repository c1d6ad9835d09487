//! The lines of the caches that a kernel asks for while it computes.

pub use crate::stream::LINE;
use std::mem::size_of;

/// Lines so many bytes apart.
#[derive(Clone, Copy)]
pub struct Lines {
    /// The first of them.
    pub first: *const u8,
    /// Their distance.
    pub step: isize,
    /// How many there are.
    pub count: usize,
}

impl Lines {
    /// Behind the lines that are needed: one that is there, again and again.
    pub const NONE: &Lines = &Lines { first: (&raw const THERE).cast(), step: 0, count: usize::MAX };
}

/// What is asked for when nothing is needed.
static THERE: u8 = 0;

// SAFETY: addresses, which nobody follows but the processor.
unsafe impl Sync for Lines {}

/// Runs of lines that a kernel asks for, at most.
pub const RUNS: usize = 64;

/// The lines of one call: runs, behind which is one of none.
pub struct Ahead {
    runs: [Lines; RUNS + 1],
    count: usize,
}

impl Ahead {
    /// No lines.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Ahead { runs: [*Lines::NONE; RUNS + 1], count: 0 }
    }

    /// Forgets all lines.
    #[inline]
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// The first run.
    #[inline]
    pub fn runs(&mut self) -> *const Lines {
        self.runs[self.count] = *Lines::NONE;
        self.runs.as_ptr()
    }

    /// Adds a run, if there is room.
    #[inline]
    fn add(&mut self, first: *const u8, step: isize, count: usize) {
        if self.count < RUNS && count > 0 {
            self.runs[self.count] = Lines { first, step, count };
            self.count += 1;
        }
    }

    /// Adds the lines of rows of `across` elements, `step` elements apart: first those that rows begin with, for sums of few
    /// terms end before all are asked for.
    #[inline]
    pub fn rows<T>(&mut self, first: *const T, rows: usize, across: usize, step: isize) {
        for column in (0..across * size_of::<T>()).step_by(LINE) {
            self.add(first.cast::<u8>().wrapping_add(column), step * size_of::<T>() as isize, rows);
        }
    }

    /// Adds the next `count` lines of a source, as long as there is room.
    #[inline]
    pub fn some(&mut self, source: &mut Source, mut count: usize) {
        while count > 0 && self.count < RUNS && source.advance() {
            let lines = (source.end - source.next).div_ceil(LINE).min(count);
            self.add(source.first.with_addr(source.next), LINE as isize, lines);
            source.next += lines * LINE;
            count -= lines;
        }
    }
}

/// Memory that will be read soon: pieces of so many bytes each, line by line.
pub struct Source<'a> {
    first: *const u8,
    /// Where pieces begin, in elements of `size` bytes.
    pieces: &'a [isize],
    size: usize,
    bytes: usize,
    /// The next line of the first piece, and its end.
    next: usize,
    end: usize,
}

impl<'a> Source<'a> {
    /// Pieces of `length` elements each.
    pub fn new<S>(first: *const S, pieces: &'a [isize], length: usize) -> Self {
        let size = size_of::<S>();
        Source { first: first.cast(), pieces, size, bytes: length * size, next: 0, end: 0 }
    }

    /// Nothing.
    pub fn none() -> Self {
        Source::new(std::ptr::null::<u8>(), &[], 0)
    }

    /// Lines, about.
    pub fn lines(&self) -> usize {
        self.pieces.len() * self.bytes.div_ceil(LINE)
    }

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
