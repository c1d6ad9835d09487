//! How meshes and plans are used, and what they say when they are used in a wrong way.

use meshwork::mesh::{Merge, Mesh, MeshError, Placement, Plan, PlanError, Rule, Zero};
use meshwork::prelude::*;
use meshwork::tensor::{manual_seed, ones, randn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

fn devices(count: usize) -> Vec<Device> {
    static DEVICES: LazyLock<Vec<Device>> = LazyLock::new(|| {
        meshwork::set_cpu_devices(6).unwrap();
        Device::cpus().unwrap()
    });
    DEVICES[..count].to_vec()
}

fn mesh(axes: &[(&str, usize)]) -> Mesh {
    let ranks = axes.iter().map(|(_, size)| size).product();
    Mesh::new(axes.iter().copied(), &devices(ranks)).unwrap()
}

/// What a panic says.
fn panic_of<R>(body: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(body)).err().expect("a panic");
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).expect("a text")
}

fn model() -> Sequential {
    sequential![Linear::new(6, 8), Relu, Linear::new(8, 5)]
}

#[test]
fn meshes_that_cannot_be_are_refused() {
    let said =
        |axes: &[(&str, usize)], count| Mesh::new(axes.iter().copied(), &devices(count)).unwrap_err().to_string();
    assert_eq!(
        said(&[("data", 2), ("tensor", 2)], 3),
        "a mesh of data=2,tensor=2 has 4 ranks, but 3 devices were given: one for each rank"
    );
    assert_eq!(said(&[("data", 0)], 1), "the axis \"data\" of a mesh has size 0: it must have at least 1");
    assert_eq!(said(&[("data", 2), ("data", 2)], 4), "two axes of a mesh are called \"data\"");
    assert_eq!(said(&[], 1), "a mesh needs at least one axis");
    assert_eq!(Mesh::new([], &[]).unwrap_err(), MeshError::NoAxes);
}

#[test]
fn meshes_of_the_same_axes_and_devices_are_one() {
    let (a, b) = (mesh(&[("data", 2), ("tensor", 3)]), mesh(&[("data", 2), ("tensor", 3)]));
    assert!(a == b && a != mesh(&[("data", 3), ("tensor", 2)]) && a != mesh(&[("x", 2), ("tensor", 3)]));
    assert_eq!((a.size(), a.axis("tensor"), a.axis("other")), (6, Some(1), None));
    assert_eq!((a.axis_size("tensor"), a.axis_size("other")), (3, 1));
    assert_eq!(a.to_string(), "mesh(data=2,tensor=3)");
    assert_eq!(a.devices(), devices(6));
    let sum = ones(&[4], DType::F32).batch_on(&a) + ones(&[4], DType::F32).batch_on(&b);
    assert_eq!(sum.to_vec::<f32>(), [2.0; 4]);
}

#[test]
fn extrema_over_several_cut_dimensions_are_those_of_all_parts() {
    let mesh = mesh(&[("data", 2), ("tensor", 3)]);
    let shape = [5, 7];
    for place in [[Placement::split(0), Placement::split(1)], [Placement::split(1), Placement::split(0)]] {
        for i in 0..35 {
            let mut values = [0f32; 35];
            values[i] = 1.0;
            let values = Tensor::from_slice(&values, &shape).place(&mesh, &place);
            assert_eq!((values.amax(..).item(), (-values).amin(..).item()), (1.0, -1.0), "element {i}, {place:?}");
        }
    }
}

#[test]
fn a_device_may_have_several_ranks() {
    manual_seed(1);
    let all = devices(2);
    let x = randn(&[9, 4]);
    let expected = x.square().sum(0).to_bytes();
    for ranks in [vec![0, 0, 0], vec![0, 1, 0], vec![1, 1, 0]] {
        let ranks: Vec<Device> = ranks.into_iter().map(|i: usize| all[i].clone()).collect();
        let mesh = Mesh::new([("data", 3)], &ranks).unwrap();
        assert_eq!(x.batch_on(&mesh).square().sum(0).to_bytes(), expected);
    }
}

#[test]
fn placements_that_cannot_be_are_refused() {
    let mesh = mesh(&[("data", 2), ("tensor", 2)]);
    let x = ones(&[5, 7], DType::F32);
    let whole = Placement::Replicated;
    assert_eq!(
        panic_of(|| x.place(&mesh, &[whole])),
        "one placement for each axis of mesh(data=2,tensor=2), not [Replicated]"
    );
    let said = |placement| panic_of(|| x.place(&mesh, &[whole, placement]));
    assert_eq!(said(Placement::split(2)), "place: split(2) of f32[5, 7], which has 2 dimensions");
    assert_eq!(said(Placement::sharded(3)), "place: sharded(3) of f32[5, 7], which has 2 dimensions");
    let partial = said(Placement::Partial(Merge::Sum));
    assert_eq!(partial, "place: partial(sum) comes from computing and cannot be asked for");
    assert_eq!(panic_of(|| x.redistribute(&[whole])), "Tensor(f32[5, 7]) is on no mesh: place it on one first");
    let placed = x.place(&mesh, &[whole, whole]);
    assert_eq!(
        panic_of(|| placed.redistribute(&[whole, Placement::split(9)])),
        "place: split(9) of f32[5, 7], which has 2 dimensions"
    );
    let number = Tensor::from_slice(&[1f32], &[]);
    let said = panic_of(|| number.batch_on(&mesh));
    assert_eq!(said, "a batch has its samples in dimension 0; this tensor has no dimension");
}

#[test]
fn tensors_of_different_meshes_are_brought_together_by_hand() {
    let (one, other) = (mesh(&[("data", 2)]), mesh(&[("data", 3)]));
    let x = ones(&[6], DType::F32);
    let (a, b) = (x.batch_on(&one), x.batch_on(&other));
    let said = panic_of(|| &a + &b);
    assert_eq!(said, "add: operands on mesh(data=2) and mesh(data=3): bring them together with .to(&device)");
    assert_eq!((a + b.batch_on(&one)).to_vec::<f32>(), [2.0; 6]);
    assert_eq!((b.to(&devices(6)[4]) + x.to(&devices(6)[4])).to_vec::<f32>(), [2.0; 6]);
}

#[test]
fn a_tensor_says_how_it_lies() {
    let mesh = mesh(&[("data", 2), ("tensor", 2)]);
    let (x, w) = (randn(&[32, 6]), randn(&[8, 6]));
    assert_eq!(x.placements(), None);
    assert!(x.mesh().is_none());
    let x = x.place(&mesh, &[Placement::split(0), Placement::Replicated]);
    let rows = Placement::Split { dim: 0, unit: 4 };
    assert_eq!(x.placements().unwrap(), [rows, Placement::Replicated]);
    assert_eq!(x.mesh(), Some(mesh.clone()));
    let w = w.place(&mesh, &[Placement::Replicated, Placement::split(0)]);
    let y = x.linear(&w, None);
    let dims = |t: &Tensor| t.placements().unwrap().iter().map(|p| p.cut().map(|cut| cut.0)).collect::<Vec<_>>();
    assert_eq!(dims(&y), [Some(0), Some(1)]);
    assert_eq!(dims(&y.t()), [Some(1), Some(0)]);
    // What is kept of a sum is merged.
    assert_eq!(dims(&y.sum(0)), [None, Some(0)]);
    assert_eq!(dims(&y.redistribute(&[Placement::Replicated, Placement::split(1)])), [None, Some(1)]);
}

/// A value that is asked for as it lies stays where it is.
#[test]
fn redistributing_to_the_same_placements_moves_nothing() {
    let mesh = mesh(&[("a", 2), ("b", 3)]);
    let placements = [Placement::split(1), Placement::split(0)];
    let x = randn(&[7, 9]);
    let placed = x.place(&mesh, &placements);
    placed.eval();
    let again = placed.redistribute(&placements);
    again.eval();

    drop(placed);
    assert_eq!((&again * 2.0).to_bytes(), (&x * 2.0).to_bytes());
    assert_eq!(again.to_bytes(), x.to_bytes());
}

#[test]
fn a_batch_from_a_device_enters_the_mesh_by_itself() {
    manual_seed(3);
    for (axes, dims) in [(vec![("data", 3)], vec![Some(0)]), (vec![("data", 2), ("tensor", 2)], vec![Some(0), None])] {
        let mesh = mesh(&axes);
        let (model, other) = (model(), model());
        model.init(1);
        other.init(1);
        model.on(&mesh);
        let (x, y) = (randn(&[24, 6]), Tensor::from_slice(&[2i64; 24], &[24]));
        let (got, expected) = (model.forward(&x), other.forward(&x));
        let lies: Vec<_> = got.placements().unwrap().iter().map(|p| p.cut().map(|cut| cut.0)).collect();
        assert_eq!(lies, dims, "{mesh}");
        assert_eq!(got.to_bytes(), expected.to_bytes());
        let (loss, expected) = (model.forward(&x).cross_entropy(&y), other.forward(&x).cross_entropy(&y));
        let (gradients, others) = (model.gradients(&loss), other.gradients(&expected));
        assert_eq!(loss.to_bytes(), expected.to_bytes());
        for ((_, a), (_, b)) in gradients.iter().zip(others.iter()) {
            assert_eq!(a.to_bytes(), b.to_bytes());
        }
        // From another device than the first, too.
        let there = x.to(&devices(6)[5]);
        assert_eq!(model.forward(&there).to_bytes(), other.forward(&x).to_bytes());
    }
}

#[test]
fn one_line_trains_a_model_on_all_devices() {
    let train = |mesh: Option<&Mesh>| {
        let model = model();
        model.init(2);
        mesh.into_iter().for_each(|mesh| model.on(mesh));
        let mut optimizer = optim::Sgd::new(&model, optim::SgdOptions { momentum: 0.9, ..optim::SgdOptions::new(0.1) });
        for step in 0..5 {
            manual_seed(step);
            let (x, y) = (randn(&[15, 6]), Tensor::from_slice(&(0..15).map(|i| i % 5).collect::<Vec<i64>>(), &[15]));
            optimizer.step(model.gradients(&model.forward(&x).cross_entropy(&y)));
        }
        model.state().into_iter().map(|(_, value)| value.to_bytes()).collect::<Vec<_>>()
    };
    let expected = train(None);
    for ranks in [1, 2, 5] {
        assert!(train(Some(&mesh(&[("data", ranks)]))) == expected, "{ranks} ranks");
    }
}

#[test]
fn plans_that_do_not_fit_the_devices_are_refused() {
    let said = |plan: &str, count| plan.parse::<Plan>().unwrap().mesh(&devices(count)).unwrap_err().to_string();
    assert_eq!(
        said("data=2,tensor=2", 3),
        "the plan needs 4 devices (data=2, sequence=1, tensor=2), and there are 3: choose axes whose product is 3, or 4 devices"
    );
    assert_eq!(
        said("tensor=2", 3),
        "the plan needs 2 devices (data=1, sequence=1, tensor=2), and there are 3: 3 is no multiple of 2"
    );
    let axes = |plan: &str, count| plan.parse::<Plan>().unwrap().mesh(&devices(count)).unwrap().to_string();
    assert_eq!(axes("tensor=2", 4), "mesh(data=2,tensor=2)");
    assert_eq!(axes("", 3), "mesh(data=3)");
    assert_eq!(axes("data=1,sequence=2,tensor=2,accumulate=3", 4), "mesh(data=1,sequence=2,tensor=2,accumulate=3)");
}

#[test]
fn plans_that_do_not_fit_the_model_are_refused_and_change_nothing() {
    let mesh = mesh(&[("data", 2), ("tensor", 2)]);
    let model = model();
    model.init(1);
    let apply =
        |rule: Rule| Plan { tensor: 2, places: vec![rule], ..Plan::default() }.apply(&model, &mesh).unwrap_err();
    let said = |rule| apply(rule).to_string();
    let split = |name: &str, axis, dim| Rule::new(name, [(axis, Placement::split(dim))]);
    assert_eq!(said(split("0.wieght", "tensor", 0)), "no parameter is called \"0.wieght\" (did you mean 0.weight?)");
    assert_eq!(said(split("*.attention.qkv.*", "tensor", 0)), "no parameter is called \"*.attention.qkv.*\"");
    assert_eq!(
        said(split("0.weight", "tensor", 2)),
        "0.weight [8, 6] cannot be split(2) along tensor: it has 2 dimensions"
    );
    assert_eq!(
        said(split("0.weight", "tenser", 0)),
        "0.weight [8, 6] cannot be split(0) along tenser: the axes are data, tensor"
    );
    let partial = Rule::new("2.*", [("tensor", Placement::Partial(Merge::Sum))]);
    assert_eq!(
        said(partial),
        "2.weight [5, 8] cannot be partial(sum) along tensor: parts of sums come from computing alone"
    );
    assert!(model.parameters().iter().all(|p| p.value().mesh().is_none()), "the model is on the mesh");
    let no_mesh: PlanError = MeshError::NoAxes.into();
    assert_eq!(no_mesh.to_string(), "a mesh needs at least one axis");
}

#[test]
fn patterns_place_parameters_and_the_first_that_matches_counts() {
    let mesh = mesh(&[("data", 2), ("tensor", 2)]);
    let model = model();
    let split =
        |name: &str, dim| Rule::new(name, [("tensor", Placement::split(dim)), ("sequence", Placement::split(0))]);
    let places = vec![split("2.weight", 1), split("?.weight", 0)];
    Plan { tensor: 2, zero: Zero::Parameters, places, ..Plan::default() }.apply(&model, &mesh).unwrap();
    let lies = |p: &Parameter| p.value().placements().unwrap().iter().map(ToString::to_string).collect::<Vec<_>>();
    let lies: Vec<_> =
        model.named_parameters().iter().map(|(name, p)| format!("{name}: {}", lies(p).join(", "))).collect();
    assert_eq!(
        lies,
        [
            "0.weight: sharded(1), split(0)",
            "0.bias: sharded(0), replicated",
            "2.weight: sharded(0), split(1)",
            "2.bias: sharded(0), replicated"
        ]
    );
}
