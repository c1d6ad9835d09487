//! Instructions of fused regions that combine the elements of a row, or spread a value over them.

use super::ops::Held;
use crate::Level;
use crate::index::Place;
use crate::reduce::{
    Accumulate, Lanes, Max, Min, Monoid, Prod, Sum, TOGETHER, merge, reduce_blocks, reduce_rows, results,
};
use meshwork_graph::DType;
use meshwork_graph::canonical::TreeSum;
use meshwork_graph::ops::{PartOf, ReduceOp};
use std::sync::OnceLock;

/// Rows, or blocks of one, of a group: as many as have their trees at once.
pub const GROUP: usize = TOGETHER;

/// Where an instruction reads and writes: `rows` rows of `columns` elements, or as many values of rows.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    pub args: [*const u8; 3],
    pub out: *mut u8,
    pub rows: usize,
    pub columns: usize,
    pub level: Level,
    /// What was wrong with an index, if one was.
    pub refused: &'a OnceLock<String>,
}

impl Rows<'_> {
    /// # Safety
    /// The argument must hold so many initialised elements of `T`, which nobody writes meanwhile.
    unsafe fn arg<'a, T>(&self, i: usize, count: usize) -> &'a [T] {
        // SAFETY: the caller promises it.
        unsafe { std::slice::from_raw_parts(self.args[i].cast(), count) }
    }

    /// # Safety
    /// There must be room for so many elements of `T`, which overlaps no argument.
    unsafe fn out<'a, T>(&self, count: usize) -> &'a mut [T] {
        // SAFETY: the caller promises it.
        unsafe { std::slice::from_raw_parts_mut(self.out.cast(), count) }
    }

    fn elements(&self) -> usize {
        self.rows * self.columns
    }
}

/// `by_held!(held, T => expression)`: the expression with `T` for the type that registers hold.
macro_rules! by_held {
    ($held:expr, $name:ident => $body:expr) => {
        match $held {
            Held::F64 => by_held!(@ f64, $name, $body),
            Held::F32 => by_held!(@ f32, $name, $body),
            Held::I64 => by_held!(@ i64, $name, $body),
            Held::I32 => by_held!(@ i32, $name, $body),
            Held::Byte => by_held!(@ u8, $name, $body),
        }
    };
    (@ $type:ty, $name:ident, $body:expr) => {{
        type $name = $type;
        $body
    }};
}
pub(super) use by_held;

/// Combines each row in blocks of `block` terms. A result of f16 or bf16 is left to be rounded.
///
/// # Safety
/// The argument must hold all elements, and there must be room for a value for each row.
pub unsafe fn reduce(op: ReduceOp, block: usize, held: Held, rows: &Rows) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe {
        let (x, out) = (rows.arg::<T>(0, rows.elements()), rows.out::<T>(rows.rows));
        match op {
            ReduceOp::Sum => reduce_rows(rows.level, Sum, x, [rows.columns, block], out),
            ReduceOp::Prod => reduce_rows(rows.level, Prod, x, [rows.columns, block], out),
            ReduceOp::Max => reduce_rows(rows.level, Max, x, [rows.columns, block], out),
            ReduceOp::Min => reduce_rows(rows.level, Min, x, [rows.columns, block], out),
        }
    });
}

/// Repeats the value of each row at its elements.
///
/// # Safety
/// The argument must hold a value for each row, and there must be room for all elements.
pub unsafe fn spread(held: Held, rows: &Rows) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe {
        let values = rows.arg::<T>(0, rows.rows);
        for (row, &value) in rows.out::<T>(rows.elements()).chunks_exact_mut(rows.columns).zip(values) {
            row.fill(value);
        }
    });
}

/// What becomes of the blocks of a row, tile by tile: the tree over their results, as bits.
pub type Roots = TreeSum<u64>;

/// Combines the elements of a tile of one row in blocks of `block` terms, which follow those of `roots`.
///
/// # Safety
/// The argument must hold all elements.
pub unsafe fn reduce_tile(op: ReduceOp, block: usize, held: Held, rows: &Rows, roots: &mut Roots) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe {
        let x = rows.arg::<T>(0, rows.elements());
        match op {
            ReduceOp::Sum => push_blocks(rows.level, Sum, x, block, roots),
            ReduceOp::Prod => push_blocks(rows.level, Prod, x, block, roots),
            ReduceOp::Max => push_blocks(rows.level, Max, x, block, roots),
            ReduceOp::Min => push_blocks(rows.level, Min, x, block, roots),
        }
    });
}

/// Stores the result of a row of which all blocks are there. One of f16 or bf16 is left to be rounded.
///
/// # Safety
/// There must be room for a value.
pub unsafe fn finish(op: ReduceOp, held: Held, roots: Roots, out: *mut u8) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe {
        let root = match op {
            ReduceOp::Sum => roots.finish(joined::<T, Sum>),
            ReduceOp::Prod => roots.finish(joined::<T, Prod>),
            ReduceOp::Max => roots.finish(joined::<T, Max>),
            ReduceOp::Min => roots.finish(joined::<T, Min>),
        };
        out.cast::<T>().write(T::of_word(root.expect("a row has columns")));
    });
}

/// Adds the sums of blocks whose lanes these are, up to a group of them.
pub fn push_sums(level: Level, blocks: &[Lanes<f32>], roots: &mut Roots) {
    let sums = results::<_, Sum>(f32::sums(level), blocks);
    sums.iter().take(blocks.len()).for_each(|sum| roots.push(sum.word(), joined::<f32, Sum>));
}

/// The sums of rows of so many blocks, up to a group of them, whose lanes these are.
pub fn sum_blocks(level: Level, lanes: &[Lanes<f32>], blocks: usize, out: &mut [f32]) {
    const GROUPS: usize = 8;
    let together = GROUPS * GROUP / blocks;
    let trees = f32::sums(level);
    for (lanes, out) in lanes.chunks(together * blocks).zip(out.chunks_mut(together)) {
        let mut sums = [[0.0; GROUP]; GROUPS];
        for (sums, lanes) in sums.iter_mut().zip(lanes.chunks(GROUP)) {
            *sums = results::<_, Sum>(trees, lanes);
        }
        merge::<f32, Sum>(&mut sums.as_flattened_mut()[..lanes.len()], blocks, out);
    }
}

fn push_blocks<A: Accumulate, M: Monoid<A>>(level: Level, op: M, x: &[A], block: usize, roots: &mut Roots) {
    let block = if M::ANY_ORDER { x.len() } else { block };
    for x in x.chunks(GROUP * block) {
        let mut results = [M::identity(); GROUP];
        let results = &mut results[..x.len().div_ceil(block)];
        reduce_blocks(level, op, x, block, results);
        results.iter().for_each(|result| roots.push(result.word(), joined::<A, M>));
    }
}

fn joined<A: Accumulate, M: Monoid<A>>(a: u64, b: u64) -> u64 {
    M::combine(A::of_word(a), A::of_word(b)).word()
}

/// Makes the value of each row what changes no sum.
///
/// # Safety
/// There must be room for a value for each row.
pub unsafe fn nothing(held: Held, rows: &Rows) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe { rows.out::<T>(rows.rows).fill(T::NOTHING) });
}

/// Takes the element of each row that its index names; where the columns are a part without it, what changes no sum.
///
/// # Safety
/// The arguments must hold all elements and an index for each row, and there must be room for a value for each row.
pub unsafe fn gather((dim, part_of): (usize, Option<PartOf>), held: Held, index: DType, rows: &Rows) {
    // SAFETY: the caller's promise.
    unsafe {
        nothing(held, rows);
        pick((dim, part_of), held, index, rows);
    }
}

/// Takes the element of each row that its index names, where the columns have it.
///
/// # Safety
/// As for [`gather`]; the values of the rows must be there.
pub unsafe fn pick((dim, part_of): (usize, Option<PartOf>), held: Held, index: DType, rows: &Rows) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe {
        let (x, out) = (rows.arg::<T>(0, rows.elements()), rows.out::<T>(rows.rows));
        for (i, (row, y)) in x.chunks_exact(rows.columns).zip(out).enumerate() {
            if let Some(column) = rows.column(1, index, i, dim, part_of) {
                *y = row[column];
            }
        }
    });
}

/// Zeros, but for 0 + the value of each row where its index says.
///
/// # Safety
/// The arguments must hold an index and a value for each row, and there must be room for all elements.
pub unsafe fn scatter((dim, part_of): (usize, Option<PartOf>), held: Held, index: DType, rows: &Rows) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe {
        let (values, out) = (rows.arg::<T>(1, rows.rows), rows.out::<T>(rows.elements()));
        out.fill(T::ZERO);
        for (i, (row, &value)) in out.chunks_exact_mut(rows.columns).zip(values).enumerate() {
            if let Some(column) = rows.column(0, index, i, dim, part_of) {
                row[column] = T::ZERO.add(value);
            }
        }
    });
}

impl Rows<'_> {
    /// The column that an index names, if it is here.
    ///
    /// # Safety
    /// The argument must hold an index of this dtype for each row.
    pub unsafe fn column(
        &self,
        arg: usize,
        index: DType,
        row: usize,
        dim: usize,
        part_of: Option<PartOf>,
    ) -> Option<usize> {
        // SAFETY: the caller's promise.
        let column: i64 = unsafe {
            match index {
                DType::I32 => self.arg::<i32>(arg, self.rows)[row].into(),
                _ => self.arg::<i64>(arg, self.rows)[row],
            }
        };
        let place = Place::new(part_of, self.columns);
        place.find(column).unwrap_or_else(|()| {
            self.refused.get_or_init(|| place.refusal(column, dim));
            None
        })
    }
}
