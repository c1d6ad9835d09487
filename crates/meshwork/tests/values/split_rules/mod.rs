//! The declared split rules are true and complete: an operation cut along a factor and merged gives the bits of the
//! whole, and no other cut of its operands does.

mod narrow;
mod search;

use crate::operations::cases::{cases, integer_cases};
use crate::operations::cut::{Case, cuts, sub_trees};
use meshwork::graph::canonical::{Blocking, Blocks};
use meshwork::graph::ops::{BinaryOp, Distribution, Element, Iota, Random, ToDevice};
use meshwork::graph::region::Region;
use meshwork::graph::{Factor, Kind, Op, Shape, Type};
use meshwork::{DType, Tensor};

/// Checks every cut of every factor of a case; returns how many factors were cut.
fn check(case: &Case) -> usize {
    let whole = case.whole();
    let mut cut = 0;
    for factor in case.factors(&whole).iter().filter(|factor| factor.kind != Kind::Whole) {
        let size = case.size(factor, &whole);
        let cuts = cuts(size, factor.granularity);
        for bounds in &cuts {
            let merged = case.merged(factor, size, bounds, &whole);
            assert!(
                merged.to_bytes() == whole.to_bytes(),
                "{} {:?} cut at {bounds:?} along {factor:?}",
                case.name(),
                case.types()
            );
        }
        cut += usize::from(!cuts.is_empty());
    }
    cut
}

#[test]
fn every_factor_can_be_cut() {
    let cut: usize = cases().iter().map(check).sum();
    assert!(cut >= 195, "only {cut} factors were cut");
}

#[test]
fn integers_are_cut_as_floats() {
    let cut: usize = integer_cases().iter().map(check).sum();
    assert!(cut >= 11, "only {cut} factors were cut");
}

#[test]
fn no_factor_is_missing() {
    for case in cases() {
        let missing = search::missing(&case, &case.factors(&case.whole()));
        assert!(missing.is_empty(), "{} {:?}: {missing:#?}", case.name(), case.types());
    }
}

#[test]
fn the_search_finds_every_factor_that_is_hidden_from_it() {
    for case in cases() {
        let (whole, found) = (case.whole(), search::missing(&case, &[]));
        for factor in case.factors(&whole) {
            let size = case.size(&factor, &whole);
            let same = |other: &Factor| {
                let place = |f: &Factor| (f.kind, f.inputs.clone(), f.output);
                place(other) == place(&factor) && case.size(other, &whole) == size
            };
            let can_be_cut = factor.kind != Kind::Whole && !cuts(size, factor.granularity).is_empty();
            assert_eq!(found.iter().any(same), can_be_cut, "{} {:?}: {factor:?}", case.name(), case.types());
        }
    }
}

#[test]
fn every_dimension_has_at_most_one_factor() {
    for case in cases() {
        let factors = case.factors(&case.whole());
        for input in 0..case.inputs.len() {
            for dim in 0..case.inputs[input].rank() {
                let count = factors.iter().filter(|factor| factor.inputs[input] == Some(dim)).count();
                assert!(count <= 1, "{}: {count} factors for dim {dim} of operand {input}", case.name());
            }
        }
    }
}

#[test]
fn a_value_goes_to_another_device_as_it_goes_through_an_elementwise_operation() {
    let ty = Type::new(DType::F32, [3, 4]);
    let rule = |op: Op| op.operation().rule(&[&ty], &ty);
    let copy = rule(ToDevice::new(0, 1).into());
    assert_eq!(copy, rule(Element::Cast(DType::F16).into()));
    assert_ne!(copy, Op::from(Element::Binary(BinaryOp::Add)).operation().rule(&[&ty, &ty], &ty));
}

#[test]
fn a_region_of_a_region_is_counted_from_the_whole() {
    let region = |starts: [usize; 2], sizes: [usize; 2]| Region {
        starts: starts.into_iter().collect(),
        sizes: sizes.into_iter().collect(),
    };
    for dim in 0..2 {
        let op = Op::from(Iota::new([9, 8], dim, DType::I32));
        let outer = op.of_region(&Shape::new(&[9, 8]), &region([2, 1], [6, 7]));
        let inner = outer.of_region(&Shape::new(&[6, 7]), &region([3, 4], [2, 3]));
        let want = Tensor::record(op, &[]).narrow(0, 5, 2).narrow(1, 5, 3);
        assert_eq!(Tensor::record(inner, &[]).to_bytes(), want.to_bytes());
    }
}

#[test]
fn regions_outside_of_the_whole_and_parts_of_permutations_are_refused() {
    let outside = || Some(Region { starts: [2].into_iter().collect(), sizes: [4].into_iter().collect() });
    let key = Type::new(DType::I64, []);
    let refused = |op: Op| op.operation().infer(&[&key]).unwrap_err().0;
    let iota = Iota { region: outside(), ..Iota::new([5], 0, DType::F32) };
    assert_eq!(refused(iota.into()), "iota: from [2], [4] elements do not lie inside [5]");
    let random =
        |distribution, size: usize, dtype| Random { region: outside(), ..Random::new(distribution, [size], dtype) };
    let normal = random(Distribution::Normal, 5, DType::F32);
    assert_eq!(refused(normal.into()), "normal: from [2], [4] elements do not lie inside [5]");
    let permutation = random(Distribution::Permutation, 6, DType::I64);
    assert_eq!(refused(permutation.into()), "permutation: cannot give i64[4]");
}

#[test]
fn a_part_with_the_blocks_of_the_whole_continues_its_tree() {
    let whole = Blocks::contraction(Blocking::Samples, 100, 1);
    for blocking in [Blocking::Every(whole.unit), Blocking::SamplesOf(100)] {
        let part = Blocks::contraction(blocking, 64, 1);
        assert_eq!((whole.unit, part.unit), (4, 4));
        assert_eq!(part.count(), 16);
    }
}

#[test]
fn cuts_lie_between_the_blocks() {
    assert_eq!(cuts(2, None), [[0, 1, 2]]);
    assert_eq!(cuts(10, Some(4)), [vec![0, 4, 10], vec![0, 4, 8, 10], vec![0, 8, 10]]);
    assert!(cuts(4, Some(4)).is_empty());
    assert_eq!(sub_trees(4..22, 22, 2), [(1, 4..8), (2, 8..16), (2, 16..22)]);
}
