//! The lines of the caches that a kernel asks for while it computes.

pub use crate::stream::LINE;
use std::mem::size_of;

/// Lines that a kernel asks for, at most: those of a result and of three partial matrices.
const LINES: usize = 96;

/// The lines of one call.
pub struct Ahead {
    pub lines: [*const u8; LINES],
    pub count: usize,
}

impl Ahead {
    pub fn new() -> Self {
        Ahead { lines: [std::ptr::null(); LINES], count: 0 }
    }

    /// Adds `count` lines, so many bytes apart, as long as there is room.
    #[inline]
    fn add(&mut self, first: *const u8, step: isize, count: usize) {
        let room = &mut self.lines[self.count..];
        let count = count.min(room.len());
        for (i, line) in room[..count].iter_mut().enumerate() {
            *line = first.wrapping_offset(i as isize * step);
        }
        self.count += count;
    }

    /// Adds the lines of a tile: first those that rows begin with, for sums of few terms end before all are asked for.
    /// Apart from its caller, whose loop small products run often.
    #[inline(never)]
    pub fn tile<T>(&mut self, tile: *const T, rows: usize, across: usize, step: isize) {
        for column in (0..across * size_of::<T>()).step_by(LINE) {
            self.add(tile.cast::<u8>().wrapping_add(column), step * size_of::<T>() as isize, rows);
        }
    }

    /// Adds the next `count` lines of a source, as long as there is room.
    #[inline(never)]
    pub fn some(&mut self, source: &mut Source, mut count: usize) {
        count = count.min(LINES - self.count);
        while count > 0 && source.advance() {
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
