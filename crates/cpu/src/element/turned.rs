//! Strided operands whose neighbours in memory are rows apart, as those of a transposed matrix: they are turned a strip of rows
//! at a time, so that every line of the caches is used as a whole while it is there, and asked for by blocks of several strips,
//! since memory is quicker where lines are read that follow each other.

use super::ops::held;
use crate::Level;
use crate::gemm::pack::transpose;
use crate::stream::Share;
use crate::walk::Walk;
use half::{bf16, f16};
use meshwork_graph::DType;
use meshwork_simd::line::{LINE, prefetch, prefetch_near};
use std::cell::Cell;
use std::ops::Range;
use std::ptr::null_mut;

/// Bytes of a strip, about; a line of every column may take more.
const STRIP: usize = 16 << 10;
/// Bytes of a strip, at most: it stays in the second-level cache.
const LARGEST: usize = 1 << 20;
/// Rows of a block.
pub const ROWS: usize = 64;
/// Columns of a strip, where a row is read by parts.
pub const WINDOW: usize = 512;
/// Elements of a row, at least.
const COLUMNS: usize = 8;
/// Columns whose lines are asked for together.
const GROUP: usize = 64;

/// An operand that is read by strips of rows. A *row* is an index of the dimension along which memory is dense (and of all
/// before it), its *columns* are the elements of the dimensions behind it.
pub struct Turned {
    dtype: DType,
    /// The dimensions before the rows.
    outer: Walk,
    /// Rows for each of their indices.
    size: usize,
    /// Rows of a strip.
    strip: usize,
    /// Columns of a strip: all, or so many from a multiple of them on.
    window: usize,
    /// Where the columns of a row lie.
    columns: Vec<isize>,
}

/// The memory of one thread for a strip: its elements, as they are held in slots, and what it holds.
#[derive(Clone, Copy)]
pub struct Strip<'a> {
    pub first: *mut u8,
    pub held: &'a Cell<Held>,
}

/// What a strip holds.
#[derive(Clone, Copy)]
pub struct Held {
    /// The first row, and the number of rows; none at first.
    rows: [usize; 2],
    /// The window of columns.
    window: usize,
    /// The place of the element that was wanted last.
    pub place: *mut u8,
}

impl Default for Held {
    fn default() -> Self {
        Held { rows: [0; 2], window: 0, place: null_mut() }
    }
}

/// The dimension along which memory is dense, where columns are apart, and their number. Elements of one byte are not turned.
fn columns(walk: &Walk, dtype: DType) -> Option<(usize, usize)> {
    let last = walk.sizes.len() - 1;
    let dense = walk.strides[..last].iter().rposition(|&stride| stride == 1)?;
    let is_apart = walk.strides[last].unsigned_abs() * dtype.size() >= LINE;
    (is_apart && dtype.size() > 1).then(|| (dense, walk.sizes[dense + 1..].iter().product()))
}

impl Turned {
    /// Columns of an operand that would be read by strips.
    pub fn columns_of(walk: &Walk, dtype: DType) -> Option<usize> {
        columns(walk, dtype).map(|(_, columns)| columns)
    }

    /// The operand, if it is better read by strips, of at most `window` columns.
    pub fn new(walk: &Walk, dtype: DType, window: usize) -> Option<Self> {
        let (dense, columns) = columns(walk, dtype)?;
        let window = window.min(columns);
        // Rows that share the lines of a column.
        let line = LINE / dtype.size();
        let held = held(dtype).size();
        let strip = (STRIP / held / window.max(1) / line * line).clamp(line, ROWS).min(walk.sizes[dense]);
        let pays = columns >= COLUMNS && strip >= line / 2 && strip * window * held <= LARGEST;
        let dims = |range: Range<usize>| Walk::over(range.map(|d| (walk.sizes[d], walk.strides[d])));
        pays.then(|| {
            let inner = dims(dense + 1..walk.sizes.len());
            let mut places = Vec::with_capacity(columns);
            inner.runs(0, columns, |_, first, count, stride| {
                places.extend((0..count as isize).map(|i| first + i * stride));
            });
            Turned { dtype, outer: dims(0..dense), size: walk.sizes[dense], strip, window, columns: places }
        })
    }

    /// The columns of a row.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Bytes of a strip.
    pub fn bytes(&self) -> usize {
        self.window * self.strip * held(self.dtype).size()
    }

    /// Copies so many elements from number `start` on as they are held, by way of `strip`.
    ///
    /// # Safety
    /// As for [`Turned::hold`]; `out` must have room for them.
    pub unsafe fn read(
        &self,
        level: Level,
        first: *const u8,
        (mut start, mut count): (usize, usize),
        mut out: *mut u8,
        strip: Strip,
    ) {
        while count > 0 {
            // SAFETY: the caller's promise.
            let from = unsafe { self.hold(level, first, start, strip) };
            let here = self.together(start, strip).min(count);
            let bytes = here * held(self.dtype).size();
            // SAFETY: so many elements follow in the strip.
            unsafe { out.copy_from_nonoverlapping(from, bytes) };
            (start, count, out) = (start + here, count - here, out.wrapping_add(bytes));
        }
    }

    /// Sees to it that `strip` holds an element, and gives its place, behind which those up to the end of its window follow.
    ///
    /// # Safety
    /// `first` must point to the operand's first element and all of them be readable, `strip` have [`Turned::bytes`] that nobody
    /// else writes to, and the processor be able to run `level`.
    pub unsafe fn hold(&self, level: Level, first: *const u8, element: usize, strip: Strip) -> *mut u8 {
        let (row, column) = self.position(element);
        let (window, within) = (column / self.window, column % self.window);
        let mut held = strip.held.get();
        let [begin, count] = held.rows;
        if held.window != window || !(begin..begin + count).contains(&row) {
            // SAFETY: the caller's promise.
            let count = unsafe { self.fill(level, first, row, window, strip.first) };
            (held.rows, held.window) = ([row, count], window);
        }
        let number = (row - held.rows[0]) * self.window + within;
        held.place = strip.first.wrapping_add(number * self::held(self.dtype).size());
        strip.held.set(held);
        held.place
    }

    fn position(&self, element: usize) -> (usize, usize) {
        (element / self.columns.len(), element % self.columns.len())
    }

    /// Elements that follow in a strip from one that it holds on.
    fn together(&self, element: usize, strip: Strip) -> usize {
        let (row, column) = self.position(element);
        let Held { rows: [begin, count], window, .. } = strip.held.get();
        // Whole rows follow each other.
        let rows = if self.window == self.columns.len() { begin + count - row } else { 1 };
        rows * self.window(window).len() - column % self.window
    }

    /// Asks for a share of the block that begins with an element.
    pub fn ask_for(&self, first: *const u8, element: usize, share: Share) {
        let (row, column) = self.position(element);
        let (first_row, count) = self.rows(row, ROWS);
        let columns = self.window(column / self.window);
        self.ask(self.at(first, first_row), &columns[share.range(columns.len())], count, prefetch_near);
    }

    /// Asks for the lines of so many rows from `data` on, in some columns.
    fn ask(&self, data: *const u8, columns: &[isize], rows: usize, ask: impl Fn(*const u8)) {
        for line in (0..rows * self.dtype.size()).step_by(LINE) {
            columns.iter().for_each(|&column| ask(self.at(data, column).wrapping_add(line)));
        }
    }

    /// So many elements further in the operand's memory.
    fn at(&self, data: *const u8, offset: isize) -> *const u8 {
        data.wrapping_offset(offset * self.dtype.size() as isize)
    }

    /// Where a row lies, and the number of rows up to the next multiple of `step`.
    fn rows(&self, row: usize, step: usize) -> (isize, usize) {
        let (outer, row) = (row / self.size, row % self.size);
        let count = ((row / step + 1) * step).min(self.size) - row;
        (self.outer.position(outer) + row as isize, count)
    }

    /// The columns of a window.
    fn window(&self, window: usize) -> &[isize] {
        &self.columns[window * self.window..self.columns.len().min((window + 1) * self.window)]
    }

    /// Turns a strip, a window of columns from `row` on, and gives the number of its rows. The first one of a block asks for all
    /// of it.
    ///
    /// # Safety
    /// As for [`Turned::hold`].
    unsafe fn fill(&self, level: Level, first: *const u8, row: usize, window: usize, out: *mut u8) -> usize {
        let (first_row, count) = self.rows(row, self.strip);
        let (_, block) = self.rows(row, ROWS);
        let asks = (row % self.size).is_multiple_of(ROWS);
        let data = self.at(first, first_row);
        let mut groups = self.window(window).chunks(GROUP).enumerate().peekable();
        while let Some((group, columns)) = groups.next() {
            groups.peek().iter().filter(|_| asks).for_each(|(_, next)| self.ask(data, next, block, prefetch));
            let out = out.wrapping_add(group * GROUP * held(self.dtype).size());
            let step = self.window;
            // SAFETY: rows of the operand, and as many columns of the strip; floats of the same size are moved as they are.
            unsafe {
                match self.dtype {
                    DType::F16 => transpose(level, data.cast::<f16>(), columns, count, step, out.cast()),
                    DType::BF16 => transpose(level, data.cast::<bf16>(), columns, count, step, out.cast()),
                    DType::F32 | DType::I32 => transpose(level, data.cast::<f32>(), columns, count, step, out.cast()),
                    DType::F64 | DType::I64 => transpose(level, data.cast::<f64>(), columns, count, step, out.cast()),
                    DType::U8 | DType::Bool => unreachable!("bytes are not read by strips"),
                }
            }
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm::{Element, Real};
    use meshwork_graph::{Layout, Shape};
    use meshwork_simd::line::Line;

    fn layouts() -> Vec<Layout> {
        let base = Layout::contiguous(&Shape::new(&[3, 70, 45]));
        let wide = Layout::contiguous(&Shape::new(&[18, 2, 300]));
        vec![
            base.permute(&[0, 2, 1]),
            base.permute(&[2, 0, 1]),
            base.permute(&[2, 1, 0]),
            base.slice(&[0, 3, 5], &[3, 60, 33], &[1, 1, 1]).permute(&[2, 0, 1]),
            base.slice(&[2, 69, 0], &[3, 35, 45], &[-1, -2, 1]).permute(&[0, 2, 1]),
            wide.permute(&[2, 1, 0]),
            wide.permute(&[1, 2, 0]),
            Layout::contiguous(&Shape::new(&[40, 1, 36])).expand(&Shape::new(&[40, 3, 36])).permute(&[2, 1, 0]),
        ]
    }

    /// Compares with element after element, from several places on, as threads do.
    fn reads_the_same<S: Element>(element: impl Fn(usize) -> S, bits: impl Fn(S::Real) -> u64) {
        let data: Vec<S> = (0..20_000).map(element).collect();
        for layout in layouts() {
            let walk = Walk::new(&layout);
            let first = data[layout.offset..].as_ptr();
            for (level, window) in Level::available().into_iter().flat_map(|level| [(level, usize::MAX), (level, 32)]) {
                let turned = Turned::new(&walk, S::DTYPE, window).expect("rows are apart");
                let mut room = vec![Line([0; LINE]); turned.bytes().div_ceil(LINE)];
                let held = Cell::new(Held::default());
                let strip = Strip { first: room.as_mut_ptr().cast(), held: &held };
                let (mut start, mut length) = (0, 1);
                while start < walk.len() {
                    length = (length * 2).min(1024).min(walk.len() - start);
                    let mut got = vec![<S::Real as Real>::ZERO; length];
                    let mut want = got.clone();
                    // SAFETY: the layouts are of fewer than 20,000 elements, the strip as large as it must be.
                    unsafe {
                        turned.read(level, first.cast(), (start, length), got.as_mut_ptr().cast(), strip);
                        walk.gather(first, start, &mut want, S::widen);
                    }
                    let [got, want] = [got, want].map(|x| x.into_iter().map(&bits).collect::<Vec<_>>());
                    assert_eq!(got, want, "{layout:?} from {start} at {level:?}");
                    start += length;
                    // Not everything is read.
                    if length == 1024 {
                        start += 700;
                    }
                }
            }
        }
    }

    #[test]
    fn strips_hold_what_element_after_element_gives() {
        // Any bits at all: i32 goes through as f32.
        reads_the_same(|i| f32::from_bits((i as u32).wrapping_mul(0x9e37_79b9)), |x: f32| x.to_bits().into());
        reads_the_same(|i| f64::from_bits((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)), |x: f64| x.to_bits());
        reads_the_same(|i| bf16::from_bits((i * 97) as u16 & 0xbf7f), |x: f32| x.to_bits().into());
    }

    #[test]
    fn what_lies_together_or_takes_too_much_is_not_read_by_strips() {
        let of = |sizes: &[usize], strides: &[isize]| {
            let walk = Walk::over(sizes.iter().copied().zip(strides.iter().copied()));
            Turned::new(&walk, DType::F32, usize::MAX).is_some()
        };
        assert!(of(&[100, 100], &[1, 100]));
        assert!(of(&[10_000, 10_000], &[1, 10_000]));
        assert!(!of(&[100, 100], &[100, 1]), "rows lie together");
        assert!(!of(&[100, 100], &[200, 2]), "no dimension is dense");
        assert!(!of(&[100, 4], &[1, 100]), "few columns");
        assert!(!of(&[3, 100], &[1, 300]), "few rows");
        assert!(Turned::columns_of(&Walk::over([(100, 1), (100, 100)]), DType::U8).is_none(), "bytes");
        assert!(!of(&[8, 100], &[1, 8]), "columns share lines");
        assert!(!of(&[1000, 100_000], &[1, 1000]), "a strip would take too much");
        let walk = Walk::over([(1000, 1), (100_000, 1000)]);
        assert!(Turned::new(&walk, DType::F32, 1024).is_some(), "a window of the columns does not");
    }
}
