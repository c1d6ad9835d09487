//! What a rule allows needs no collective.

use crate::operations::cut::Case;
use crate::{all, meshes, record};
use meshwork::Tensor;
use meshwork::graph::{Factor, Kind};
use meshwork::mesh::{Mesh, Placement};
use meshwork::tensor::last_plan;

/// The placement of a dimension of `extent` elements along a factor of `size` indices, where the factor may be cut.
fn along(factor: &Factor, size: usize, dim: usize, extent: usize) -> Placement {
    let unit = factor.granularity.unwrap_or(1) * Factor::step(size, extent);
    Placement::Split { dim, unit }
}

/// How a value lies when the dimensions that carry these factors, one for each axis, are split along them.
fn lying(case: &Case, factors: &[&Factor], whole: &Tensor, dims: &[Option<usize>], shape: &[usize]) -> Vec<Placement> {
    let one = |(factor, dim): (&&Factor, &Option<usize>)| match *dim {
        Some(d) => along(factor, case.size(factor, whole), d, shape[d]),
        None => Placement::Replicated,
    };
    factors.iter().zip(dims).map(one).collect()
}

/// The operands of a case on a mesh: those that are `split` along the factors that they carry, the others replicated.
fn operands(
    case: &Case,
    mesh: &Mesh,
    factors: &[&Factor],
    whole: &Tensor,
    split: impl Fn(usize) -> bool,
) -> Vec<Tensor> {
    let place = |(i, x): (usize, &Tensor)| {
        let carried = |factor: &&Factor| factor.inputs.get(i).copied().flatten().filter(|_| split(i));
        let dims: Vec<Option<usize>> = factors.iter().map(carried).collect();
        x.place(mesh, &lying(case, factors, whole, &dims, x.shape()))
    };
    case.inputs.iter().enumerate().map(place).collect()
}

/// Whether a factor can be cut, and its parts be computed from parts of the operands.
fn is_cut(case: &Case, factor: &Factor, whole: &Tensor) -> bool {
    let blocked = matches!(factor.kind, Kind::Sum | Kind::Prod);
    let cut =
        !matches!(factor.kind, Kind::Whole | Kind::Halo) && (!blocked || case.op.clone().blocking_mut().is_some());
    let carried = factor.inputs.iter().any(Option::is_some);
    cut && carried && case.size(factor, whole) > 1
}

/// Checks that operands that lie as factors say are computed with where they are; returns how many were tried.
fn check(case: &Case, mesh: &Mesh) -> usize {
    let whole = case.whole();
    let factors: Vec<Factor> = case.factors(&whole).into_iter().filter(|f| is_cut(case, f, &whole)).collect();
    let mut chosen: Vec<Vec<&Factor>> = vec![vec![]];
    for _ in mesh.axes() {
        chosen = chosen.iter().flat_map(|list| factors.iter().map(move |f| [&list[..], &[f]].concat())).collect();
    }
    for chosen in &chosen {
        let mut tries = vec![operands(case, mesh, chosen, &whole, |_| true)];
        // One operand that is split is enough: the others are there in any case.
        let carries = |i: &usize| chosen.iter().all(|factor| factor.inputs[*i].is_some());
        let ones = (0..case.inputs.len()).filter(carries);
        tries.extend(ones.map(|one| operands(case, mesh, chosen, &whole, |i| i == one)));
        let outputs: Vec<Option<usize>> = chosen.iter().map(|factor| factor.output).collect();
        let lies = lying(case, chosen, &whole, &outputs, whole.shape());
        let mapped = chosen.iter().all(|factor| factor.kind == Kind::Mapped);
        meshwork::synchronize();
        for operands in tries {
            let result = record(case, &operands);
            assert!(result.to_bytes() == whole.to_bytes(), "other bits of {} along {chosen:?}", case.name());
            nothing_moved("operands", case, mesh, chosen);
            if mapped {
                let result = record(case, &operands).place(mesh, &lies);
                assert!(result.to_bytes() == whole.to_bytes(), "other bits of {} along {chosen:?}", case.name());
                nothing_moved("operands or the result", case, mesh, chosen);
            }
        }
    }
    chosen.len()
}

/// Checks that the last plan has no collective, apart from those that merge a partial result to be read.
fn nothing_moved(what: &str, case: &Case, mesh: &Mesh, factors: &[&Factor]) {
    let plan = last_plan().expect("a plan");
    let moved = plan.exchanges.iter().filter(|exchange| exchange.user.is_some());
    let moved: Vec<String> = moved.map(|e| format!("{:?} from {:?} to {:?}", e.moves, e.from, e.to)).collect();
    let (name, types) = (case.name(), case.types());
    assert!(moved.is_empty(), "{what} of {name} of {types:?} move on {mesh} along {factors:#?}: {moved:#?}");
}

#[test]
fn operands_that_lie_as_a_rule_says_do_not_move() {
    let count: usize = meshes().iter().map(|mesh| all().iter().map(|case| check(case, mesh)).sum::<usize>()).sum();
    assert!(count > 0);
    println!("{count} ways to split");
}
