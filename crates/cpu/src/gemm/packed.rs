//! A right operand that is packed once for all tasks, where many of them need it.

use super::Side;
use super::block::Chunks;
use super::pack::{SLACK, pack};
use super::real::{Element, Real};
use super::scratch::Arena;
use crate::Context;
use crate::operand::Shared;
use smallvec::{SmallVec, smallvec};
use std::ops::Range;

/// Numbers that are packed as one piece, about: a thread takes piece after piece.
const PIECE: usize = 16 << 10;

/// The panels of all columns, chunk of terms by chunk.
pub struct Packed<T> {
    data: *const T,
    width: usize,
    chunks: SmallVec<[Chunk; 4]>,
}

/// The panels of a chunk of terms.
#[derive(Clone)]
struct Chunk {
    terms: Range<usize>,
    /// Where the first one begins.
    start: usize,
}

// SAFETY: it is only read.
unsafe impl<T: Sync> Sync for Packed<T> {}

/// Terms that are between those of neighbouring panels: packing writes a little more than its panel.
fn between(width: usize) -> usize {
    SLACK.div_ceil(width)
}

/// Chunks of so many terms and columns, and the numbers of their panels.
fn cut(chunks: &Chunks, [terms, columns]: [usize; 2], width: usize) -> (SmallVec<[Chunk; 4]>, usize) {
    let (mut cut, mut start, mut first) = (SmallVec::new(), 0, 0);
    while first < terms {
        let length = chunks.at(first, terms);
        cut.push(Chunk { terms: first..first + length, start });
        start += (length + between(width)) * columns.next_multiple_of(width);
        first += length;
    }
    (cut, start)
}

/// Numbers that [`Packed::new`] writes for so many terms and columns.
pub fn numbers(chunks: &Chunks, size: [usize; 2], width: usize) -> usize {
    cut(chunks, size, width).1
}

impl<T: Real> Packed<T> {
    /// Packs all `terms` and `columns` of an operand, whose first element is at `data`, with all threads.
    ///
    /// # Safety
    /// The elements must be readable, and the processor able to run the level. The room in the arena is the result's as long
    /// as it lives.
    pub unsafe fn new<R: Element<Real = T>>(
        data: *const R,
        side: &Side,
        chunks: &Chunks,
        [terms, columns]: [usize; 2],
        width: usize,
        arena: &mut Arena,
        context: Context,
    ) -> Self {
        let (chunks, numbers) = cut(chunks, [terms, columns], width);
        let (data, room) = (Shared(data.cast_mut()), Shared(arena.take::<T>(numbers)));
        let across = (PIECE / chunks[0].terms.len()).next_multiple_of(width);
        let parts = columns.div_ceil(across);
        context.par.ranges(chunks.len() * parts, 1, &|pieces| {
            for piece in pieces {
                let (chunk, first) = (&chunks[piece / parts], piece % parts * across);
                let (mut lines, mut terms): (SmallVec<[isize; 256]>, SmallVec<[isize; 512]>) =
                    (smallvec![0; across.min(columns - first)], smallvec![0; chunk.terms.len()]);
                side.lines.fill(first, &mut lines);
                side.terms.fill(chunk.terms.start, &mut terms);
                let distance = (terms.len() + between(width)) * width;
                // SAFETY: the caller's promise; pieces have panels of their own.
                unsafe {
                    let out = { room }.0.add(chunk.start + first / width * distance);
                    pack(context.level, { data }.0.cast_const(), &lines, &terms, [width, distance], out);
                }
            }
        });
        Packed { data: room.0.cast_const(), width, chunks }
    }

    /// The panel of a chunk's terms, from `first` on, whose first column is `column`, and how many terms later the next one
    /// begins.
    pub fn panel(&self, first: usize, column: usize) -> (*const T, usize) {
        let chunk = self.chunks.iter().find(|chunk| chunk.terms.start == first).expect("the beginning of a chunk");
        let step = chunk.terms.len() + between(self.width);
        (self.data.wrapping_add(chunk.start + column * step), step)
    }
}
