//! Reductions of rows that lie behind each other: the blocks of several short rows, or of a long one, have their trees at once.

use super::monoid::{Accumulate, Monoid, Term};
use super::trees::{FEW, Lanes, MERGED, ResultsOf, TOGETHER, Trees, merge};
use crate::Level;
use meshwork_graph::canonical::{LANES, in_tree_order, lane_tree};
use meshwork_simd::multiversion;
use std::ops::Range;

/// Columns of very short rows, whose lanes are combined side by side for many rows, at most.
const SHORT: usize = 7;

/// The results of rows of so many elements, in blocks of so many.
pub fn reduce_rows<T: Term, M: Monoid<T::Sum>>(level: Level, op: M, x: &[T], cut: [usize; 2], out: &mut [T]) {
    rows(level, Ways::new(op, level), x, cut, out);
}

/// The results of the blocks of a row, of so many elements each.
pub fn reduce_blocks<A: Accumulate, M: Monoid<A>>(level: Level, op: M, x: &[A], block: usize, results: &mut [A]) {
    blocks(level, Ways::new(op, level), x, block, results);
}

multiversion! {
    fn rows<T: Term, M: Monoid<T::Sum>>(ways: Ways<T, M>, x: &[T], cut: [usize; 2], out: &mut [T]) = rows_body;
}
multiversion! {
    fn blocks<A: Accumulate, M: Monoid<A>>(ways: Ways<A, M>, x: &[A], block: usize, results: &mut [A]) = blocks_body;
}

/// What a processor does of it in ways of its own.
#[derive(Clone, Copy)]
struct Ways<T: Term, M> {
    op: M,
    trees: Trees<T::Sum>,
    results: Option<ResultsOf<T>>,
}

impl<T: Term, M: Monoid<T::Sum>> Ways<T, M> {
    fn new(op: M, level: Level) -> Self {
        Ways { op, trees: M::trees(level), results: M::results(level) }
    }
}

/// `TreeSum` without allocation.
pub struct Tree<A> {
    stack: [A; 64],
    height: usize,
    count: usize,
}

impl<A: Accumulate> Tree<A> {
    pub fn new() -> Self {
        Tree { stack: [A::ZERO; 64], height: 0, count: 0 }
    }

    pub fn push(&mut self, leaf: A, combine: impl Fn(A, A) -> A) {
        self.push_root(leaf, 1, combine);
    }

    /// As many leaves as there are lanes, after a multiple of as many.
    fn push_all(&mut self, mut leaves: [A; LANES], combine: impl Fn(A, A) -> A) {
        in_tree_order(LANES, |left, right| leaves[left] = combine(leaves[left], leaves[right]));
        self.push_root(leaves[0], LANES, combine);
    }

    /// The root of so many leaves, a power of two, after a multiple of as many.
    fn push_root(&mut self, mut root: A, leaves: usize, combine: impl Fn(A, A) -> A) {
        for _ in 0..(self.count / leaves).trailing_ones() {
            self.height -= 1;
            root = combine(self.stack[self.height], root);
        }
        self.stack[self.height] = root;
        self.height += 1;
        self.count += leaves;
    }

    /// The root of at least one leaf.
    pub fn finish(self, combine: impl Fn(A, A) -> A) -> A {
        let mut root = self.stack[self.height - 1];
        for left in self.stack[..self.height - 1].iter().rev() {
            root = combine(*left, root);
        }
        root
    }
}

/// How rows are cut.
#[derive(Clone, Copy)]
pub struct Cut {
    pub columns: usize,
    /// Terms of a block.
    pub block: usize,
    /// Blocks of a row.
    pub blocks: usize,
}

/// The elements of block after block.
pub struct BlocksOf {
    cut: Cut,
    start: usize,
    /// Where the row ends.
    row: usize,
}

impl BlocksOf {
    #[inline(always)]
    pub fn new(cut: Cut) -> Self {
        BlocksOf { cut, start: 0, row: cut.columns }
    }

    #[inline(always)]
    pub fn next(&mut self) -> Range<usize> {
        let (start, end) = (self.start, self.row.min(self.start + self.cut.block));
        self.start = end;
        if end == self.row {
            self.row += self.cut.columns;
        }
        start..end
    }
}

#[inline(always)]
fn rows_body<T: Term, M: Monoid<T::Sum>>(ways: Ways<T, M>, x: &[T], [columns, block]: [usize; 2], out: &mut [T]) {
    let (x, out) = if columns <= SHORT && columns <= block { very_short(ways.op, x, columns, out) } else { (x, out) };
    let block = if M::ANY_ORDER { columns } else { block.min(columns) };
    let cut = Cut { columns, block, blocks: columns.div_ceil(block) };
    let mut roots = [M::identity(); MERGED];
    if cut.blocks > TOGETHER {
        return x.chunks_exact(columns).zip(out).for_each(|(x, y)| {
            let mut tree = Tree::<T::Sum>::new();
            for x in x.chunks(TOGETHER * block) {
                let roots = &mut roots[..x.len().div_ceil(block)];
                let cut = Cut { columns: x.len(), block, blocks: roots.len() };
                results_of(ways, x, &mut BlocksOf::new(cut), roots);
                match roots.first_chunk::<TOGETHER>() {
                    Some(roots) => tree.push_all(*roots, M::combine),
                    None => roots.iter().for_each(|&root| tree.push(root, M::combine)),
                }
            }
            *y = T::narrow(tree.finish(M::combine));
        });
    }
    if cut.blocks == 1 && (M::ANY_ORDER || ways.results.is_none() && !columns.is_multiple_of(LANES)) {
        // The ends of rows, which are all alike, take as long as trees on their own, meanwhile.
        for (row, y) in out.iter_mut().enumerate() {
            let row = row * columns..(row + 1) * columns;
            *y = T::narrow(match M::ANY_ORDER {
                true => M::all(&x[row]),
                false => lane_tree(lanes_of(ways.op, x, row).0, M::combine),
            });
        }
        return;
    }
    let together = MERGED / cut.blocks;
    for (x, out) in x.chunks(together * columns).zip(out.chunks_mut(together)) {
        let roots = &mut roots[..out.len() * cut.blocks];
        results_of(ways, x, &mut BlocksOf::new(cut), roots);
        merge::<T, M>(roots, cut.blocks, out);
    }
}

#[inline(always)]
fn blocks_body<A: Accumulate, M: Monoid<A>>(ways: Ways<A, M>, x: &[A], block: usize, results: &mut [A]) {
    let cut = Cut { columns: x.len(), block, blocks: results.len() };
    results_of(ways, x, &mut BlocksOf::new(cut), results);
}

/// The results of the next blocks.
#[inline(always)]
fn results_of<T: Term, M: Monoid<T::Sum>>(
    Ways { op, trees, results: of_blocks }: Ways<T, M>,
    x: &[T],
    blocks: &mut BlocksOf,
    results: &mut [T::Sum],
) {
    if let Some(of_blocks) = of_blocks {
        return of_blocks(x, blocks, results);
    }
    for results in results.chunks_mut(TOGETHER) {
        if M::ANY_ORDER || results.len() < FEW {
            for result in results {
                let block = blocks.next();
                *result = if M::ANY_ORDER { M::all(&x[block]) } else { tree::<T::Sum, M>(lanes_of(op, x, block)) };
            }
            continue;
        }
        let mut all = [Lanes([M::identity(); LANES]); TOGETHER];
        all[..results.len()].iter_mut().for_each(|lanes| *lanes = lanes_of(op, x, blocks.next()));
        results.copy_from_slice(&trees(&all)[..results.len()]);
    }
}

/// The lanes of a block. What follows it is read with its last terms but replaced by what changes nothing.
#[inline(always)]
fn lanes_of<T: Term, M: Monoid<T::Sum>>(_: M, x: &[T], block: Range<usize>) -> Lanes<T::Sum> {
    let mut lanes = [M::identity(); LANES];
    let (chunks, tail) = x[block.clone()].as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = M::combine(lanes[i], chunk[i].widen());
        }
    }
    let Some(&first) = tail.first() else { return Lanes(lanes) };
    // One place to read from: compilers keep lanes in registers then.
    let mut room = [first; LANES];
    let chunk = x[block.end - tail.len()..].first_chunk::<LANES>().unwrap_or_else(|| {
        room[..tail.len()].copy_from_slice(tail);
        &room
    });
    for i in 0..LANES {
        let x = if i < tail.len() { chunk[i].widen() } else { M::identity() };
        lanes[i] = M::combine(lanes[i], x);
    }
    Lanes(lanes)
}

/// As [`lane_tree`].
#[inline(always)]
fn tree<A: Accumulate, M: Monoid<A>>(lanes: Lanes<A>) -> A {
    // Level by level through memory: compilers that see several take the lanes apart and combine them in pairs.
    let lanes = std::hint::black_box(lanes).0;
    let eight: [A; 8] = std::hint::black_box(std::array::from_fn(|i| M::combine(lanes[i], lanes[i + 8])));
    let four: [A; 4] = std::hint::black_box(std::array::from_fn(|i| M::combine(eight[i], eight[i + 4])));
    let two: [A; 2] = std::array::from_fn(|i| M::combine(four[i], four[i + 2]));
    M::combine(two[0], two[1])
}

/// Combines whole groups of rows of up to [`SHORT`] columns, and gives the others with their results.
#[inline(always)]
fn very_short<'a, 'b, T: Term, M: Monoid<T::Sum>>(
    _: M,
    x: &'a [T],
    columns: usize,
    out: &'b mut [T],
) -> (&'a [T], &'b mut [T]) {
    let (groups, rest) = out.as_chunks_mut::<TOGETHER>();
    let (x, others) = x.split_at(groups.len() * TOGETHER * columns);
    for (x, out) in x.chunks_exact(TOGETHER * columns).zip(groups) {
        // Each element is the only one of its lane. Lanes without terms change nothing and are left out.
        let mut lanes = [[M::identity(); TOGETHER]; SHORT];
        for (column, lane) in lanes.iter_mut().enumerate().take(columns) {
            for i in 0..TOGETHER {
                lane[i] = M::combine(lane[i], x[i * columns + column].widen());
            }
        }
        let mut used = columns;
        for half in [4, 2, 1] {
            for right in half..used.max(half) {
                let other = lanes[right];
                for i in 0..TOGETHER {
                    lanes[right - half][i] = M::combine(lanes[right - half][i], other[i]);
                }
            }
            used = used.min(half);
        }
        for i in 0..TOGETHER {
            out[i] = T::narrow(lanes[0][i]);
        }
    }
    (others, rest)
}
