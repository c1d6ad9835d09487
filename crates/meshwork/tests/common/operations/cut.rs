//! Cutting an operation along a factor, and merging what the parts give.

use meshwork::Tensor;
use meshwork::graph::canonical::{Blocking, TreeSum};
use meshwork::graph::ops::PartOf;
use meshwork::graph::region::Region;
use meshwork::graph::{Factor, Kind, Op, Shape, Type};
use meshwork::tensor::concat;
use std::cmp::Reverse;
use std::ops::Range;

/// An operation with operands.
pub struct Case {
    pub op: Op,
    pub inputs: Vec<Tensor>,
}

/// The case of an operation.
pub fn case(op: impl Into<Op>, inputs: &[Tensor]) -> Case {
    Case { op: op.into(), inputs: inputs.to_vec() }
}

pub fn ty(tensor: &Tensor) -> Type {
    Type::new(tensor.dtype(), tensor.shape())
}

fn infer(op: &Op, inputs: &[Tensor]) -> Option<Type> {
    let types: Vec<Type> = inputs.iter().map(ty).collect();
    op.operation().infer(&types.iter().collect::<Vec<_>>()).ok()
}

impl Case {
    pub fn name(&self) -> &'static str {
        self.op.operation().name()
    }

    pub fn types(&self) -> Vec<Type> {
        self.inputs.iter().map(ty).collect()
    }

    /// The value of the operation.
    pub fn whole(&self) -> Tensor {
        Tensor::record(self.op.clone(), &self.inputs.iter().collect::<Vec<_>>())
    }

    pub fn factors(&self, whole: &Tensor) -> Vec<Factor> {
        let types = self.types();
        self.op.operation().rule(&types.iter().collect::<Vec<_>>(), &ty(whole)).factors
    }

    /// Indices of a factor.
    pub fn size(&self, factor: &Factor, whole: &Tensor) -> usize {
        let types = self.types();
        factor.size(&types.iter().collect::<Vec<_>>(), &ty(whole))
    }

    /// What the indices `range` of a factor of `size` give; `None` where the operation does not take such operands, or
    /// gives another shape than it should.
    pub fn part(&self, factor: &Factor, size: usize, range: &Range<usize>, whole: &Tensor) -> Option<Tensor> {
        let elements = |extent| {
            let step = Factor::step(size, extent);
            range.start * step..range.end * step
        };
        let narrow = |(x, dim): (&Tensor, &Option<usize>)| match *dim {
            None => x.clone(),
            Some(d) => {
                let elements = elements(x.shape()[d]);
                x.narrow(d as isize, elements.start, elements.len())
            }
        };
        let inputs: Vec<Tensor> = self.inputs.iter().zip(&factor.inputs).map(narrow).collect();
        let shape = Shape::new(whole.shape());
        let mut region = Region::whole(&shape);
        if let Some(d) = factor.output {
            region.set(d, elements(shape[d]));
        }
        let mut op = self.op.of_region(&shape, &region);
        if let (None, Some(unit)) = (factor.output, factor.granularity) {
            *op.blocking_mut().expect("a sum that is cut has blocks") = Blocking::Every(unit);
        }
        if let (Kind::Picked, Some(part_of)) = (factor.kind, op.part_of_mut()) {
            let (x, dim) = (&self.inputs[0], factor.inputs[0]?);
            *part_of = Some(PartOf { start: elements(x.shape()[dim]).start, size: x.shape()[dim] });
        }
        let found = infer(&op, &inputs)?;
        (found == Type::new(whole.dtype(), region.shape()))
            .then(|| Tensor::record(op, &inputs.iter().collect::<Vec<_>>()))
    }

    /// The whole from the parts between these bounds.
    pub fn merged(&self, factor: &Factor, size: usize, bounds: &[usize], whole: &Tensor) -> Tensor {
        let ranges = || bounds.windows(2).map(|pair| pair[0]..pair[1]);
        let part = |range: Range<usize>| {
            let part = self.part(factor, size, &range, whole);
            part.unwrap_or_else(|| panic!("{} takes no part {range:?} of {factor:?}", self.name()))
        };
        let tree = |add: fn(Tensor, Tensor) -> Tensor| {
            let unit = factor.granularity.expect("sums are cut between blocks");
            let mut tree = TreeSum::new();
            for (level, range) in ranges().flat_map(|range| sub_trees(range, size, unit)) {
                tree.push_tree(level, part(range), add);
            }
            tree.finish(add).expect("a part")
        };
        let fold = |join: fn(Tensor, Tensor) -> Tensor| ranges().map(part).reduce(join).expect("a part");
        match factor.kind {
            Kind::Mapped => {
                let parts: Vec<Tensor> = ranges().map(part).collect();
                concat(&parts.iter().collect::<Vec<_>>(), factor.output.expect("mapped to the output") as isize)
            }
            Kind::Sum => tree(|a, b| &a + &b),
            Kind::Prod => tree(|a, b| &a * &b),
            Kind::Max => fold(|a, b| a.maximum(&b)),
            Kind::Min => fold(|a, b| a.minimum(&b)),
            Kind::Picked => fold(|a, b| &a + &b),
            Kind::Whole | Kind::Halo => panic!("{:?} cannot be cut", factor.kind),
        }
    }
}

/// The sub-trees that a range of whole blocks consists of: their levels and indices.
pub fn sub_trees(range: Range<usize>, size: usize, unit: usize) -> Vec<(u32, Range<usize>)> {
    let (count, last) = (size.div_ceil(unit), range.end.div_ceil(unit));
    let mut block = range.start / unit;
    let mut trees = vec![];
    while block < last {
        let end = |level: u32| (block + (1 << level)).min(count);
        let fits = |&level: &u32| block.is_multiple_of(1 << level) && end(level) <= last;
        let levels = (0..=count.ilog2() + 1).filter(fits);
        let level = levels.min_by_key(|&level| (Reverse(end(level)), level)).expect("a block is a tree");
        trees.push((level, block * unit..(end(level) * unit).min(size)));
        block = end(level);
    }
    trees
}

/// Bounds of two and of three parts of `size` indices, even and uneven, at multiples of the granularity.
pub fn cuts(size: usize, granularity: Option<usize>) -> Vec<Vec<usize>> {
    let unit = granularity.unwrap_or(1);
    let atoms = size.div_ceil(unit);
    let inside = |cuts: &[usize]| cuts.iter().all(|cut| (1..atoms).contains(cut)) && cuts.is_sorted_by(|a, b| a < b);
    let wanted: [&[usize]; 9] = [
        &[1],
        &[atoms / 3],
        &[atoms / 2],
        &[atoms.saturating_sub(1)],
        &[1, 2],
        &[atoms / 3, 2 * atoms / 3],
        &[1, atoms / 2 + 1],
        &[atoms / 2, atoms.saturating_sub(1)],
        &[3, atoms / 2 + 3],
    ];
    let mut cuts: Vec<&[usize]> = wanted.into_iter().filter(|cuts| inside(cuts)).collect();
    cuts.sort_unstable();
    cuts.dedup();
    let bounds = |cuts: &[usize]| [&[0], cuts, &[atoms]].concat().iter().map(|cut| (cut * unit).min(size)).collect();
    cuts.into_iter().map(bounds).collect()
}
