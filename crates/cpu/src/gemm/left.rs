//! The left side of a chunk of terms: panels of a block of rows at a time, read in place, copied or packed.

use super::ahead::Source;
use super::offsets::evenly;
use super::pack::{SLACK, dense, pack};
use super::pairs::{self, Span};
use super::real::{Element, same};
use super::tile::Tile;
use super::{Side, Size};
use crate::Level;
use meshwork_simd::line::LINE;
use meshwork_simd::microkernel::{Access, Kernels};
use meshwork_simd::multiversion;
use std::mem::size_of;
use std::ops::Range;

/// Columns up to which the left operand's panels are read in place: packing pays where they are read often, and the sooner the
/// farther off they are ([`Kernels::from_second`]).
const REUSE: usize = 256;

/// Columns from which rows of the left operand are copied: where they are read so often, it matters that they lie together
/// in the second-level cache and in the pages' table.
const AGAIN: usize = 1024;

/// Lines of a cache that are so many bytes apart displace each other.
const CONFLICT: usize = 2048;

/// Bytes of all its sets, one line each.
const PAGE: usize = 4096;
/// Lines of a set that panels of the left side read in place may take.
const WAYS: usize = 4;
/// As [`WAYS`], for rows of a tile, which are needed for a line's terms only.
const ROW_WAYS: usize = 6;

/// Where the left operand is.
#[derive(Clone, Copy)]
pub enum Left<'a, S: Element> {
    /// In memory.
    Elements(*const S, &'a Side),
    /// Packed into panels of the tile's height, each with all terms: see [`pack_left`].
    Panels(*const S::Real),
}

/// The distance of the panels of [`Left::Panels`]: what the last store of one writes beyond it is nobody's.
pub fn panel_distance(terms: usize, height: usize) -> usize {
    height * terms + SLACK
}

/// Numbers of all panels that [`pack_left`] writes.
pub fn packed_left(size: &Size, height: usize) -> usize {
    size.rows.div_ceil(height) * panel_distance(size.terms, height)
}

/// Packs a panel of the left operand for [`Left::Panels`].
///
/// # Safety
/// The elements must be readable, and `out` must have room for [`packed_left`] numbers, those of the panel used by nobody else.
pub unsafe fn pack_left<S: Element>(
    level: Level,
    data: *const S,
    side: &Side,
    size: &Size,
    height: usize,
    panel: usize,
    out: *mut S::Real,
) {
    let first = panel * height;
    let (mut rows, mut terms) = (vec![0; height.min(size.rows - first)], vec![0; size.terms]);
    side.lines.fill(first, &mut rows);
    side.terms.fill(0, &mut terms);
    let distance = panel_distance(size.terms, height);
    // SAFETY: the caller's promise.
    unsafe { pack(level, data, &rows, &terms, [height, distance], out.add(panel * distance)) };
}

/// Panels of the left side as the kernels read them.
pub struct Panels<T> {
    /// The first of them.
    pub data: *const T,
    /// Distance between panels.
    pub panel: isize,
    /// Distance between the terms of a panel, or between rows.
    pub step: isize,
    /// Which of both.
    pub access: Access,
    /// What was packed as pairs.
    pub span: Span,
}

/// How the panels of a chunk come about.
enum How<S: Element> {
    /// They are there.
    There(Panels<S::Real>),
    /// Rows are copied, which are so far apart, and widened if they are narrow.
    Copied(isize),
    /// They are packed.
    Packed,
    /// Rows become rows of pairs.
    PairRows,
    /// They are packed as pairs.
    Pairs,
}

/// Rows and terms of the left operand.
pub struct Chunk<'a, S: Element> {
    level: Level,
    height: usize,
    data: *const S,
    rows: &'a [isize],
    terms: &'a [isize],
    /// How far apart rows and terms are, if evenly.
    steps: [Option<isize>; 2],
    how: How<S>,
}

impl<'a, S: Element> Chunk<'a, S> {
    /// Panels that are packed: `data` is the first one's first term, `panel` their distance.
    pub fn packed(level: Level, height: usize, data: *const S::Real, panel: isize) -> Self {
        let panels = Panels { data, panel, step: height as isize, access: Access::Panel, span: Span::NONE };
        Chunk {
            level,
            height,
            data: std::ptr::null(),
            rows: &[],
            terms: &[],
            steps: [None; 2],
            how: How::There(panels),
        }
    }

    /// Elements in memory, each at one of the rows and one of the terms from `data`, which are so far apart, if evenly;
    /// for a level's kernels, the tile that they compute and so many columns; in pairs or not.
    pub fn elements(
        level: Level,
        (kernels, tile): (&Kernels<S::Real>, &Tile),
        data: *const S,
        [rows, terms]: [&'a [isize]; 2],
        steps: [Option<isize>; 2],
        columns: usize,
        pairs: bool,
    ) -> Self {
        let height = tile.rows;
        let first: *const S::Real = data.wrapping_offset(rows[0] + terms[0]).cast();
        let there = |panel: isize, step: isize, access: Access| {
            How::There(Panels { data: first, panel, step, access, span: Span::NONE })
        };
        let how = match (steps[0], steps[1]) {
            (_, Some(1)) if pairs && columns < AGAIN => How::PairRows,
            _ if pairs => How::Pairs,
            (_, Some(1)) if tile.is_tall => How::Packed,
            (Some(row), Some(1)) if is_readable::<S>(row, height, columns) => {
                there(row * height as isize, row, Access::Rows)
            }
            (Some(row), Some(1)) => How::Copied(row),
            (Some(1), Some(step))
                if same::<S, S::Real>()
                    && columns <= REUSE
                    && is_kept(kernels, step.unsigned_abs() * size_of::<S>(), terms.len(), columns) =>
            {
                there(height as isize, step, Access::Panel)
            }
            _ => How::Packed,
        };
        Chunk { level, height, data, rows, terms, steps, how }
    }

    /// The panels of a block of rows, which begins at one of them. They may be in `room`.
    ///
    /// # Safety
    /// The operand must be readable, and `room` have room for the rows of whole panels, [`distance`] apart, and [`SLACK`] more.
    pub unsafe fn panels(&self, block: &Range<usize>, room: *mut S::Real) -> Panels<S::Real> {
        let (height, length) = (self.height, self.terms.len());
        let rows = self.rows.get(block.clone()).unwrap_or(&[]);
        let operand =
            pairs::Operand { factor: pairs::Factor::Left, data: self.data.cast(), lines: rows, terms: self.terms };
        let rows_of = |step: usize, span: Span| {
            let panel = (height * step) as isize;
            Panels { data: room.cast_const(), panel, step: step as isize, access: Access::Rows, span }
        };
        let packed = |length: usize, span: Span| {
            let panel = (height * length) as isize;
            Panels { data: room.cast_const(), panel, step: height as isize, access: Access::Panel, span }
        };
        // SAFETY: the caller's promise; pairs are made of bf16 and as large as f32.
        unsafe {
            match self.how {
                How::There(Panels { data, panel, step, access, span }) => {
                    let data = data.wrapping_offset((block.start / height) as isize * panel);
                    Panels { data, panel, step, access, span }
                }
                How::Copied(row) => {
                    let (first, step) = (self.data.offset(rows[0] + self.terms[0]), distance(length));
                    copy(self.level, &Rows { first, row, count: block.len(), terms: length, out: room, step });
                    rows_of(step, Span::NONE)
                }
                How::Packed => {
                    pack(self.level, self.data, rows, self.terms, dense(height, length), room);
                    packed(length, Span::NONE)
                }
                How::PairRows => rows_of(length.div_ceil(2), operand.copy(self.level, room.cast())),
                How::Pairs => packed(length.div_ceil(2), operand.pack(self.level, height, room.cast())),
            }
        }
    }

    /// How many elements there are; none if they are packed already.
    pub fn numbers(&self) -> usize {
        self.rows.len() * self.terms.len()
    }

    /// What [`Chunk::panels`] or the kernels will read of a block of rows.
    pub fn source(&self, block: &Range<usize>) -> Source<'a> {
        let Some(rows) = self.rows.get(block.clone()).filter(|rows| !rows.is_empty()) else { return Source::none() };
        match (self.steps[0].or_else(|| evenly(rows)), self.steps[1]) {
            (Some(1), _) => Source::new(self.data.wrapping_offset(rows[0]), self.terms, rows.len()),
            (_, Some(1)) => Source::new(self.data.wrapping_offset(self.terms[0]), rows, self.terms.len()),
            _ => Source::none(),
        }
    }
}

/// Whether the rows of the highest tiles would have to be copied, for so many columns, because they drive each other out of the
/// first-level cache, where those of lower tiles can be read in place.
pub fn is_crowded<S: Element>(kernels: &Kernels<S::Real>, side: &Side, columns: usize) -> bool {
    let (Some(row), Some(1)) = (side.lines.stride(), side.terms.stride()) else { return false };
    let in_place = |rows: usize| is_readable::<S>(row, rows, columns);
    !in_place(kernels.highest()) && in_place(kernels.rows())
}

/// Whether rows of neighbouring elements, `row` apart, are read in place by tiles of `rows` rows, for so many columns.
fn is_readable<S: Element>(row: isize, rows: usize, columns: usize) -> bool {
    same::<S, S::Real>() && columns < AGAIN && together(row.unsigned_abs() * size_of::<S>(), rows)
}

/// Whether lines of so many rows, `step` bytes apart, stay in the first-level cache together.
fn together(step: usize, rows: usize) -> bool {
    rows <= sets(step) * ROW_WAYS
}

/// Sets of the first-level cache on which lines lie that are `step` bytes apart.
pub fn sets(step: usize) -> usize {
    (PAGE >> step.trailing_zeros().min(PAGE.ilog2())).min(PAGE / LINE)
}

/// Whether the terms of a panel, so many `lines` each and `step` bytes apart, can be read in place again and again: they lie on
/// lines of few sets of the first-level cache where the step is a multiple of a large power of two, and panels of the
/// other side need all but so many `ways`.
pub fn resident(step: usize, terms: usize, lines: usize, ways: usize) -> bool {
    let sets = (sets(step) * lines).min(PAGE / LINE);
    (terms * step.min(lines * LINE)).div_ceil(LINE) <= sets * ways
}

/// Whether panels are read where they lie, of so many terms that are `step` bytes apart and for so many columns: not if they would
/// drive each other out of the first-level cache, unless the second one keeps them and they are not read often.
fn is_kept<T>(kernels: &Kernels<T>, step: usize, terms: usize, columns: usize) -> bool {
    let is_near = || {
        // One of so many sets is used.
        let sparse = 1 << (step.trailing_zeros().max(LINE.ilog2()) - LINE.ilog2());
        !step.is_multiple_of(CONFLICT) && terms * LINE * sparse <= kernels.together[1]
    };
    resident(step, terms, 1, WAYS) || columns <= kernels.from_second && is_near()
}

/// How far apart rows of so many terms are copied to: an odd number of lines, so that they lie on all sets of the caches, and
/// one number more, so that the rows of a tile come to their next lines one after the other and not all with one term.
pub fn distance(terms: usize) -> usize {
    (terms.div_ceil(NUMBERS) | 1) * NUMBERS + 1
}

/// Numbers of f32 on a line of the caches.
const NUMBERS: usize = LINE / size_of::<f32>();
/// Numbers between the end of a copied row and the next one, at most.
pub const GAP: usize = 2 * NUMBERS;

/// Rows of neighbouring elements, `row` apart, and room for them, `step` apart.
struct Rows<S: Element> {
    first: *const S,
    row: isize,
    count: usize,
    terms: usize,
    out: *mut S::Real,
    step: usize,
}

multiversion! {
    /// Copies rows, and widens them if they are narrow.
    fn copy<S: Element>(rows: &Rows<S>) = copy_of;
}

#[inline(always)]
fn copy_of<S: Element>(rows: &Rows<S>) {
    let &Rows { first, row, count, terms, out, step } = rows;
    for i in 0..count {
        // SAFETY: who names the rows promises that they are readable, and the room writable and used by nobody else.
        let (from, to) = unsafe {
            let from = std::slice::from_raw_parts(first.offset(i as isize * row), terms);
            (from, std::slice::from_raw_parts_mut(out.add(i * step), terms))
        };
        to.iter_mut().zip(from).for_each(|(to, x)| *to = x.widen());
    }
}

#[cfg(test)]
mod tests {
    use super::super::real::Real;
    use super::*;

    #[test]
    fn panels_are_read_in_place_where_a_cache_keeps_them() {
        for kernels in Level::available().into_iter().map(f32::kernels) {
            let [_, near] = kernels.together;
            let is_kept = |step: usize, terms: usize, columns: usize| is_kept(&kernels, step, terms, columns);
            assert!(is_kept(0, 1024, 256), "one term");
            assert!(is_kept(68, 256, 256), "on all sets of the first-level cache");
            let often = kernels.from_second + 1;
            assert!(is_kept(68, 257, often - 1) && !is_kept(68, 257, often), "read often");
            let most = near / LINE / (1024 / LINE);
            assert!(is_kept(1024, most, 1) && !is_kept(1024, most + 1, 1), "{most} terms on one of 16 sets");
            assert!(is_kept(2048, 8, 256) && !is_kept(2048, 9, 1), "on two sets of the first-level cache");
        }
    }
}
