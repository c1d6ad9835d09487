//! Instructions of fused regions that combine the elements of a row, or spread a value over them.

use super::ops::Held;
use crate::Level;
use crate::index::Place;
use crate::multiversion;
use crate::reduce::{Accumulate, Max, Min, Monoid, Prod, Sum, trees};
use meshwork_graph::DType;
use meshwork_graph::canonical::{LANES, TreeSum, in_tree_order, lane_tree};
use meshwork_graph::ops::{PartOf, ReduceOp, TILE_COLUMNS};
use std::ops::Range;
use std::sync::OnceLock;

/// Rows of up to so many columns are combined side by side, a group of rows at a time, unless they fill lanes.
const SHORT: usize = 32;
/// Blocks from which the trees over their lanes come all at once.
const FEW: usize = 4;
/// Rows of a group.
pub const GROUP: usize = 16;

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

/// Combines each row in blocks of `block` terms. A result of f16 or bf16 is left to be rounded.
///
/// # Safety
/// The argument must hold all elements, and there must be room for a value for each row.
pub unsafe fn reduce(op: ReduceOp, block: usize, held: Held, rows: &Rows) {
    // SAFETY: the caller's promise.
    by_held!(held, T => unsafe {
        let (x, out) = (rows.arg::<T>(0, rows.elements()), rows.out::<T>(rows.rows));
        match op {
            ReduceOp::Sum => combine_rows(rows.level, Sum, x, rows.columns, block, out),
            ReduceOp::Prod => combine_rows(rows.level, Prod, x, rows.columns, block, out),
            ReduceOp::Max => combine_rows(rows.level, Max, x, rows.columns, block, out),
            ReduceOp::Min => combine_rows(rows.level, Min, x, rows.columns, block, out),
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

/// The lanes of a block.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Lanes([f32; LANES]);

/// Adds the sums of blocks whose lanes these are, up to a group of them.
pub fn push_sums(blocks: &[Lanes], roots: &mut Roots) {
    let mut push = |sum: f32| roots.push(sum.word(), joined::<f32, Sum>);
    if blocks.len() < FEW {
        return blocks.iter().for_each(|block| push(lane_tree(block.0, f32::add)));
    }
    let mut all = [[f32::ZERO; LANES]; GROUP];
    all.iter_mut().zip(blocks).for_each(|(lanes, block)| *lanes = block.0);
    trees::<_, Sum>(&all).into_iter().take(blocks.len()).for_each(push);
}

/// The sums of rows of so many blocks, up to a group of them, whose lanes these are.
pub fn sum_blocks(lanes: &[Lanes], blocks: usize, out: &mut [f32]) {
    let together = GROUP / blocks;
    for (lanes, out) in lanes.chunks(together * blocks).zip(out.chunks_mut(together)) {
        let mut all = [[f32::ZERO; LANES]; GROUP];
        all.iter_mut().zip(lanes).for_each(|(all, lanes)| *all = lanes.0);
        let mut sums = trees::<_, Sum>(&all);
        for (sums, out) in sums.chunks_exact_mut(blocks).zip(out) {
            in_tree_order(blocks, |left, right| sums[left] = f32::add(sums[left], sums[right]));
            *out = sums[0];
        }
    }
}

fn push_blocks<A: Accumulate, M: Monoid<A>>(level: Level, op: M, x: &[A], block: usize, roots: &mut Roots) {
    const TOGETHER: usize = 16;
    let block = if M::ANY_ORDER { x.len() } else { block };
    for x in x.chunks(TOGETHER * block) {
        let mut results = [M::identity(); TOGETHER];
        let results = &mut results[..x.len().div_ceil(block)];
        combine_blocks(level, op, x, block, results);
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

#[inline(always)]
fn combine_rows_body<A: Accumulate, M: Monoid<A>>(op: M, x: &[A], columns: usize, block: usize, out: &mut [A]) {
    let mut done = 0;
    if columns <= SHORT && columns <= block && !columns.is_multiple_of(LANES) {
        while done + GROUP <= out.len() {
            let x = &x[done * columns..(done + GROUP) * columns];
            out[done..done + GROUP].copy_from_slice(&combine_group(op, x, columns));
            done += GROUP;
        }
    }
    let block = if M::ANY_ORDER { columns } else { block };
    let blocks = columns.div_ceil(block);
    let (x, out) = (&x[done * columns..], &mut out[done..]);
    match blocks {
        1 => results_of(op, x, Cut { columns, block: columns, blocks }, out),
        2..=GROUP => merge_blocks::<A, M, GROUP>(op, x, [columns, block], out),
        _ => merge_blocks::<A, M, TILE_COLUMNS>(op, x, [columns, block], out),
    }
}

/// Combines the elements of each row, which has up to `MOST` blocks.
#[inline(always)]
fn merge_blocks<A: Accumulate, M: Monoid<A>, const MOST: usize>(
    op: M,
    x: &[A],
    [columns, block]: [usize; 2],
    out: &mut [A],
) {
    let blocks = columns.div_ceil(block);
    let together = MOST.min(GROUP) / blocks;
    let mut roots = [M::identity(); MOST];
    for (rows, results) in x.chunks(together.max(1) * columns).zip(out.chunks_mut(together.max(1))) {
        results_of(op, rows, Cut { columns, block, blocks }, &mut roots[..results.len() * blocks]);
        for (roots, y) in roots.chunks_exact_mut(blocks).zip(results) {
            in_tree_order(blocks, |left, right| roots[left] = M::combine(roots[left], roots[right]));
            *y = roots[0];
        }
    }
}

/// Lanes in as few lines of the caches as hold them.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line<T>([T; LANES]);

/// The lanes of a block. What follows it is read with its last terms but replaced by what changes nothing.
#[inline(always)]
fn lanes_of<A: Accumulate, M: Monoid<A>>(_: M, x: &[A], block: Range<usize>) -> [A; LANES] {
    let mut lanes = [M::identity(); LANES];
    let (chunks, tail) = x[block.clone()].as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = M::combine(lanes[i], chunk[i]);
        }
    }
    if tail.is_empty() {
        return lanes;
    }
    match x[block.end - tail.len()..].first_chunk::<LANES>() {
        Some(chunk) => {
            for i in 0..LANES {
                lanes[i] = M::combine(lanes[i], if i < tail.len() { chunk[i] } else { M::identity() });
            }
        }
        None => lanes.iter_mut().zip(tail).for_each(|(lane, x)| *lane = M::combine(*lane, *x)),
    }
    lanes
}

/// As [`meshwork_graph::canonical::lane_tree`].
#[inline(always)]
fn tree<A: Accumulate, M: Monoid<A>>(lanes: [A; LANES]) -> A {
    // Level by level through memory: compilers that see several take the lanes apart and combine them in pairs.
    let lanes = std::hint::black_box(Line(lanes)).0;
    let eight: [A; 8] = std::hint::black_box(std::array::from_fn(|i| M::combine(lanes[i], lanes[i + 8])));
    let four: [A; 4] = std::hint::black_box(std::array::from_fn(|i| M::combine(eight[i], eight[i + 4])));
    let two: [A; 2] = std::array::from_fn(|i| M::combine(four[i], four[i + 2]));
    M::combine(two[0], two[1])
}

/// The results of a group of rows of one block each, lane by lane for all rows at once.
#[inline(always)]
fn combine_group<A: Accumulate, M: Monoid<A>>(_: M, x: &[A], columns: usize) -> [A; GROUP] {
    let mut lanes = [[M::identity(); GROUP]; LANES];
    for column in 0..columns {
        let lane = &mut lanes[column % LANES];
        for i in 0..GROUP {
            lane[i] = M::combine(lane[i], x[i * columns + column]);
        }
    }
    // The lane tree; lanes without terms change nothing and are left out.
    let mut used = columns.min(LANES);
    let mut half = LANES / 2;
    while half > 0 {
        for right in half..used.max(half) {
            let other = lanes[right];
            for (a, b) in lanes[right - half].iter_mut().zip(other) {
                *a = M::combine(*a, b);
            }
        }
        used = used.min(half);
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn combine_blocks_body<A: Accumulate, M: Monoid<A>>(op: M, x: &[A], block: usize, results: &mut [A]) {
    results_of(op, x, Cut { columns: x.len(), block, blocks: results.len() }, results);
}

/// How rows are cut.
#[derive(Clone, Copy)]
struct Cut {
    columns: usize,
    /// Terms of a block.
    block: usize,
    /// Blocks of a row.
    blocks: usize,
}

impl Cut {
    /// The elements of a block, of which rows have the first ones.
    #[inline(always)]
    fn range(self, i: usize) -> Range<usize> {
        let (row, first) = if self.blocks == 1 { (i, 0) } else { (i / self.blocks, i % self.blocks * self.block) };
        let start = row * self.columns;
        start + first..start + self.columns.min(first + self.block)
    }
}

/// The results of the first blocks.
#[inline(always)]
fn results_of<A: Accumulate, M: Monoid<A>>(op: M, x: &[A], cut: Cut, results: &mut [A]) {
    let mut all = [[M::identity(); LANES]; LANES];
    let few = if M::ANY_ORDER { results.len() } else { results.len() % LANES };
    let (many, few) = results.split_at_mut(results.len() - few);
    let first = many.len();
    for (group, results) in many.chunks_exact_mut(LANES).enumerate() {
        for (i, lanes) in all.iter_mut().enumerate() {
            *lanes = lanes_of(op, x, cut.range(group * LANES + i));
        }
        results.copy_from_slice(&trees::<_, M>(&all));
    }
    for (i, result) in few.iter_mut().enumerate() {
        let block = cut.range(first + i);
        *result = if M::ANY_ORDER { M::all(&x[block]) } else { tree::<A, M>(lanes_of(op, x, block)) };
    }
}

multiversion! {
    /// The results of the blocks of a row.
    fn combine_blocks<A: Accumulate, M: Monoid<A>>(op: M, x: &[A], block: usize, results: &mut [A]) = combine_blocks_body;
}

multiversion! {
    /// Combines the elements of each row.
    fn combine_rows<A: Accumulate, M: Monoid<A>>(op: M, x: &[A], columns: usize, block: usize, out: &mut [A]) = combine_rows_body;
}
