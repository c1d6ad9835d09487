//! Embeddings, logits and cross entropy that are cut by the vocabulary (Shoeybi et al., *Megatron-LM*, 2019): what lies where,
//! and what moves. That no bit changes is tested with all layouts in `mesh_training`.

use meshwork::mesh::{Mesh, Placement, Plan, placed_parameters};
use meshwork::nn::{Module, Transformer, TransformerConfig};
use meshwork::optim::{AdamW, AdamWOptions, Optimizer};
use meshwork::tensor::{CrossEntropy, Reduction, last_plan, manual_seed, randn};
use meshwork::train::loss;
use meshwork::{Device, Tensor, graph};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The devices are those of the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    let guard = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    meshwork::set_cpu_devices(3).unwrap();
    guard
}

const LENGTH: usize = 8;

fn tokens(batch: usize, vocabulary: usize) -> Tensor {
    let tokens: Vec<i64> = (0..batch * LENGTH).map(|i| (i * 131 % vocabulary) as i64).collect();
    Tensor::from_slice(&tokens, &[batch, LENGTH])
}

/// A model on a mesh as its built-in plan says.
fn spread(config: TransformerConfig, words: &str) -> (Transformer, Mesh) {
    let plan = Plan { places: config.tensor_plan(), ..words.parse().unwrap() };
    let mesh = plan.mesh(&Device::cpus().unwrap()[..plan.devices()]).unwrap();
    let model = Transformer::new(config);
    plan.apply(&model, &mesh).unwrap();
    model.init(0);
    (model, mesh)
}

/// What a training step of some sequences runs.
fn step(config: TransformerConfig, words: &str, batch: usize) -> Arc<graph::plan::Plan> {
    let (model, mesh) = spread(config, words);
    let tokens = tokens(batch, config.vocabulary).batch_on(&mesh);
    let mut optimizer = AdamW::new(&model, AdamWOptions::default());
    let loss = loss(&model.forward(&tokens), &tokens);
    optimizer.step(model.gradients(&loss));
    last_plan().expect("a plan")
}

/// The sizes of all values that the kernels of each device read and write.
fn sizes(plan: &graph::plan::Plan, device: u32) -> BTreeSet<usize> {
    let of_device = plan.tasks.iter().filter_map(|task| match task {
        graph::plan::Task::Run { device: on, program, .. } if *on == device => Some(program),
        _ => None,
    });
    let steps = of_device.flat_map(|program| &program.steps);
    let shapes = steps.flat_map(|step| {
        let read = step.inputs.iter().map(|view| &view.ty.shape);
        read.chain(step.outputs.iter().map(|out| &out.ty.shape))
    });
    shapes.flat_map(|shape| shape.iter().copied()).collect()
}

#[test]
fn a_device_has_its_part_of_the_table_of_its_gradient_and_of_the_logits_and_never_all() {
    let _alone = alone();
    // In blocks of 128: 256 and 265 over two ranks, 128, 256 and 137 over three.
    for (words, parts) in [("tensor=2", &[256, 265][..]), ("tensor=3", &[128, 256, 137])] {
        for config in [TransformerConfig::gpt2(521, LENGTH, 1, 32, 2), TransformerConfig::llama(521, LENGTH, 1, 32, 2)]
        {
            let (model, mesh) = spread(config, words);
            let tables = placed_parameters(&model).into_iter().filter(|p| p.shape == [521, 32]);
            let tables: Vec<_> = tables.map(|p| (p.value[1], p.state[1])).collect();
            let rows = Placement::Split { dim: 0, unit: 128 };
            assert_eq!(tables, vec![(rows, rows); if config.tied { 1 } else { 2 }]);
            let logits = model.forward(&tokens(4, 521).batch_on(&mesh));
            assert_eq!(logits.placements().unwrap()[1], Placement::Split { dim: 2, unit: 128 });
            let plan = step(config, words, 4);
            for (device, &part) in parts.iter().enumerate() {
                let sizes = sizes(&plan, Device::cpus().unwrap()[device].id().0);
                // No dimension of anything else is larger.
                assert_eq!(sizes.last(), Some(&part), "device {device}: {sizes:?}");
            }
        }
    }
}

#[test]
fn what_moves_does_not_grow_with_the_vocabulary() {
    let _alone = alone();
    let gpt = |vocabulary| TransformerConfig::gpt2(vocabulary, LENGTH, 1, 32, 2);
    let llama = |vocabulary| TransformerConfig::llama(vocabulary, LENGTH, 1, 32, 2);
    for batch in [2, 4] {
        let moved = |config: TransformerConfig| step(config, "tensor=2", batch).moved();
        for model in [gpt as fn(usize) -> TransformerConfig, llama] {
            let all = [512, 1024, 2048].map(|vocabulary| moved(model(vocabulary)));
            assert_eq!(all, [all[0]; 3], "{batch} sequences");
        }
    }
}

/// Everything that moves for a loss and its gradient by the features, with how it was made.
fn of_a_loss(tokens: usize, width: usize, vocabulary: usize, ranks: usize) -> Vec<(&'static str, Vec<usize>, usize)> {
    manual_seed(1);
    let mesh = Mesh::new([("tensor", ranks)], &Device::cpus().unwrap()[..ranks]).unwrap();
    let table = randn(&[vocabulary, width]).place(&mesh, &[Placement::Split { dim: 0, unit: 128 }]);
    let features = randn(&[tokens, width]).place(&mesh, &[Placement::Replicated]);
    let classes = Tensor::from_slice(&vec![3i64; tokens], &[tokens]).place(&mesh, &[Placement::Replicated]);
    meshwork::synchronize();
    let features = features.variable();
    let loss = features.linear(&table, None).cross_entropy(&classes);
    let gradient = meshwork::tensor::grad(&loss, &[&features]);
    gradient[0].eval();
    let plan = last_plan().expect("a plan");
    plan.exchanges.iter().map(|e| (e.made_by, e.ty.shape.to_vec(), e.bytes)).collect()
}

#[test]
fn a_cross_entropy_moves_a_few_numbers_for_each_token_and_the_gradient_of_the_features() {
    let _alone = alone();
    let (tokens, width) = (16, 24);
    for vocabulary in [512, 1024, 2048] {
        let moves = of_a_loss(tokens, width, vocabulary, 2);
        for (made_by, shape, bytes) in &moves {
            let elements: usize = shape.iter().product();
            assert!(elements <= tokens * width, "{made_by} {shape:?} of {vocabulary} classes moves: {moves:?}");
            // An all-reduce between two ranks: what each has, both ways.
            assert!(*bytes <= 2 * 4 * elements, "{made_by} {shape:?} of {vocabulary} classes: {bytes} bytes");
        }
        let small: Vec<_> = moves.iter().filter(|(_, shape, _)| shape.iter().product::<usize>() == tokens).collect();
        let made_by: BTreeSet<&str> = small.iter().map(|(made_by, ..)| *made_by).collect();
        // The maximum, the sum of the exponentials, what the classes pick; the sum's gradient is merged and gathered.
        assert_eq!(made_by, BTreeSet::from(["div", "reshape"]), "{moves:?}");
        assert_eq!(small.len(), 5, "{moves:?}");
        let large = moves.iter().filter(|(_, shape, _)| shape.iter().product::<usize>() == tokens * width);
        assert_eq!(large.count(), 1, "{moves:?}");
    }
}

#[test]
fn a_cross_entropy_over_many_classes_is_two_passes_over_memory() {
    let _alone = alone();
    manual_seed(3);
    let (samples, classes) = (80, 5000);
    let logits = randn(&[samples, classes]);
    let target = Tensor::from_slice(&(0..samples as i64).collect::<Vec<_>>(), &[samples]);
    let logits = logits.variable();
    meshwork::synchronize();
    let loss = logits.cross_entropy(&target);
    meshwork::tensor::grad(&loss, &[&logits])[0].eval();
    let plan = last_plan().expect("a plan");
    let [program] = plan.programs().collect::<Vec<_>>()[..] else { panic!("one program") };
    let is_large = |shape: &graph::Shape| shape.numel() == samples * classes;
    let reads: Vec<usize> =
        program.steps.iter().map(|step| step.inputs.iter().filter(|view| is_large(&view.ty.shape)).count()).collect();
    // The logits; then their exponentials, from which the gradient comes.
    assert_eq!(reads.iter().sum::<usize>(), 2, "{program}");
    assert!(program.memory.arena < samples * classes * 4 * 11 / 10, "{program}");
}

/// Every kind of cross entropy, with its gradients, over logits that are cut by classes in all ways.
#[test]
fn every_cross_entropy_of_cut_logits_has_the_bits_of_one_device() {
    let _alone = alone();
    manual_seed(2);
    for classes in [65, 257, 1500, 5000] {
        // Enough rows that wide ones are one kernel where they are whole.
        let samples = 70;
        let logits = randn(&[samples, classes]) * 4.0;
        let weight = meshwork::tensor::rand(&[classes]);
        let target: Vec<i64> = (0..samples).map(|i| if i == 3 { -100 } else { (i * 911 % classes) as i64 }).collect();
        let target = Tensor::from_slice(&target, &[samples]);
        let values = |mesh: Option<(&Mesh, Placement)>| -> Vec<Vec<u8>> {
            let at = |x: &Tensor, placement| mesh.map_or_else(|| x.clone(), |(mesh, _)| x.place(mesh, &[placement]));
            let whole = Placement::Replicated;
            let cut = mesh.map_or(whole, |(_, cut)| cut);
            let (target, weight) = (at(&target, whole), at(&weight, whole));
            let mut values = Vec::new();
            for (weight, label_smoothing) in [(None, 0.0), (None, 0.1), (Some(&weight), 0.0), (Some(&weight), 0.2)] {
                for reduction in [Reduction::Mean, Reduction::None] {
                    let logits = at(&logits, cut).variable();
                    let options = CrossEntropy { weight, label_smoothing, reduction, ..CrossEntropy::default() };
                    let loss = options.loss(&logits, &target);
                    let gradient = meshwork::tensor::grad(&loss.sum(..), &[&logits]);
                    values.extend([loss.to_bytes(), gradient[0].to_bytes()]);
                }
            }
            values
        };
        let expected = values(None);
        for ranks in [2, 3] {
            let mesh = Mesh::new([("tensor", ranks)], &Device::cpus().unwrap()[..ranks]).unwrap();
            for unit in [1, 64, 128, 1024] {
                let found = values(Some((&mesh, Placement::Split { dim: 1, unit })));
                assert!(found == expected, "{classes} classes over {ranks} ranks in parts of {unit}");
            }
        }
    }
}

#[test]
fn a_class_or_a_token_that_does_not_exist_is_named_by_ranks_that_have_a_part() {
    let _alone = alone();
    let mesh = Mesh::new([("tensor", 2)], &Device::cpus().unwrap()[..2]).unwrap();
    let rows = Placement::Split { dim: 0, unit: 128 };
    let table = randn(&[300, 4]).place(&mesh, &[rows]);
    for wrong in [300i64, -1] {
        let index = Tensor::from_slice(&[0, wrong], &[2]).place(&mesh, &[Placement::Replicated]);
        let panic = catch_unwind(AssertUnwindSafe(|| table.embedding(&index).to_bytes())).expect_err("no such token");
        let said = panic.downcast_ref::<String>().expect("a text");
        assert!(said.contains(&format!("index {wrong} is out of range for dimension 0 of size 300")), "{said}");
    }
}

#[test]
fn a_vocabulary_of_one_block_stays_whole() {
    let rules = |vocabulary| TransformerConfig::llama(vocabulary, LENGTH, 1, 32, 2).tensor_plan();
    let cuts = |vocabulary: usize, name: &str| -> Option<Placement> {
        Some(rules(vocabulary).iter().find(|rule| rule.matches(name))?.placements[0].1)
    };
    for name in ["embedding.weight", "head.weight"] {
        assert_eq!(cuts(127, name), None);
        for (vocabulary, unit) in [(128, 64), (257, 128), (32_000, 1024), (50_257, 2048), (128_256, 4096)] {
            assert_eq!(cuts(vocabulary, name), Some(Placement::Split { dim: 0, unit }), "{vocabulary}");
        }
    }
    let tied = TransformerConfig::gpt2(512, LENGTH, 1, 32, 2).tensor_plan();
    assert!(tied.iter().all(|rule| !rule.matches("head.weight")));
}
