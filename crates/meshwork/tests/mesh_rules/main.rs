//! Every operation through the split pass: however its operands and its result are placed, on every small mesh, it has
//! the bits of one device; and what its rule allows, the pass does without moving an operand.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/operations/mod.rs"]
mod operations;

mod placements;
mod stays;

use meshwork::Device;
use meshwork::mesh::{Mesh, Placement};
use meshwork::prelude::*;
use operations::cases::{cases, integer_cases, narrow_cases};
use operations::cut::Case;
use placements::{Choices, choices, describe};
use std::sync::LazyLock;

/// Meshes of one axis of two and of three ranks, and of two axes.
fn meshes() -> [Mesh; 3] {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        meshwork::set_cpu_devices(4).unwrap();
        Device::cpus().unwrap()
    });
    let mesh = |axes: &[(&str, usize)], ranks: usize| Mesh::new(axes.iter().copied(), &DEVICES[..ranks]).unwrap();
    [mesh(&[("a", 2)], 2), mesh(&[("a", 3)], 3), mesh(&[("a", 2), ("b", 2)], 4)]
}

/// All cases, of all dtypes.
fn all() -> Vec<Case> {
    let narrow = [DType::F16, DType::BF16].into_iter().flat_map(narrow_cases);
    cases().into_iter().chain(integer_cases()).chain(narrow).collect()
}

/// The case's operation on tensors that lie somewhere.
fn record(case: &Case, inputs: &[Tensor]) -> Tensor {
    Tensor::record(case.op.clone(), &inputs.iter().collect::<Vec<_>>())
}

/// Compares a case in all its placements on a mesh with one device; says how many there were.
fn check(case: &Case, mesh: &Mesh) -> usize {
    let whole = case.whole();
    let expected = whole.to_bytes();
    let units: &[usize] = if mesh.axes().len() == 1 { &[0, 3] } else { &[0] };
    let shapes = || case.inputs.iter().map(|x| x.shape().to_vec()).chain([whole.shape().to_vec()]);
    let lists: Vec<Vec<Vec<Placement>>> = shapes().map(|shape| choices(&shape, mesh.axes().len(), units)).collect();
    let placed = |i: usize, lies: &Vec<Placement>| case.inputs[i].place(mesh, lies);
    let placed: Vec<Vec<Tensor>> =
        (0..case.inputs.len()).map(|i| lists[i].iter().map(|lies| placed(i, lies)).collect()).collect();
    meshwork::synchronize();
    let mut count = 0;
    for chosen in Choices::of(&lists.iter().map(Vec::len).collect::<Vec<_>>(), 2500) {
        let (out, inputs) = chosen.split_last().expect("a result");
        let operands: Vec<Tensor> = inputs.iter().enumerate().map(|(i, &n)| placed[i][n].clone()).collect();
        let result = record(case, &operands).place(mesh, &lists[inputs.len()][*out]);
        let lie = || chosen.iter().zip(&lists).map(|(&n, list)| describe(&list[n])).collect::<Vec<_>>().join(", ");
        let (name, types) = (case.name(), case.types());
        assert!(
            result.to_bytes() == expected,
            "other bits of {name} of {types:?} on {mesh}: operands and result lie {}",
            lie()
        );
        count += 1;
    }
    count
}

/// All cases on one of the meshes.
fn check_all(mesh: usize) {
    let mesh = &meshes()[mesh];
    let count: usize = all().iter().map(|case| check(case, mesh)).sum();
    println!("{count} placements on {mesh}");
}

#[test]
fn every_operation_is_the_same_in_every_placement_over_two_ranks() {
    check_all(0);
}

#[test]
fn every_operation_is_the_same_in_every_placement_over_three_ranks() {
    check_all(1);
}

#[test]
fn every_operation_is_the_same_in_every_placement_over_two_axes() {
    check_all(2);
}
