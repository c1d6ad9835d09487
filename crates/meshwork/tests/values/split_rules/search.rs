//! Looking for factors that a rule does not name: the operation is computed from narrowed operands, in every way that its
//! shape rule takes, and what the parts give is compared with the whole. The operands of the cases are such that no cut gives
//! the bits of the whole by chance.

use crate::operations::cut::Case;
use meshwork::Tensor;
use meshwork::graph::{Factor, Kind};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Cuts that give the bits of the whole and that are not among these factors.
pub fn missing(case: &Case, factors: &[Factor]) -> Vec<Factor> {
    let whole = case.whole();
    let mut missing = vec![];
    for inputs in assignments(case) {
        for output in (0..whole.rank()).map(Some).chain([None]) {
            if output.is_none() && inputs.iter().all(Option::is_none) {
                continue;
            }
            let extents = inputs.iter().zip(&case.inputs).filter_map(|(dim, x)| dim.map(|d| x.shape()[d]));
            let common = extents.chain(output.map(|d| whole.shape()[d])).fold(0, divisor);
            for size in (2..=common).filter(|size| common.is_multiple_of(*size)) {
                let declared = factors.iter().any(|factor| {
                    factor.kind != Kind::Whole
                        && (&factor.inputs, factor.output) == (&inputs, output)
                        && case.size(factor, &whole).is_multiple_of(size)
                });
                if declared {
                    continue;
                }
                for kind in kinds(case, output, &whole) {
                    let unit = output.is_none().then(|| blocks(case)).flatten();
                    let factor = Factor { kind, inputs: inputs.clone(), output, granularity: unit, count: Some(size) };
                    if cuts(&factor, size).into_iter().any(|at| holds(case, &factor, [at, size], &whole)) {
                        missing.push(factor);
                    }
                }
            }
        }
    }
    missing
}

/// All choices of at most one dimension of each operand.
fn assignments(case: &Case) -> Vec<Vec<Option<usize>>> {
    case.inputs.iter().fold(vec![vec![]], |chosen, x| {
        let extend = |chosen: &Vec<Option<usize>>, dim: Option<usize>| [&chosen[..], &[dim]].concat();
        let dims = || (0..x.rank()).map(Some).chain([None]);
        chosen.iter().flat_map(|chosen| dims().map(move |dim| extend(chosen, dim))).collect()
    })
}

fn kinds(case: &Case, output: Option<usize>, whole: &Tensor) -> Vec<Kind> {
    match output {
        Some(_) => vec![Kind::Mapped],
        None if whole.dtype() == meshwork::DType::Bool => vec![Kind::Max, Kind::Min],
        None if case.op.clone().part_of_mut().is_some() => vec![Kind::Picked, Kind::Max, Kind::Min],
        None => vec![Kind::Sum, Kind::Prod, Kind::Max, Kind::Min],
    }
}

/// The unit of an operation's own sum.
fn blocks(case: &Case) -> Option<usize> {
    let types = case.types();
    case.op.blocks(&types.iter().collect::<Vec<_>>()).map(|blocks| blocks.unit)
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

/// Where to cut: behind the first index, and between the sub-trees of the root.
fn cuts(factor: &Factor, size: usize) -> Vec<usize> {
    let unit = factor.granularity.unwrap_or(size);
    match size.div_ceil(unit) {
        0 | 1 => vec![1],
        blocks => vec![1, unit << (blocks - 1).ilog2()],
    }
}

/// Whether two parts merge to the whole. What cannot be computed does not.
fn holds(case: &Case, factor: &Factor, [at, size]: [usize; 2], whole: &Tensor) -> bool {
    let attempt = || {
        let first = case.part(factor, size, &(0..at), whole)?;
        let rest = case.part(factor, size, &(at..size), whole)?;
        let merged = match factor.kind {
            Kind::Mapped => meshwork::tensor::concat(&[&first, &rest], factor.output? as isize),
            Kind::Sum | Kind::Picked => &first + &rest,
            Kind::Prod => &first * &rest,
            Kind::Max => first.maximum(&rest),
            _ => first.minimum(&rest),
        };
        Some(merged.to_bytes() == whole.to_bytes())
    };
    catch_unwind(AssertUnwindSafe(attempt)).ok().flatten().unwrap_or(false)
}
