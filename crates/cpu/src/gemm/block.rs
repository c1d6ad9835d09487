//! One range of rows, columns and terms of a product, on one thread.

use super::kernel::{Access, COUNTER, Call, Kernels};
use super::pack::{SLACK, pack};
use super::real::{Element, Real, same};
use super::scratch::{Arena, room};
use super::{Place, Side, Size};
use crate::multiversion;
use crate::simd::Level;
use std::ops::Range;

/// Terms of a chunk, at most: a panel of them stays in the first-level cache.
const DEPTH: usize = 512;

/// Rows whose panels stay in the second-level cache together, and whose results are not too far apart.
const ROWS: usize = 120;

/// Bytes of the left operand's panels that stay in the second-level cache while panels of the right one come and go.
const HELD: usize = 256 << 10;
/// Rows from which a panel of the right operand is packed just before its tiles, where the left one's stay.
const OFTEN: usize = 64;

/// Columns up to which the left operand's panels are read in place, if they stay in the first-level cache, and up to
/// which they are even if they do not: packing pays where they are read often.
const REUSE: [usize; 2] = [256, 128];

/// Columns from which rows of the left operand are packed, too: where they are read so often, it matters that they lie
/// together in the second-level cache and in the pages' table.
const AGAIN: usize = 1024;

/// Rows up to which the right operand's panels are read in place, if a panel takes little of the first-level cache.
const FEW: usize = 32;
/// Terms of such a panel, at most.
const SHALLOW: usize = 256;

/// Numbers of a result that the second-level cache does not keep beside the panels.
const FAR: usize = 1 << 16;

/// Lines that a kernel asks for while it computes, at most: those of a result and of three partial matrices.
const LINES: usize = 96;

/// Lines of a cache that are so many elements apart displace each other.
const CONFLICT: usize = 512;

/// Bytes of a line of the first-level cache.
const LINE: usize = 64;
/// Bytes of all its sets, one line each.
const PAGE: usize = 4096;
/// Lines of a set that panels read in place may take.
const WAYS: usize = 4;

/// How the terms are cut into chunks, whose panels are packed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// Terms of a block.
    pub block: usize,
    /// Terms of a chunk.
    pub terms: usize,
    /// A part of a block ends where a multiple of this ends.
    pub stretch: usize,
}

impl Chunks {
    /// Chunks of 2^c whole blocks, or parts of one long block. Parts stay within the runs of terms that lie side by
    /// side on the left, if these are long enough, so that the left operand is read in place.
    pub fn new(size: &Size) -> Self {
        let block = size.block;
        if block <= DEPTH {
            return Chunks { block, terms: block << (DEPTH / block).ilog2(), stretch: block };
        }
        let aligned = block.is_multiple_of(size.run.max(1)) && size.run >= DEPTH / 4;
        let stretch = if aligned { size.run } else { block };
        Chunks { block, terms: stretch.div_ceil(stretch.div_ceil(DEPTH)), stretch }
    }

    /// Whether chunks are parts of blocks.
    fn parts(&self) -> bool {
        self.terms < self.block
    }

    /// Whole partial matrices needed to sum `terms` terms.
    fn matrices(&self, terms: usize) -> usize {
        let leaves = terms.div_ceil(self.terms.max(self.block));
        let levels = if leaves > 1 { (leaves - 1).ilog2() as usize + 1 } else { 0 };
        levels + self.parts() as usize
    }

    /// The chunk that begins at `start`, both counted from an aligned block; `end` is where the terms end.
    fn at(&self, start: usize, end: usize) -> usize {
        let limit = if self.parts() { (start / self.stretch + 1) * self.stretch } else { end };
        (start + self.terms).min(limit).min(end) - start
    }
}

/// The bounds of what one call of [`compute`] works on, which give its scratch memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Rows, at most.
    pub rows: usize,
    /// Columns, at most.
    pub columns: usize,
    /// Terms, at most.
    pub terms: usize,
    /// Rows of a tile.
    pub height: usize,
    /// How the terms are cut.
    pub chunks: Chunks,
}

impl Bounds {
    fn depth(&self) -> usize {
        self.chunks.terms.min(self.terms)
    }

    /// Bytes of scratch memory for one call.
    pub fn bytes<T: Real>(&self, kernels: &Kernels<T>) -> usize {
        let mut rooms = 0;
        self.rooms(kernels, |bytes| rooms += bytes);
        rooms
    }

    fn rooms<T: Real>(&self, kernels: &Kernels<T>, mut next: impl FnMut(usize)) {
        let tile = self.height * kernels.columns();
        let rows = self.rows.next_multiple_of(self.height);
        let columns = self.columns.next_multiple_of(kernels.columns());
        next(room::<T>(rows * self.depth() + SLACK));
        next(room::<T>(columns * self.depth() + SLACK));
        next(room::<T>(rows * columns * self.chunks.matrices(self.terms)));
        next(room::<T>(tile * COUNTER));
        next(room::<T>(tile));
        for lines in [self.rows, self.rows, self.columns, self.columns, self.depth(), self.depth()] {
            next(room::<isize>(lines));
        }
    }
}

/// Where the left operand is.
#[derive(Clone, Copy)]
pub enum Left<'a, S: Element> {
    /// In memory.
    Elements(*const S, &'a Side),
    /// Packed into panels of the tile's height, each with all terms: see [`pack_left`].
    Panels(*const S::Real),
}

/// A product whose operands are known.
pub struct Product<'a, L: Element, O: Element<Real = L::Real>> {
    /// Its size.
    pub size: Size,
    /// The left operand.
    pub left: Left<'a, L>,
    /// Where the right operand's elements lie.
    pub right_side: &'a Side,
    /// The result.
    pub out: *mut O,
    /// Where its elements go.
    pub place: &'a Place,
}

/// Numbers that [`pack_left`] writes.
pub fn packed_left(size: &Size, height: usize) -> usize {
    size.rows.next_multiple_of(height) * size.terms + SLACK
}

/// Packs panels `panels` of the whole left operand for [`Left::Panels`].
///
/// # Safety
/// The elements must be readable, and `out` must have room for [`packed_left`] numbers. Panels must be packed in
/// ascending order or have a vector of slack: a panel's last store may reach into the next one.
pub unsafe fn pack_left<S: Element>(
    level: Level,
    data: *const S,
    side: &Side,
    size: &Size,
    height: usize,
    out: *mut S::Real,
) {
    let (mut rows, mut terms) = (vec![0; size.rows], vec![0; size.terms]);
    side.lines.fill(0, &mut rows);
    side.terms.fill(0, &mut terms);
    // SAFETY: the caller's promise.
    unsafe { pack(level, data, &rows, &terms, height, out) };
}

/// Whether the offsets are `step` apart.
fn evenly(offsets: &[isize]) -> Option<isize> {
    let step = match offsets {
        [first, second, ..] => second - first,
        _ => 1,
    };
    offsets.windows(2).all(|w| w[1] - w[0] == step).then_some(step)
}

/// A slice over room in scratch memory.
///
/// # Safety
/// The room must be there, and used by nobody else.
unsafe fn offsets<'a>(arena: &mut Arena, len: usize) -> &'a mut [isize] {
    let room: *mut isize = arena.take(len);
    // SAFETY: the caller's promise; scratch memory is initialised, and any bits are an offset.
    unsafe { std::slice::from_raw_parts_mut(room, len) }
}

/// Blocks of `step` rows that stay in the second-level cache, each with all columns of tiles.
fn tiles(rows: usize, columns: usize, step: usize, width: usize) -> impl Iterator<Item = (Range<usize>, usize)> {
    (0..rows)
        .step_by(step)
        .flat_map(move |row| (0..columns).step_by(width).map(move |column| (row..(row + step).min(rows), column)))
}

/// Whether the terms of a panel, `step` bytes apart, can be read in place again and again: they lie on lines of few sets
/// of the first-level cache where the step is a multiple of a large power of two, and panels of the other side need
/// the other ways.
fn resident(step: usize, terms: usize) -> bool {
    let sets = (PAGE >> step.trailing_zeros().min(PAGE.ilog2())).min(PAGE / LINE);
    (terms * step.min(LINE)).div_ceil(LINE) <= sets * WAYS
}

/// Whether panels whose terms are `step` elements apart may be read where they lie: not if they would drive each other
/// out of the first-level cache.
fn readable(step: isize) -> bool {
    !step.unsigned_abs().is_multiple_of(CONFLICT)
}

/// Computes the sums over `terms` (which begin at a block) for `rows` × `columns`.
///
/// # Safety
/// Operands must be readable (the right one at what `right` gives for a range of terms), the result writable and used by nobody else, the ranges within `bounds`, the processor
/// able to run `level`.
#[allow(clippy::too_many_arguments)]
pub unsafe fn compute<L: Element, R: Element<Real = L::Real>, O: Element<Real = L::Real>>(
    level: Level,
    product: &Product<L, O>,
    right: &mut dyn FnMut(Range<usize>) -> *const R,
    bounds: &Bounds,
    rows: Range<usize>,
    columns: Range<usize>,
    terms: Range<usize>,
    mut arena: Arena,
) {
    let kernels = L::Real::kernels(level);
    let (height, width) = (bounds.height, kernels.columns());
    let (row_count, column_count) = (rows.len(), columns.len());
    let (padded_rows, padded_columns) = (row_count.next_multiple_of(height), column_count.next_multiple_of(width));
    let depth = bounds.depth();
    let left_room: *mut L::Real = arena.take(padded_rows * depth + SLACK);
    let right_room: *mut L::Real = arena.take(padded_columns * depth + SLACK);
    let chunks = bounds.chunks;
    let matrices: *mut L::Real = arena.take(padded_rows * padded_columns * chunks.matrices(terms.len()));
    let counter: *mut L::Real = arena.take(height * width * COUNTER);
    let spare: *mut L::Real = arena.take(height * width);
    // SAFETY: rooms of this call.
    let (left_lines, right_lines, out_rows, out_columns, left_terms, right_terms) = unsafe {
        (
            offsets(&mut arena, row_count),
            offsets(&mut arena, column_count),
            offsets(&mut arena, row_count),
            offsets(&mut arena, column_count),
            offsets(&mut arena, depth),
            offsets(&mut arena, depth),
        )
    };
    if let Left::Elements(_, side) = product.left {
        side.lines.fill(rows.start, left_lines);
    }
    product.right_side.lines.fill(columns.start, right_lines);
    product.place.rows.fill(rows.start, out_rows);
    product.place.columns.fill(columns.start, out_columns);
    let out_row = evenly(out_rows);
    let store = Store { out: product.out, rows: out_rows, columns: out_columns };

    let matrix = padded_rows * padded_columns;
    let far = matrix >= FAR;
    let mut start = 0;
    while start < terms.len() {
        let length = chunks.at(start, terms.len());
        let first = terms.start + start;
        let (left_terms, right_terms) = (&mut left_terms[..length], &mut right_terms[..length]);
        product.right_side.terms.fill(first, right_terms);
        let data = right(first..first + length);
        let beside = match (evenly(right_lines), evenly(right_terms)) {
            (Some(1), Some(step))
                if same::<R, R::Real>() && row_count <= FEW && length <= SHALLOW && readable(step) =>
            {
                column_count.is_multiple_of(kernels.lanes).then_some(step)
            }
            _ => None,
        };
        // Each panel of the right side is needed once where those of the left side stay: it is packed in its turn.
        let in_turn = row_count >= OFTEN && row_count * length * size_of::<L::Real>() <= HELD;
        let step = if in_turn { padded_rows } else { (ROWS / height).max(1) * height };
        // The first panel of the right side, the distance of the panels' columns and that of their terms.
        let (right_panels, right_column, right_term) = match beside {
            // SAFETY: the first element.
            Some(step) => (unsafe { data.offset(right_lines[0] + right_terms[0]).cast() }, 1, step),
            None if in_turn => (right_room.cast_const(), 0, width as isize),
            None => {
                // SAFETY: rooms of this call, operands of the caller.
                unsafe { pack(level, data, right_lines, right_terms, width, right_room) };
                (right_room.cast_const(), length, width as isize)
            }
        };
        let panels = match product.left {
            Left::Panels(data) => Panels {
                // SAFETY: term `first` of the panels, the first of which has row `rows.start`.
                data: unsafe { data.add((rows.start / height) * height * product.size.terms + first * height) },
                panel: (height * product.size.terms) as isize,
                step: height as isize,
                access: Access::Panel,
            },
            Left::Elements(data, side) => {
                side.terms.fill(first, left_terms);
                match (evenly(left_lines), evenly(left_terms)) {
                    (Some(row), Some(1)) if same::<L, L::Real>() && column_count < AGAIN => Panels {
                        // SAFETY: the first element.
                        data: unsafe { data.offset(left_lines[0] + left_terms[0]).cast() },
                        panel: row * height as isize,
                        step: row,
                        access: Access::Rows,
                    },
                    (Some(row), Some(1)) if size_of::<L>() < size_of::<L::Real>() && column_count < AGAIN => {
                        // SAFETY: the first element; rows of this call, and room for their terms.
                        unsafe {
                            let first = data.offset(left_lines[0] + left_terms[0]);
                            widen(level, &Narrow { first, row, count: row_count, terms: length, out: left_room });
                        }
                        Panels {
                            data: left_room,
                            panel: (height * length) as isize,
                            step: length as isize,
                            access: Access::Rows,
                        }
                    }
                    (Some(1), Some(step))
                        if same::<L, L::Real>()
                            && (column_count <= REUSE[1] && readable(step)
                                || column_count <= REUSE[0]
                                    && resident(step.unsigned_abs() * size_of::<L>(), length)) =>
                    {
                        Panels {
                            // SAFETY: the first element.
                            data: unsafe { data.offset(left_lines[0] + left_terms[0]).cast() },
                            panel: height as isize,
                            step,
                            access: Access::Panel,
                        }
                    }
                    _ => {
                        // SAFETY: as for the right side.
                        unsafe { pack(level, data, left_lines, left_terms, height, left_room) };
                        Panels {
                            data: left_room,
                            panel: (height * length) as isize,
                            step: height as isize,
                            access: Access::Panel,
                        }
                    }
                }
            }
        };

        // What becomes of this chunk's sums: see the module.
        let end = start + length;
        let last = end == terms.len();
        let (leaf, begins, ends) = if chunks.parts() {
            (start / chunks.block, start.is_multiple_of(chunks.block), last || end.is_multiple_of(chunks.block))
        } else {
            (start / chunks.terms, true, true)
        };
        let carry = chunks.matrices(terms.len()) - chunks.parts() as usize;
        let merged: u32 = match (ends, last) {
            (false, _) => 0,
            (true, true) => leaf as u32,
            (true, false) => (1 << leaf.trailing_ones()) - 1,
        };
        let target = match (ends, last) {
            (false, _) => Some(carry),
            (true, true) => None,
            (true, false) => Some(leaf.trailing_ones() as usize),
        };

        let mut merge = [std::ptr::null::<L::Real>(); usize::BITS as usize];
        let mut ahead = Ahead::new();
        for (block, column) in tiles(row_count, column_count, step, width) {
            let wide = width.min(column_count - column);
            if in_turn {
                // SAFETY: as above; `beside` is for fewer rows.
                unsafe { pack(level, data, &right_lines[column..column + wide], right_terms, width, right_room) };
            }
            let vectors = wide.div_ceil(kernels.lanes);
            let across = vectors * kernels.lanes;
            let direct = same::<O, O::Real>()
                && across == wide
                && out_row.is_some()
                && evenly(&out_columns[column..column + wide]) == Some(1);
            // SAFETY: the place of a row's tile in a partial matrix.
            let tile =
                |slot: usize, row: usize| unsafe { matrices.add(slot * matrix + column * padded_rows + row * width) };
            // SAFETY: panels and rooms as set up above.
            let mut call = unsafe {
                Call {
                    terms: length,
                    block: chunks.block,
                    a: panels.data.offset((block.start / height) as isize * panels.panel),
                    a_step: panels.step,
                    b: right_panels.add(column * right_column),
                    b_term: right_term,
                    counter,
                    start: std::ptr::null(),
                    merge: merge.as_ptr(),
                    merges: 0,
                    out: spare,
                    out_row: across as isize,
                    ahead: ahead.lines.as_ptr(),
                    aheads: 0,
                }
            };
            let mut row = block.start;
            while row < block.end {
                let high = height.min(row_count - row);
                if !begins {
                    call.start = tile(carry, row);
                }
                let mut bits = merged;
                call.merges = 0;
                while bits != 0 {
                    merge[call.merges] = tile(bits.trailing_zeros() as usize, row);
                    call.merges += 1;
                    bits &= bits - 1;
                }
                call.merge = merge.as_ptr();
                match target {
                    Some(slot) => call.out = tile(slot, row),
                    // SAFETY: the tile's first element.
                    None if direct => unsafe {
                        call.out = product.out.offset(out_rows[row] + out_columns[column]).cast();
                        call.out_row = out_row.unwrap_or(0);
                    },
                    None => {}
                }
                if far {
                    // The kernel needs these last: they come while it computes.
                    ahead.count = 0;
                    merge[..call.merges].iter().for_each(|&tile| ahead.tile(tile, high, across, across as isize));
                    ahead.tile(call.out, high, across, call.out_row);
                    (call.ahead, call.aheads) = (ahead.lines.as_ptr(), ahead.count);
                }
                // SAFETY: as above.
                unsafe {
                    kernels.table[high - 1][vectors - 1][panels.access as usize](&call);
                    if target.is_none() && !direct {
                        store.tile(level, spare, across, row..row + high, column..column + wide);
                    }
                }
                call.a = call.a.wrapping_offset(panels.panel);
                row += height;
            }
        }
        start = end;
    }
}

/// The lines that a kernel asks for while it computes.
struct Ahead {
    lines: [*const u8; LINES],
    count: usize,
}

impl Ahead {
    fn new() -> Self {
        Ahead { lines: [std::ptr::null(); LINES], count: 0 }
    }

    /// Adds the lines of a tile, as long as there is room: first those that rows begin with, for sums of few terms end
    /// before all are asked for. Apart from its caller, whose loop small products run often.
    #[inline(never)]
    fn tile<T>(&mut self, tile: *const T, rows: usize, across: usize, step: isize) {
        for column in (0..across).step_by(LINE / size_of::<T>()) {
            for row in 0..rows as isize {
                let Some(line) = self.lines.get_mut(self.count) else { return };
                *line = tile.wrapping_offset(row * step).wrapping_add(column).cast();
                self.count += 1;
            }
        }
    }
}

/// Panels of the left side as the kernels read them.
struct Panels<T> {
    data: *const T,
    panel: isize,
    step: isize,
    access: Access,
}

/// Rows of narrow elements, `row` apart, and room for as many numbers.
struct Narrow<S: Element> {
    first: *const S,
    row: isize,
    count: usize,
    terms: usize,
    out: *mut S::Real,
}

multiversion! {
    /// Widens rows, one behind the other.
    fn widen<S: Element>(rows: &Narrow<S>) = widen_of;
}

#[inline(always)]
fn widen_of<S: Element>(rows: &Narrow<S>) {
    let &Narrow { first, row, count, terms, out } = rows;
    for i in 0..count {
        // SAFETY: who names the rows promises that they are readable, and the room writable and used by nobody else.
        let (from, to) = unsafe {
            let from = std::slice::from_raw_parts(first.offset(i as isize * row), terms);
            (from, std::slice::from_raw_parts_mut(out.add(i * terms), terms))
        };
        to.iter_mut().zip(from).for_each(|(to, x)| *to = x.widen());
    }
}

/// Where finished tiles go when a kernel cannot store them itself.
struct Store<'a, O> {
    out: *mut O,
    rows: &'a [isize],
    columns: &'a [isize],
}

impl<O: Element> Store<'_, O> {
    /// Stores a part of a tile whose rows are `across` apart.
    ///
    /// # Safety
    /// The tile must be readable and its part of the result writable, the processor able to run `level`.
    unsafe fn tile(
        &self,
        level: Level,
        tile: *const O::Real,
        across: usize,
        rows: Range<usize>,
        columns: Range<usize>,
    ) {
        let (rows, columns) = (&self.rows[rows], &self.columns[columns]);
        if evenly(columns) == Some(1) && columns.len() > 1 {
            return store_rows(
                level,
                &Rows { tile, across, out: self.out, rows, first: columns[0], width: columns.len() },
            );
        }
        // SAFETY: the caller's promise.
        unsafe {
            if evenly(rows) == Some(1) && rows.len() > 1 {
                for (j, &column) in columns.iter().enumerate() {
                    let out = self.out.offset(rows[0] + column);
                    for i in 0..rows.len() {
                        *out.add(i) = O::narrow(*tile.add(i * across + j));
                    }
                }
                return;
            }
            for (i, &row) in rows.iter().enumerate() {
                let out = self.out.offset(row);
                for (j, &column) in columns.iter().enumerate() {
                    *out.offset(column) = O::narrow(*tile.add(i * across + j));
                }
            }
        }
    }
}

/// A part of a tile whose columns lie side by side in the result.
struct Rows<'a, O: Element> {
    tile: *const O::Real,
    across: usize,
    out: *mut O,
    rows: &'a [isize],
    /// The first column, and their number.
    first: isize,
    width: usize,
}

multiversion! {
    /// Stores a part of a tile.
    fn store_rows<O: Element>(part: &Rows<'_, O>) = store_rows_of;
}

#[inline(always)]
fn store_rows_of<O: Element>(part: &Rows<'_, O>) {
    match part.width {
        16 => store_rows_as::<O, 16>(part),
        8 => store_rows_as::<O, 8>(part),
        _ => store_rows_as::<O, 1>(part),
    }
}

#[inline(always)]
fn store_rows_as<O: Element, const LANES: usize>(part: &Rows<'_, O>) {
    for (i, &row) in part.rows.iter().enumerate() {
        for j in (0..part.width).step_by(LANES) {
            // SAFETY: who made the part promised that it can be read and written; an array has the alignment of its
            // elements.
            unsafe {
                let numbers: [O::Real; LANES] = *part.tile.add(i * part.across + j).cast();
                let out: *mut [O; LANES] = part.out.offset(row + part.first + j as isize).cast();
                *out = numbers.map(O::narrow);
            }
        }
    }
}
