//! Averaged weights: their formula, steps that come to nothing, checkpoints, and that nothing else changes.

use meshwork::Tensor;
use meshwork::checkpoint::Folder;
use meshwork::data::{ArrayDataset, DataPair, Dataset};
use meshwork::nn::{Linear, Module, Relu, Sequential};
use meshwork::optim::{AdamW, AdamWOptions, Constant, Ema, Guard, Optimizer, Sgd, SgdOptions, with_averaged};
use meshwork::sequential;
use meshwork::train::{Event, Length, Saving, TrainSettings, Trainer};
use std::sync::Arc;

fn model() -> Sequential {
    let model = sequential![Linear::new(3, 8), Relu, Linear::new(8, 2)];
    model.init(4);
    model
}

fn weights(model: &impl Module) -> Vec<f32> {
    model.parameters().iter().flat_map(|p| p.value().to_vec::<f32>()).collect()
}

fn batch(seed: usize) -> (Tensor, Tensor) {
    let values: Vec<f32> = (0..24).map(|i| ((i * 7919 + 31 * seed) % 101) as f32 / 50.0 - 1.0).collect();
    (Tensor::from_slice(&values, &[8, 3]), Tensor::from_slice(&[0i64, 1, 1, 0, 1, 0, 0, 1], &[8]))
}

fn step(model: &Sequential, optimizer: &mut dyn Optimizer, seed: usize) {
    let (x, y) = batch(seed);
    let loss = model.forward(&x).cross_entropy(&y);
    optimizer.step(model.gradients(&loss));
}

#[test]
fn averages_are_those_of_the_formula_and_weights_those_without() {
    for ema in [Ema { decay: 0.9, warmup: false }, Ema { decay: 0.9, warmup: true }] {
        let (plain, averaged) = (model(), model());
        let mut bare = AdamW::new(&plain, AdamWOptions::default());
        let mut optimizer = AdamW::new(&averaged, AdamWOptions::default());
        optimizer.average(ema);
        assert!(bare.averaged().is_none());
        let mut expected = weights(&averaged);
        for n in 0..12 {
            step(&plain, &mut bare, n);
            step(&averaged, &mut optimizer, n);
            let now = weights(&averaged);
            assert!(now == weights(&plain), "averaging changes no weight");
            let decay = match n {
                0 => 0.0,
                n if ema.warmup => 0.9f64.min((1.0 + n as f64) / (10.0 + n as f64)),
                _ => 0.9,
            };
            expected.iter_mut().zip(&now).for_each(|(e, w)| *e = *e * decay as f32 + *w * (1.0 - decay) as f32);
            let got = with_averaged(&optimizer, || weights(&averaged)).unwrap();
            assert!(got == expected, "step {n}, {ema:?}");
            assert!(weights(&averaged) == now, "the weights are back");
        }
        assert!(expected != weights(&averaged));
    }
}

#[test]
fn a_step_that_is_stopped_is_not_averaged() {
    let model = model();
    let mut optimizer = Sgd::new(&model, SgdOptions::new(0.1));
    optimizer.average(Ema { decay: 0.5, warmup: false });
    let mut guard = Guard::new(&model);
    let mut guarded = |factor: f64, optimizer: &mut Sgd| {
        guard.begin(optimizer);
        let (x, y) = batch(1);
        let loss = model.forward(&x).cross_entropy(&y) * factor;
        let gradients = model.gradients(&loss);
        guard.examine(&loss, &gradients);
        guard.step(optimizer, gradients);
        guard.settle(optimizer)
    };
    guarded(1.0, &mut optimizer).unwrap();
    guarded(1.0, &mut optimizer).unwrap();
    let average = |optimizer: &Sgd| with_averaged(optimizer, || weights(&model)).unwrap();
    let before = average(&optimizer);
    guarded(f64::NAN, &mut optimizer).unwrap_err();
    assert!(average(&optimizer) == before);
    guarded(1.0, &mut optimizer).unwrap();
    assert!(average(&optimizer) != before);
}

#[test]
#[should_panic(expected = "the decay of an average is in 0..1, not 1")]
fn a_decay_that_makes_no_sense_is_refused() {
    Sgd::new(&model(), SgdOptions::new(0.1)).average(Ema { decay: 1.0, warmup: false });
}

fn trainer(settings: TrainSettings, steps: u64) -> Trainer<Sequential> {
    let points: Vec<f32> = (0..90).map(|i| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect();
    let labels: Vec<i64> = points.chunks(3).map(|p| i64::from(p.iter().sum::<f32>() > 0.0)).collect();
    let data = ArrayDataset::new().with_field("point", [3], points).unwrap().with_field("label", [], labels).unwrap();
    let data: Arc<dyn Dataset> = Arc::new(data.with_num_classes(2).unwrap());
    let data = DataPair { name: "points".into(), origin: "made up".into(), train: data.clone(), test: data };
    let model = model();
    let optimizer = AdamW::new(&model, AdamWOptions::default());
    let length = Length { epochs: None, steps: Some(steps) };
    let settings = TrainSettings { batch_size: 8, length, ema: Some(Ema { decay: 0.8, warmup: true }), ..settings };
    Trainer::new(model, optimizer, Constant { lr: 0.01 }, data, settings)
}

#[test]
fn a_resumed_training_goes_on_averaging_with_the_same_bits_and_the_average_is_saved() {
    let run = |folder: &Folder, steps: u64, resume: bool| {
        let saving = Some(Saving { folder: folder.clone(), every: None });
        let mut trainer = trainer(TrainSettings { saving, ..Default::default() }, steps);
        if resume {
            trainer.resume(&folder.load().unwrap()).unwrap();
        }
        let mut epochs = Vec::new();
        let outcome = trainer
            .run(&mut |event| {
                if let Event::Epoch(epoch) = event {
                    epochs.push((epoch.test, epoch.averaged.expect("averaged weights are judged, too")));
                }
            })
            .unwrap();
        let checkpoint = folder.load().unwrap();
        let averaged: Vec<Vec<u8>> = checkpoint.averaged().unwrap().iter().map(|(_, t)| t.to_bytes()).collect();
        assert!(averaged != checkpoint.model().iter().map(|(_, t)| t.to_bytes()).collect::<Vec<_>>());
        let other = model();
        assert!(checkpoint.load_averaged(&other).unwrap());
        assert!(folder.path().join("ema.safetensors").exists());
        let averages = checkpoint.optimizer().tensors.iter().filter(|(name, _)| name.starts_with("ema."));
        assert_eq!(averages.count(), 4);
        (outcome.averaged.unwrap(), averaged, weights(&other))
    };
    let (whole, parts) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = run(&Folder::new(whole.path()), 9, false);
    let parts = Folder::new(parts.path());
    run(&parts, 5, false);
    assert!(run(&parts, 9, true) == expected);
}
