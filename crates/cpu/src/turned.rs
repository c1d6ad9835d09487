//! Strided operands whose neighbours in memory are rows apart, as those of a transposed matrix: they are brought side by side a
//! block of rows at a time, so that every line of the caches is used as a whole while it is there.

use crate::gemm::Element;
use crate::gemm::pack::{SLACK, dense, pack};
use crate::simd::Level;
use crate::stream::{LINE, Share, prefetch, prefetch_near};
use crate::walk::Walk;
use smallvec::SmallVec;
use std::cell::Cell;
use std::ops::Range;

/// Bytes of a block, about; a line of every column may take more.
const BLOCK: usize = 256 << 10;
/// Bytes of a block, at most: it stays in the second-level cache.
const LARGEST: usize = 1 << 20;
/// Rows of a block, at most.
pub const ROWS: usize = 64;
/// Elements of a row, at least.
const COLUMNS: usize = 8;
/// Columns whose lines are asked for together.
const GROUP: usize = 64;
/// Columns of a panel.
const PANEL: usize = 16;

/// An operand that is read by blocks of rows. A *row* is an index of the dimension along which memory is dense (and of all
/// before it), its *columns* are the elements of the dimensions behind it.
pub struct Turned {
    /// The dimensions before the rows.
    outer: Walk,
    /// Rows for each of their indices.
    size: usize,
    /// Rows of a block.
    rows: usize,
    /// Columns of a block: all, or so many from a multiple of them on.
    window: usize,
    /// Where the columns of a row lie.
    columns: Vec<isize>,
}

/// What a room holds: the first row, the number of rows, and the window of columns.
pub type Held = Cell<(usize, usize, usize)>;

/// The dimension along which memory is dense, where columns of elements of `size` bytes are apart, and the columns. Elements of
/// one byte are not packed, and so not read by blocks.
fn columns(walk: &Walk, size: usize) -> Option<(usize, usize)> {
    let last = walk.sizes.len() - 1;
    let dense = walk.strides[..last].iter().rposition(|&stride| stride == 1)?;
    let is_apart = walk.strides[last].unsigned_abs() * size >= LINE;
    (is_apart && size > 1).then(|| (dense, walk.sizes[dense + 1..].iter().product()))
}

impl Turned {
    /// Columns of an operand that would be read by blocks.
    pub fn columns(walk: &Walk, size: usize) -> Option<usize> {
        columns(walk, size).map(|(_, columns)| columns)
    }

    /// The operand, if it is better read by blocks, of at most `window` columns (a multiple of 16, if not all); elements take
    /// `size` bytes where they are, and `held` in a block.
    pub fn new(walk: &Walk, size: usize, held: usize, window: usize) -> Option<Self> {
        let (dense, columns) = columns(walk, size)?;
        let window = window.min(columns);
        debug_assert!(window == columns || window.is_multiple_of(PANEL));
        // Rows that share the lines of a column.
        let line = LINE / size;
        let rows = (BLOCK / held / window.max(1) / line * line).clamp(line, ROWS.max(line)).min(walk.sizes[dense]);
        let pays = columns >= COLUMNS && rows >= line / 2 && rows * window * held <= LARGEST;
        let dims = |range: Range<usize>| Walk::over(range.map(|d| (walk.sizes[d], walk.strides[d])));
        pays.then(|| {
            let inner = dims(dense + 1..walk.sizes.len());
            let mut places = Vec::with_capacity(columns);
            inner.runs(0, columns, |_, first, count, stride| {
                places.extend((0..count as isize).map(|i| first + i * stride));
            });
            Turned { outer: dims(0..dense), size: walk.sizes[dense], rows, window, columns: places }
        })
    }

    /// Elements of the room that [`read`](Self::read) needs.
    pub fn room(&self) -> usize {
        self.window.next_multiple_of(PANEL) * self.rows + SLACK
    }

    /// Copies the elements `start..start + out.len()`, widened, by way of `room`, which holds the rows `held` (none of them at
    /// first) and will hold others.
    ///
    /// # Safety
    /// `first` must point to the operand's first element and all of them be readable, `room` have [`Turned::room`] elements
    /// that nobody else writes to, and the processor be able to run `level`.
    pub unsafe fn read<S: Element>(
        &self,
        level: Level,
        first: *const S,
        start: usize,
        out: &mut [S::Real],
        (room, held): (*mut S::Real, &Held),
    ) {
        let (mut row, mut column) = (start / self.columns.len(), start % self.columns.len());
        let mut done = 0;
        while done < out.len() {
            let (window, within) = (column / self.window, column % self.window);
            let (begin, count) = match held.get() {
                (begin, count, there) if there == window && (begin..begin + count).contains(&row) => (begin, count),
                _ => {
                    // SAFETY: the caller's promise.
                    let count = unsafe { self.fill(level, first, row, window, room) };
                    held.set((row, count, window));
                    (row, count)
                }
            };
            let (panel, within) = (within / PANEL, within % PANEL);
            let here = (PANEL - within).min(self.columns.len() - column).min(out.len() - done);
            // SAFETY: the element is in the block.
            let from = unsafe { room.add((panel * count + row - begin) * PANEL + within) };
            match out[done..].first_chunk_mut::<PANEL>() {
                // SAFETY: a panel's row.
                Some(to) if here == PANEL => *to = unsafe { *from.cast::<[S::Real; PANEL]>() },
                // SAFETY: as many elements of it.
                _ => out[done..done + here].copy_from_slice(unsafe { std::slice::from_raw_parts(from, here) }),
            }
            done += here;
            column += here;
            if column == self.columns.len() {
                (row, column) = (row + 1, 0);
            }
        }
    }

    /// Asks for a share of the block that begins with an element.
    pub fn ask_for<S>(&self, first: *const S, element: usize, share: Share) {
        let (row, column) = (element / self.columns.len(), element % self.columns.len());
        let (first_row, count) = self.block(row);
        let columns = self.columns_of(column / self.window);
        ask_for(first.wrapping_offset(first_row), &columns[share.range(columns.len())], count, prefetch_near);
    }

    /// Where a row lies, and the number of rows up to the end of its block.
    fn block(&self, row: usize) -> (isize, usize) {
        let (outer, row) = (row / self.size, row % self.size);
        let count = ((row / self.rows + 1) * self.rows).min(self.size) - row;
        (self.outer.position(outer) + row as isize, count)
    }

    /// The columns of a window.
    fn columns_of(&self, window: usize) -> &[isize] {
        &self.columns[window * self.window..self.columns.len().min((window + 1) * self.window)]
    }

    /// Brings a block into the room, a window of columns from `row` on, and gives the number of its rows: those up to the end of
    /// a line.
    ///
    /// # Safety
    /// As for [`Turned::read`].
    unsafe fn fill<S: Element>(
        &self,
        level: Level,
        first: *const S,
        row: usize,
        window: usize,
        room: *mut S::Real,
    ) -> usize {
        let (first_row, count) = self.block(row);
        let terms: SmallVec<[isize; ROWS]> = (0..count as isize).collect();
        let data = first.wrapping_offset(first_row);
        let mut groups = self.columns_of(window).chunks(GROUP).enumerate().peekable();
        while let Some((group, columns)) = groups.next() {
            groups.peek().iter().for_each(|(_, next)| ask_for(data, next, count, prefetch));
            // SAFETY: rows of the operand and panels of the room; a panel's row is a term to the packing.
            unsafe { pack(level, data, columns, &terms, dense(PANEL, terms.len()), room.add(group * GROUP * count)) };
        }
        count
    }
}

/// Asks for the lines of so many rows from `data` on, in some columns.
fn ask_for<S>(data: *const S, columns: &[isize], rows: usize, ask: impl Fn(*const u8)) {
    for line in (0..rows).step_by(LINE / size_of::<S>()) {
        columns.iter().for_each(|column| ask(data.wrapping_offset(column + line as isize).cast()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;
    use meshwork_graph::{Layout, Shape};

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
                let turned = Turned::new(&walk, size_of::<S>(), size_of::<S::Real>(), window).expect("rows are apart");
                let mut room = vec![<S::Real as crate::gemm::Real>::ZERO; turned.room()];
                let held = Held::default();
                let (mut start, mut length) = (0, 1);
                while start < walk.len() {
                    length = (length * 2).min(1024).min(walk.len() - start);
                    let mut got = vec![<S::Real as crate::gemm::Real>::ZERO; length];
                    let mut want = got.clone();
                    // SAFETY: the layouts are of fewer than 20,000 elements, the room as large as it must be.
                    unsafe {
                        turned.read(level, first, start, &mut got, (room.as_mut_ptr(), &held));
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
    fn blocks_hold_what_element_after_element_gives() {
        // Any bits at all: i32 goes through as f32.
        reads_the_same(|i| f32::from_bits((i as u32).wrapping_mul(0x9e37_79b9)), |x: f32| x.to_bits().into());
        reads_the_same(|i| f64::from_bits((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)), |x: f64| x.to_bits());
        reads_the_same(|i| bf16::from_bits((i * 97) as u16 & 0xbf7f), |x: f32| x.to_bits().into());
    }

    #[test]
    fn what_lies_together_or_takes_too_much_is_not_read_by_blocks() {
        let of = |sizes: &[usize], strides: &[isize]| {
            let walk = Walk::over(sizes.iter().copied().zip(strides.iter().copied()));
            Turned::new(&walk, 4, 4, usize::MAX).is_some()
        };
        assert!(of(&[100, 100], &[1, 100]));
        assert!(of(&[10_000, 10_000], &[1, 10_000]));
        assert!(!of(&[100, 100], &[100, 1]), "rows lie together");
        assert!(!of(&[100, 100], &[200, 2]), "no dimension is dense");
        assert!(!of(&[100, 4], &[1, 100]), "few columns");
        assert!(!of(&[3, 100], &[1, 300]), "few rows");
        assert!(Turned::columns(&Walk::over([(100, 1), (100, 100)]), 1).is_none(), "bytes");
        assert!(!of(&[8, 100], &[1, 8]), "columns share lines");
        assert!(!of(&[1000, 100_000], &[1, 1000]), "a block would take too much");
        let walk = Walk::over([(1000, 1), (100_000, 1000)]);
        assert!(Turned::new(&walk, 4, 4, 1024).is_some(), "a window of the columns does not");
    }
}
