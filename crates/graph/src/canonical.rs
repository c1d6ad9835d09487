//! Canonical arithmetic: the one order in which floating-point sums are added.
//!
//! A summed dimension is cut into blocks by a rule that depends on its global size alone. Inside a block
//! the order is fixed per operation; the blocks' results are combined by [`TreeSum`], a balanced binary
//! tree over the block index. Threads, tiles, ranks and microbatches take whole blocks, so no layout
//! changes a bit. See `docs/design.md`, "Canonical arithmetic".

/// What a summed dimension ranges over, which decides how finely it may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blocking {
    /// The samples of a batch: about as many blocks as a block has samples, so that wide data-parallel
    /// layouts and many microbatches find whole blocks.
    Samples,
    /// The samples of a part of a batch that has so many in all: the blocks of the whole batch.
    SamplesOf(usize),
    /// Features of one sample: long blocks, which cost the kernels least.
    Features,
    /// Blocks of this many outer indices: the blocks of a whole sum, for a part of it.
    Every(usize),
}

/// The cut of one sum: `outer` indices in blocks of `unit`, each index standing for `inner` terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Blocks {
    /// Size of the outermost summed dimension, along which blocks are cut.
    pub outer: usize,
    /// Terms per outer index (the product of the other summed dimensions).
    pub inner: usize,
    /// Outer indices in a block; the last block may have fewer.
    pub unit: usize,
}

impl Blocks {
    /// The cut of a contraction (matmul, convolution), whose blocks are chains of fused multiply-adds.
    pub fn contraction(blocking: Blocking, outer: usize, inner: usize) -> Self {
        Self::new(blocking, outer, inner, |terms| terms.div_ceil(4).next_power_of_two().clamp(32, 128))
    }

    /// The cut of a plain sum, whose blocks are [`LANES`] interleaved lanes and a tree over the lanes.
    pub fn sum(blocking: Blocking, outer: usize, inner: usize) -> Self {
        Self::new(blocking, outer, inner, |terms| terms.div_ceil(8).next_power_of_two().clamp(64, 1024))
    }

    fn new(blocking: Blocking, outer: usize, inner: usize, length: impl Fn(usize) -> usize) -> Self {
        let unit = match blocking {
            Blocking::Samples => samples_unit(outer),
            Blocking::SamplesOf(batch) => samples_unit(batch),
            Blocking::Features => length(outer * inner).div_ceil(inner.max(1)),
            Blocking::Every(unit) => unit,
        };
        Blocks { outer, inner, unit: unit.max(1) }
    }

    /// Number of blocks; 0 for an empty sum.
    pub fn count(&self) -> usize {
        self.outer.div_ceil(self.unit)
    }

    /// The outer indices of block `block`.
    pub fn range(&self, block: usize) -> std::ops::Range<usize> {
        let start = block * self.unit;
        start..(start + self.unit).min(self.outer)
    }
}

/// Samples in a block of a batch: the largest power of two not above √(batch / 2).
pub fn samples_unit(batch: usize) -> usize {
    let most = ((batch / 2) as f64).sqrt() as usize;
    1 << most.max(1).ilog2()
}

/// Interleaved lanes of a plain sum: term `i` of a block belongs to lane `i % LANES`.
pub const LANES: usize = 16;

/// Calls `merge(left, right)` for the pairs of the tree over `count` leaves, each root in the place of its first leaf.
#[inline(always)]
pub fn in_tree_order(count: usize, mut merge: impl FnMut(usize, usize)) {
    let mut step = 1;
    while step < count {
        for left in (0..count - step).step_by(2 * step) {
            merge(left, left + step);
        }
        step *= 2;
    }
}

/// Adds the lanes of a block: halves onto halves, 16 → 8 → 4 → 2 → 1.
///
/// Lanes start at +0.0; a lane without terms therefore changes nothing.
#[inline(always)]
pub fn lane_tree<T: Copy>(mut lanes: [T; LANES], mut add: impl FnMut(T, T) -> T) -> T {
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            lanes[i] = add(lanes[i], lanes[i + half]);
        }
        half /= 2;
    }
    lanes[0]
}

/// Combines block results in index order by the balanced binary tree: neighbours are added pair by pair,
/// level by level, and an odd one out moves up unchanged.
///
/// Held as a binary counter: entry `k` of the stack is the root of an aligned sub-tree. At the end the roots
/// are added from the right. A rank that owns an aligned range of blocks holds exactly one such root.
#[derive(Clone, Debug, Default)]
pub struct TreeSum<T> {
    stack: Vec<(u32, T)>,
}

impl<T> TreeSum<T> {
    /// An empty tree.
    pub fn new() -> Self {
        TreeSum { stack: Vec::new() }
    }

    /// Adds the next leaf; `add(left, right)` is called for every pair that is complete.
    pub fn push(&mut self, leaf: T, add: impl FnMut(T, T) -> T) {
        self.push_tree(0, leaf, add);
    }

    /// Adds the root of the next `1 << level` leaves, which must be an aligned sub-tree; the last one may have fewer
    /// leaves.
    pub fn push_tree(&mut self, mut level: u32, mut root: T, mut add: impl FnMut(T, T) -> T) {
        while self.stack.last().is_some_and(|top| top.0 == level) {
            let (_, left) = self.stack.pop().expect("checked");
            root = add(left, root);
            level += 1;
        }
        assert!(self.stack.last().is_none_or(|top| top.0 > level), "a sub-tree that is not aligned");
        self.stack.push((level, root));
    }

    /// The root of the whole tree, or `None` without leaves.
    pub fn finish(mut self, mut add: impl FnMut(T, T) -> T) -> Option<T> {
        let (_, mut root) = self.stack.pop()?;
        while let Some((_, left)) = self.stack.pop() {
            root = add(left, root);
        }
        Some(root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_everything_once() {
        for blocking in [Blocking::Samples, Blocking::Features] {
            for outer in [0, 1, 2, 3, 7, 31, 32, 33, 255, 256, 784, 800, 4096, 16384] {
                for inner in [1, 5, 25, 576] {
                    let b = Blocks::contraction(blocking, outer, inner);
                    let covered: Vec<usize> = (0..b.count()).flat_map(|i| b.range(i)).collect();
                    assert_eq!(covered, (0..outer).collect::<Vec<_>>());
                }
            }
        }
    }

    #[test]
    fn the_batch_is_cut_alike_by_every_operation() {
        for batch in [1, 8, 32, 100, 256, 1000] {
            let unit = |inner| Blocks::contraction(Blocking::Samples, batch, inner).unit;
            assert_eq!(unit(1), unit(576));
            assert_eq!(unit(1), Blocks::sum(Blocking::Samples, batch, 7).unit);
        }
    }

    #[test]
    fn the_tree_is_the_one_of_adjacent_pairs() {
        for n in 1..40 {
            let mut level: Vec<String> = (0..n).map(|i| i.to_string()).collect();
            while level.len() > 1 {
                level = level
                    .chunks(2)
                    .map(|c| if c.len() == 2 { format!("({}+{})", c[0], c[1]) } else { c[0].clone() })
                    .collect();
            }
            let add = |a: String, b: String| format!("({a}+{b})");
            let mut tree = TreeSum::new();
            for i in 0..n {
                tree.push(i.to_string(), add);
            }
            assert_eq!(tree.finish(add).unwrap(), level[0]);
        }
    }
}
