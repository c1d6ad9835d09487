//! One range of rows, columns and terms of a product, on one thread.

use super::ahead::{Ahead, RUNS, Source};
use super::beside::{Beside, are_beside};
use super::left::{self, GAP, Left, distance};
use super::offsets::evenly;
use super::pack::SLACK;
use super::packed::Packed;
use super::pairs::{Factor, Pairs};
use super::real::{Element, Real, same};
use super::right;
use super::scratch::{Arena, room};
use super::store::Store;
use super::tile::Tile;
use super::{Place, Side, Size};
use crate::Level;
use meshwork_simd::line::{LINE, Lines};
use meshwork_simd::microkernel::{COUNTER, Call, Kernels, SILENT, WORTH_ASKING};
use std::ops::Range;

/// Numbers of the left operand from which the first blocks of its rows are small.
const LARGE: usize = 1 << 14;

/// Runs of lines that a tile asks for beside those of its results, about: of the next block's rows and the next panel.
const OTHERS: usize = 4;

/// Numbers of a result that the second-level cache does not keep beside the panels.
pub const FAR: usize = 1 << 16;

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
    /// Chunks of at most `depth` terms: 2^c whole blocks, or parts of one long block. Parts stay within the runs of
    /// terms that lie side by side on the left, if these are long enough, so that the left operand is read in place.
    pub fn new(size: &Size, depth: usize) -> Self {
        let block = size.block;
        if block <= depth {
            return Chunks { block, terms: block << (depth / block).ilog2(), stretch: block };
        }
        let aligned = block.is_multiple_of(size.run.max(1)) && size.run >= depth / 4;
        let stretch = if aligned { size.run } else { block };
        Chunks { block, terms: stretch.div_ceil(stretch.div_ceil(depth)), stretch }
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
    pub fn at(&self, start: usize, end: usize) -> usize {
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
    /// A tile.
    pub tile: Tile,
    /// Rows of the left side whose panels stay in the second-level cache together.
    pub together: usize,
    /// Bytes of panels that do.
    pub held: usize,
    /// How the terms are cut.
    pub chunks: Chunks,
}

impl Bounds {
    /// Bounds of so many rows, columns and terms.
    pub fn new<T>(kernels: &Kernels<T>, [rows, columns, terms]: [usize; 3], tile: Tile, chunks: Chunks) -> Self {
        let [most, held] = kernels.together;
        let together = most.min(held / size_of::<T>() / chunks.terms.min(terms).max(1));
        Bounds { rows, columns, terms, tile, together: (together / tile.rows).max(1) * tile.rows, held, chunks }
    }

    fn depth(&self) -> usize {
        self.chunks.terms.min(self.terms)
    }

    /// Numbers of the left side's panels that are needed at a time, for so many rows: those of a block, or all if they
    /// are few.
    fn left<T>(&self, rows: usize) -> usize {
        let (rows, depth) = (rows.next_multiple_of(self.tile.rows), distance(self.depth()));
        // Rows of fewer terms are the more, and each has a gap behind it.
        let held = self.held / size_of::<T>() + rows * GAP + self.tile.rows * depth;
        (rows.min(self.together) * depth).max((rows * depth).min(held)) + SLACK
    }

    /// Bytes of scratch memory for one call.
    pub fn bytes<T: Real>(&self) -> usize {
        let mut rooms = 0;
        self.rooms::<T>(|bytes| rooms += bytes);
        rooms
    }

    fn rooms<T: Real>(&self, mut next: impl FnMut(usize)) {
        let Tile { rows: height, columns: width, .. } = self.tile;
        let rows = self.rows.next_multiple_of(height);
        let columns = self.columns.next_multiple_of(width);
        next(room::<T>(self.left::<T>(self.rows)));
        next(room::<T>(columns * self.depth() + SLACK));
        next(room::<T>(rows * columns * self.chunks.matrices(self.terms)));
        next(room::<T>(height * width * COUNTER));
        next(room::<T>(height * width));
        next(room::<T>(height * width));
        next(room::<T>(finished_rows(height) * width));
        for lines in [self.rows, self.rows, self.columns, self.columns, self.depth(), self.depth()] {
            next(room::<isize>(lines));
        }
    }
}

/// A part of a product's result.
#[derive(Clone, Debug)]
pub struct Part {
    /// The number of the product.
    pub product: usize,
    /// Its rows.
    pub rows: Range<usize>,
    /// Its columns.
    pub columns: Range<usize>,
}

/// Takes parts of results as they are finished, which are then not stored.
pub trait Finish<O>: Sync {
    /// The part is finished: its elements are `steps` apart from row to row and from column to column, one of which is 1, in
    /// room that is used again afterwards.
    fn take(&self, part: Part, first: *mut O, steps: [usize; 2]);
}

/// Rows of tiles that are finished together, about. Where a result is computed transposed they are columns, of which epilogues
/// take no more.
const TOGETHER: usize = 64;

/// Rows of tiles of this height that are finished together.
fn finished_rows(height: usize) -> usize {
    (TOGETHER / height).max(1) * height
}

/// A product whose operands are known.
pub struct Product<'a, L: Element, O: Element<Real = L::Real>> {
    /// Its size.
    pub size: Size,
    /// The left operand.
    pub left: Left<'a, L>,
    /// Where the right operand's elements lie.
    pub right_side: &'a Side,
    /// The right operand, if it is packed.
    pub packed: Option<&'a Packed<L::Real>>,
    /// The result.
    pub out: *mut O,
    /// Where its elements go.
    pub place: &'a Place,
    /// Whether tiles follow each other upwards. Processors bring lines beyond the last tile, which are better nobody's than
    /// those that another thread writes below.
    pub upwards: bool,
    /// What takes parts of the result as they are finished, and the number of the product; their tiles go downwards.
    pub finish: Option<(&'a dyn Finish<O>, usize)>,
    /// Whether sums are at last added to +0, which makes +0 of −0.
    pub from_zero: bool,
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

/// Cuts rows into blocks of at most `most` (a multiple of the height of a tile, or all of them), about equal.
struct RowBlocks {
    rows: Range<usize>,
    most: usize,
    height: usize,
    /// Rows of the next block, at most.
    limit: usize,
}

impl RowBlocks {
    /// Where blocks `grow`, the first ones are small: nothing has asked for their operand, which the next one's comes during.
    fn new(rows: usize, most: usize, height: usize, grow: bool) -> Self {
        RowBlocks { rows: 0..rows, most, height, limit: if grow { 2 * height } else { most } }
    }
}

impl Iterator for RowBlocks {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        if self.rows.is_empty() {
            return None;
        }
        let (start, left) = (self.rows.start, self.rows.len());
        let even = left.div_ceil(left.div_ceil(self.most)).next_multiple_of(self.height);
        let length = if self.limit < self.most { self.limit } else { even };
        self.rows.start = start + length.min(left);
        self.limit = self.limit.saturating_mul(2);
        Some(start..self.rows.start)
    }
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
    let Tile { rows: height, columns: width, few, is_tall, .. } = bounds.tile;
    let alone = kernels.tall.filter(|_| is_tall).unwrap_or(kernels.table);
    let (first_row, row_count, column_count) = (rows.start, rows.len(), columns.len());
    let (padded_rows, padded_columns) = (row_count.next_multiple_of(height), column_count.next_multiple_of(width));
    let depth = bounds.depth();
    let left_room: *mut L::Real = arena.take(bounds.left::<L::Real>(row_count));
    let right_room: *mut L::Real = arena.take(padded_columns * depth + SLACK);
    let chunks = bounds.chunks;
    let way = if product.upwards && product.finish.is_none() { -1 } else { 1 };
    let matrices: *mut L::Real = arena.take(padded_rows * padded_columns * chunks.matrices(terms.len()));
    let counter: *mut L::Real = arena.take(height * width * COUNTER);
    let spare: *mut L::Real = arena.take(height * width);
    let zeros: *mut L::Real = arena.take(height * width);
    if product.from_zero {
        // SAFETY: room of this call; zeros are numbers of any kind.
        unsafe { zeros.write_bytes(0, height * width) };
    }
    let span = finished_rows(height);
    let finished: *mut O = arena.take::<L::Real>(span * width).cast();
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
    let left_line = match product.left {
        Left::Elements(_, side) => side.lines.fill(rows.start, left_lines),
        Left::Panels(_) => None,
    };
    let right_line = product.right_side.lines.fill(columns.start, right_lines);
    let in_rows = product.place.columns.stride() == Some(1) && product.place.columns.len > 1;
    let (out, finished_steps) = match product.finish {
        None => (product.out, None),
        Some(_) => (finished, Some(if in_rows { [width, 1] } else { [1, span] })),
    };
    let [out_row, out_column] = match finished_steps {
        None => [product.place.rows.fill(rows.start, out_rows), product.place.columns.fill(columns.start, out_columns)],
        // Tiles go to room for `span` rows and `width` columns, again and again.
        Some(steps) => {
            let spread = |offsets: &mut [isize], period: usize, step: usize| {
                offsets.iter_mut().enumerate().for_each(|(i, offset)| *offset = (i % period * step) as isize);
                Some(step as isize)
            };
            [spread(out_rows, span, steps[0]), spread(out_columns, width, steps[1])]
        }
    };
    let store = Store { out, rows: out_rows, columns: out_columns, row: out_row, column: out_column };

    let matrix = padded_rows * padded_columns;
    let far = matrix >= FAR;
    let mut pairs = match product.left {
        Left::Elements(..) if product.packed.is_none() => Pairs::new::<L, R>(level, &chunks, terms.len()),
        _ => None,
    };
    // Numbers of the panels for so many terms.
    let in_pairs = pairs.is_some();
    let numbers = |terms: usize| if in_pairs { terms.div_ceil(2) } else { terms };
    let mut merge = [std::ptr::null::<L::Real>(); u32::BITS as usize + 1];
    let mut ahead = Ahead::new();
    let mut start = 0;
    while start < terms.len() {
        let length = chunks.at(start, terms.len());
        let first = terms.start + start;
        let (left_terms, right_terms) = (&mut left_terms[..length], &mut right_terms[..length]);
        let right_term_step = product.right_side.terms.fill(first, right_terms);
        if let Some(pairs) = &mut pairs
            && !chunks.parts()
        {
            pairs.begin();
        }
        let is_short = numbers(chunks.block) <= SILENT;
        let beside = start == 0
            && length == terms.len()
            && store.place(0, 0).is_some()
            && product.finish.is_none()
            && !product.from_zero
            && are_beside::<L::Real>([row_count, column_count], numbers(length));
        let elements = right::Elements {
            data: right(first..first + length),
            columns: right_lines,
            terms: right_terms,
            steps: [right_line, right_term_step],
        };
        let readers = right::Readers {
            tile: bounds.tile,
            kernels,
            rows: row_count,
            stay: row_count * length * size_of::<L::Real>() <= bounds.held,
            is_short,
            at_once: beside,
        };
        let packed = product.packed.map(|packed| packed.panel(first, columns.start));
        // SAFETY: elements of the caller, room of this call.
        let right_side = unsafe { right::Chunk::new(level, elements, &readers, numbers(length), packed, right_room) };
        let left = match product.left {
            Left::Panels(data) => {
                let distance = left::panel_distance(product.size.terms, height);
                // SAFETY: term `first` of the panels, the first of which has row `rows.start`.
                let data = unsafe { data.add(rows.start / height * distance + first * height) };
                left::Chunk::packed(level, height, data, distance as isize)
            }
            Left::Elements(data, side) => {
                let steps = [left_line, side.terms.fill(first, left_terms)];
                left::Chunk::elements(
                    level,
                    (&kernels, &bounds.tile),
                    data,
                    [left_lines, left_terms],
                    steps,
                    column_count,
                    in_pairs,
                )
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

        // Where blocks are short results come as fast as they are needed, and what is asked for beyond the last rows of a task
        // is another thread's. To ask there for panels that are read in place took longer than to wait for them.
        let (far, is_worth) =
            (far && !is_short, numbers(length) >= WORTH_ASKING && !(is_short && right_side.is_there()));
        let asking = kernels.asking(numbers(chunks.block), height * width / kernels.lanes).filter(|_| is_worth);
        let asks = asking.is_some();
        let in_turn = right_side.comes_in_turn();
        let grow = asks
            && !in_turn
            && !is_short
            && !right_side.is_there()
            && row_count.div_ceil(height) > few
            && left.numbers() >= LARGE
            && column_count > 4 * width;
        let most = if in_turn { row_count } else { bounds.together };
        let mut blocks = RowBlocks::new(row_count, most, height, grow).peekable();
        while let Some(block) = blocks.next() {
            let next_block = blocks.peek();
            // SAFETY: the operand is the caller's, the room this call's.
            let panels = unsafe { left.panels(&block, left_room) };
            if let Some(pairs) = &mut pairs {
                pairs.meet(Factor::Left, panels.span);
            }
            let mut call = Call {
                tiles: 1,
                way: 1,
                terms: numbers(length),
                block: numbers(chunks.block),
                a: panels.data,
                a_step: panels.step,
                a_tile: 0,
                b: std::ptr::null(),
                b_term: 0,
                b_tile: 0,
                copy: std::ptr::null_mut(),
                copy_tile: 0,
                counter,
                start: std::ptr::null(),
                merge: merge.as_ptr(),
                merges: 0,
                out: spare,
                out_row: 0,
                out_tile: 0,
                ahead: Lines::NONE,
            };
            if beside {
                // SAFETY: as above.
                unsafe {
                    if block.start == 0 {
                        (0..column_count).step_by(width).for_each(|column| right_side.come(column, &mut pairs));
                    }
                    let table = pairs.as_ref().map_or(alone, Pairs::table);
                    let lanes = kernels.lanes;
                    let (tile, columns) = (bounds.tile, column_count);
                    Beside { level, right: &right_side, lanes, tile, columns, table, store: &store, spare }
                        .compute(&mut call, &panels, block);
                }
                continue;
            }
            // The rows of the next block come while this one is computed.
            let tiles = block.len().div_ceil(height);
            let mut source = next_block.map_or_else(Source::none, |next| left.source(next));
            let share = source.lines().div_ceil(tiles * column_count.div_ceil(width));
            for column in (0..column_count).step_by(width) {
                let wide = width.min(column_count - column);
                let is_first = block.start == 0;
                if is_first {
                    // SAFETY: as above.
                    unsafe { right_side.come(column, &mut pairs) };
                }
                let table = pairs.as_ref().map_or(alone, Pairs::table);
                let vectors = wide.div_ceil(kernels.lanes);
                let across = vectors * kernels.lanes;
                let direct = same::<O, O::Real>()
                    && across == wide
                    && out_row.is_some()
                    && out_column.or_else(|| evenly(&out_columns[column..column + wide])) == Some(1);
                // SAFETY: the place of a row's tile in a partial matrix.
                let tile = |slot: usize, row: usize| unsafe {
                    matrices.add(slot * matrix + column * padded_rows + row * across)
                };
                let panel = right_side.panel(column);
                let mut origin = if is_first { right_side.origin(column) } else { None };
                (call.way, call.a_tile, call.copy) = (way, panels.panel, panel.data.cast_mut());
                (call.out, call.out_row) = (spare, across as isize);
                let mut coming = right_side.source(column, [is_first, next_block.is_none()]);
                let next_share = coming.lines().div_ceil(tiles);
                let mut done = 0;
                // Rows from here on are finished together.
                let mut group = block.start;
                while done < block.len() {
                    let left_over = block.len() - done;
                    let high = match way {
                        1 => height.min(left_over),
                        _ if left_over % height > 0 => left_over % height,
                        _ => height,
                    };
                    // The first tile.
                    let row = if way == 1 { block.start + done } else { block.end - done - high };
                    call.a = panels.data.wrapping_offset(((row - block.start) / height) as isize * panels.panel);
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
                    let ends_at_zero = product.from_zero && target.is_none();
                    if ends_at_zero {
                        merge[call.merges] = zeros;
                        call.merges += 1;
                    }
                    call.merge = merge.as_ptr();
                    match target {
                        Some(slot) => call.out = tile(slot, row),
                        // SAFETY: the tile's first element.
                        None if direct => unsafe {
                            call.out = out.offset(out_rows[row] + out_columns[column]).cast();
                            call.out_row = out_row.unwrap_or(0);
                        },
                        None => {}
                    }
                    // Tiles whose results kernels store themselves are one call, as long as it can ask for all that they need:
                    // each for its own and, in the rest of the time, for what the next one begins with.
                    let mut most = if target.is_some() || direct && !ends_at_zero { usize::MAX } else { 1 };
                    let time = asking.map_or(0, |terms| numbers(length) / terms);
                    let runs = (across * size_of::<L::Real>()).div_ceil(LINE) * (call.merges + 1);
                    let lines = if far { high * runs } else { 0 };
                    if far && asks {
                        let has_time = lines + share <= time;
                        most = most.min(if has_time { RUNS / (runs + OTHERS) } else { time / lines });
                    }
                    let next_share = next_share.min(time.saturating_sub(lines + share));
                    if finished_steps.is_some() && target.is_none() {
                        most = most.min((span - row % span) / height);
                    }
                    // The first tile's kernel copies the panel for those below.
                    let (table, reads) = match origin.take() {
                        Some(origin) => {
                            most = 1;
                            (origin.copying, origin.panel)
                        }
                        None => (table, panel),
                    };
                    (call.b, call.b_term) = (reads.data, reads.term);
                    call.tiles = most.clamp(1, if high == height { left_over / high } else { 1 });
                    let together = call.tiles * high;
                    ahead.clear();
                    for number in 0..if asks { call.tiles } else { 0 } {
                        if far {
                            // The kernel needs these last: they come while it computes.
                            let first = (number * high) as isize * way;
                            for tile in &merge[..call.merges] {
                                let tile = tile.wrapping_offset(first * across as isize);
                                ahead.rows(tile, high, across, across as isize);
                            }
                            if finished_steps.is_none() || target.is_some() {
                                let out = call.out.wrapping_offset(first * call.out_row);
                                ahead.rows(out, high, across, call.out_row);
                            }
                        }
                        ahead.some(&mut source, share);
                        ahead.some(&mut coming, next_share);
                    }
                    call.ahead = ahead.runs();
                    call.out_tile = high as isize * call.out_row;
                    // SAFETY: as above.
                    unsafe {
                        table[high - 1][vectors - 1][panels.access as usize](&call);
                        if target.is_none() && !direct {
                            store.tile(level, spare, across, row..row + high, column..column + wide);
                        }
                    }
                    done += together;
                    let row = block.start + done;
                    if let (None, Some((finish, product)), Some(steps)) = (target, product.finish, finished_steps)
                        && (row.is_multiple_of(span) || row == block.end)
                    {
                        let part = Part {
                            product,
                            rows: first_row + group..first_row + row,
                            columns: columns.start + column..columns.start + column + wide,
                        };
                        // SAFETY: the place of the first row in the room.
                        finish.take(part, unsafe { finished.offset(out_rows[group]) }, steps);
                        group = row;
                    }
                }
            }
        }
        start = end;
    }
}
