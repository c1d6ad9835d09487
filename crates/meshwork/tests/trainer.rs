//! The trainer: events, resuming in the middle of epochs, partial batches, dropout, layouts.

use meshwork::checkpoint::Folder;
use meshwork::data::{ArrayDataset, DataPair, Dataset, Order};
use meshwork::nn::{Dropout, Layer, Linear, Module};
use meshwork::optim::{Adam, AdamOptions, Constant, Cosine, LossScaleOptions};
use meshwork::tensor::Precision;
use meshwork::train::{Event, Length, Mlp, Saving, StepDone, TrainError, TrainSettings, Trainer, loss};
use meshwork::{Device, Tensor};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A model with random sites.
#[derive(Debug, Module)]
struct Small {
    fc1: Linear,
    dropout: Dropout,
    fc2: Linear,
}

impl Layer for Small {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&self.dropout.forward(&self.fc1.forward(x).relu()))
    }
}

fn model() -> Small {
    let model = Small { fc1: Linear::new(3, 16), dropout: Dropout::new(0.5), fc2: Linear::new(16, 2) };
    model.init(5);
    model
}

fn points_of(count: usize) -> Vec<f32> {
    (0..3 * count).map(|i| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect()
}

/// Points of three numbers; the class is the sign of their sum.
fn points(count: usize) -> Arc<dyn Dataset> {
    let values = points_of(count);
    let labels: Vec<i64> = values.chunks(3).map(|p| i64::from(p.iter().sum::<f32>() > 0.0)).collect();
    let data = ArrayDataset::new().with_field("point", [3], values).unwrap().with_field("label", [], labels).unwrap();
    Arc::new(data.with_num_classes(2).unwrap())
}

fn data() -> DataPair {
    DataPair { name: "points".into(), origin: "made up".into(), train: points(50), test: points(33) }
}

fn settings(steps: u64) -> TrainSettings {
    TrainSettings {
        batch_size: 8,
        order: Order::Shuffled { seed: 5 },
        length: Length { epochs: None, steps: Some(steps) },
        test_batch_size: Some(10),
        ..TrainSettings::default()
    }
}

fn trainer(settings: TrainSettings) -> Trainer<Small> {
    let model = model();
    let optimizer = Adam::new(&model, AdamOptions::default());
    let schedule = Cosine { lr: 0.01, period: 20, eta_min: 0.0 };
    Trainer::new(model, optimizer, schedule, data(), settings)
}

/// Everything that a run tells, as text, and its weights.
fn run(mut trainer: Trainer<Small>) -> (Vec<String>, Vec<Vec<f32>>) {
    let mut told = Vec::new();
    trainer
        .run(&mut |event| match event {
            Event::Step(s) => told.push(format!("step {} {} {} {} {}", s.step, s.epoch, s.loss, s.lr, s.samples)),
            Event::Epoch(e) => told.push(format!("epoch {} {} {} {}", e.epoch, e.step, e.train_loss, e.test.accuracy)),
            _ => {}
        })
        .unwrap();
    (told, trainer.model().state().into_iter().map(|(_, t)| t.to_vec()).collect())
}

#[test]
fn every_step_and_epoch_is_told_once_in_order() {
    let (told, _) = run(trainer(settings(16)));
    let kinds: Vec<&str> = told.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let epoch = ["step", "step", "step", "step", "step", "step", "step", "epoch"];
    assert_eq!(kinds, [&epoch[..], &epoch[..], &["step", "step"]].concat());
    assert!(told[6].starts_with("step 7 1 ") && told[6].ends_with(" 2"), "the last batch is partial: {}", told[6]);
    assert!(told[7].starts_with("epoch 1 7 "), "{}", told[7]);
    assert!(told[8].starts_with("step 8 2 "), "{}", told[8]);
}

#[test]
fn a_run_resumed_after_any_step_goes_on_with_the_same_bits() {
    let whole = run(trainer(settings(16)));
    for stop in 1..16 {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path().join("run"));
        let saving = Some(Saving { folder: folder.clone(), every: None });
        let (mut told, _) = run(trainer(TrainSettings { saving, ..settings(stop) }));
        let mut resumed = trainer(settings(16));
        resumed.resume(&folder.load().unwrap()).unwrap();
        assert_eq!(resumed.step(), stop);
        let (rest, weights) = run(resumed);
        told.extend(rest);
        assert!((told, weights) == whole, "stopped after step {stop}");
    }
}

#[test]
fn a_run_in_another_precision_is_resumed_in_it_with_the_same_bits() {
    for precision in [Precision::BF16, Precision::F16] {
        // Too large at first, and growing again soon.
        let loss_scale = LossScaleOptions { initial: (1u64 << 26) as f64, interval: 2, ..Default::default() };
        let settings = |steps| TrainSettings { precision, loss_scale, max_norm: Some(0.5), ..settings(steps) };
        let whole = run(trainer(settings(16)));
        assert!(whole != run(trainer(TrainSettings { precision: Precision::F32, ..settings(16) })));
        for stop in [1, 3, 8, 11] {
            let folder = tempfile::tempdir().unwrap();
            let folder = Folder::new(folder.path().join("run"));
            let saving = Some(Saving { folder: folder.clone(), every: None });
            let (mut told, _) = run(trainer(TrainSettings { saving, ..settings(stop) }));
            let checkpoint = folder.load().unwrap();
            assert_eq!(checkpoint.state().precision, precision);
            let mut resumed = trainer(settings(16));
            resumed.resume(&checkpoint).unwrap();
            let (rest, weights) = run(resumed);
            told.extend(rest);
            assert!((told, weights) == whole, "{precision} stopped after step {stop}");
        }
    }
}

#[test]
fn skipped_steps_are_told_and_counted() {
    let loss_scale = LossScaleOptions { initial: (1u64 << 26) as f64, ..Default::default() };
    let settings = TrainSettings { precision: Precision::F16, loss_scale, metrics: true, ..settings(16) };
    let mut trainer = trainer(settings);
    let mut steps: Vec<StepDone> = Vec::new();
    let observe = &mut |event: Event<'_>| {
        if let Event::Step(step) = event {
            steps.push(step);
        }
    };
    let outcome = trainer.run(observe).unwrap();
    let scales: Vec<_> = steps.iter().map(|step| step.loss_scale.unwrap()).collect();
    let skipped = scales.iter().filter(|scale| scale.is_skipped).count();
    assert!(skipped > 2 && skipped < 16, "{skipped} steps were skipped");
    for (step, next) in scales.iter().zip(&scales[1..]) {
        assert_eq!(next.scale, if step.is_skipped { step.scale / 2.0 } else { step.scale });
    }
    for (step, scale) in steps.iter().zip(&scales) {
        assert!(step.loss.is_finite());
        assert_eq!(step.gradient_norm.unwrap().is_finite(), !scale.is_skipped);
    }
    let state = outcome.loss_scale.unwrap();
    assert_eq!((state.skipped, state.scale), (skipped as u64, scales[15].scale));
}

#[test]
fn a_run_ends_whose_gradients_are_finite_with_no_scale() {
    let loss_scale = LossScaleOptions { initial: 4.0, ..Default::default() };
    let mut trainer = trainer(TrainSettings { precision: Precision::F16, loss_scale, ..settings(16) });
    trainer.model().fc1.weight.set(Tensor::from_slice(&[f32::NAN; 48], &[16, 3]));
    let error = trainer.run(&mut |_| {}).unwrap_err().to_string();
    // Those with scales of 4 and 2 are skipped.
    assert!(error.starts_with("step 3, learning rate "), "{error}");
    assert!(error.contains(": the loss is NaN, and "), "{error}");
    assert_eq!(trainer.step(), 2);
}

#[test]
fn threads_and_saving_change_nothing() {
    let whole = run(trainer(settings(16)));
    let folder = tempfile::tempdir().unwrap();
    let saving = Some(Saving { folder: Folder::new(folder.path()), every: Some(3) });
    let device = Device::cpu(0).unwrap();
    let threads = device.num_threads();
    device.set_num_threads(threads + 2).unwrap();
    let again = run(trainer(TrainSettings { saving, test_batch_size: Some(33), ..settings(16) }));
    device.set_num_threads(threads).unwrap();
    assert!(whole == again);
}

#[test]
fn metrics_change_nothing_and_say_what_a_step_took() {
    let steps = |settings: TrainSettings| {
        let mut trainer = trainer(settings);
        let mut steps: Vec<StepDone> = Vec::new();
        let observe = &mut |event: Event<'_>| {
            if let Event::Step(step) = event {
                steps.push(step);
            }
        };
        trainer.run(observe).unwrap();
        let weights: Vec<Vec<f32>> = trainer.model().state().into_iter().map(|(_, t)| t.to_vec()).collect();
        (steps, weights)
    };
    let (plain, weights) = steps(settings(16));
    let (measured, with_metrics) = steps(TrainSettings { metrics: true, ..settings(16) });
    // A norm that is never reached: gradients are multiplied by 1.
    let (clipped, with_clipping) = steps(TrainSettings { max_norm: Some(1e9), ..settings(16) });
    assert!(weights == with_metrics && weights == with_clipping);
    assert!(plain.iter().all(|step| step.gradient_norm.is_none() && step.cost.is_none()));
    for ((plain, measured), clipped) in plain.iter().zip(&measured).zip(&clipped) {
        assert_eq!((plain.loss, plain.step, plain.lr), (measured.loss, measured.step, measured.lr));
        assert!(measured.gradient_norm.unwrap() > 0.0);
        assert_eq!(measured.gradient_norm, clipped.gradient_norm);
        assert!(clipped.cost.is_none());
        assert!((measured.seconds() * measured.samples_per_second - measured.samples as f64).abs() < 1e-6);
    }
    let flops = |step: usize| measured[step - 1].cost.unwrap().flops;
    // Three products of 8 samples by each matrix, but for the gradient of the points; the partial batch has 2 samples.
    assert!(flops(1) > 8 * 2 * (2 * 3 * 16 + 3 * 16 * 2) && flops(7) < flops(1) && flops(8) == flops(1));
    let memory = measured.iter().map(|step| step.cost.unwrap().peak_memory);
    assert!(memory.clone().all(|bytes| bytes > 4 * (3 * 16 + 16 + 16 * 2 + 2)) && memory.is_sorted());
}

#[test]
fn the_gradient_norm_is_that_of_all_gradients_together() {
    let model = Linear::new(3, 2);
    model.init(5);
    let points = Tensor::from_slice(&points_of(8), &[8, 3]);
    let classes: Vec<i64> = points_of(8).chunks(3).map(|p| i64::from(p.iter().sum::<f32>() > 0.0)).collect();
    let gradients = model.gradients(&loss(&model.forward(&points), &Tensor::from_slice(&classes, &[8])));
    let squares = gradients.iter().flat_map(|(_, gradient)| gradient.to_vec::<f32>()).map(|x| f64::from(x).powi(2));
    let norm = squares.sum::<f64>().sqrt();

    let model = Linear::new(3, 2);
    model.init(5);
    let optimizer = Adam::new(&model, AdamOptions::default());
    let settings = TrainSettings { metrics: true, order: Order::Sequential, ..settings(1) };
    let mut trainer = Trainer::new(model, optimizer, Constant { lr: 0.1 }, data(), settings);
    let mut told = None;
    trainer
        .run(&mut |event| {
            if let Event::Step(step) = event {
                told = step.gradient_norm;
            }
        })
        .unwrap();
    assert!((told.unwrap() - norm).abs() < 1e-6 * norm, "{told:?}, {norm}");
}

#[test]
fn an_interrupted_run_finishes_its_step_and_saves() {
    let folder = tempfile::tempdir().unwrap();
    let folder = Folder::new(folder.path());
    let stop = Arc::new(AtomicBool::new(false));
    let saving = Some(Saving { folder: folder.clone(), every: None });
    let mut trainer = trainer(TrainSettings { saving, stop: stop.clone(), ..settings(1000) });
    let mut steps = 0;
    let outcome = trainer.run(&mut |event| {
        if let Event::Step(step) = event {
            steps = step.step;
            stop.store(step.step >= 4, Ordering::Relaxed);
        }
    });
    let outcome = outcome.unwrap();
    assert!(outcome.interrupted && outcome.test.is_none());
    assert_eq!(outcome.step, steps, "all losses have been told");
    assert_eq!(folder.load().unwrap().state().step, steps);
}

#[test]
fn only_the_own_run_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = Folder::new(folder.path());
    let saving = Some(Saving { folder: folder.clone(), every: None });
    run(trainer(TrainSettings { saving, ..settings(2) }));
    let checkpoint = folder.load().unwrap();

    let refused = |mut trainer: Trainer<Small>| trainer.resume(&checkpoint).unwrap_err().to_string();
    let text = refused(trainer(TrainSettings { seed: 1, ..settings(4) }));
    assert!(text.ends_with("the run that was saved has the seed 0, this one 1; resume with 0"), "{text}");
    let text = refused(trainer(TrainSettings { model: "lenet".into(), ..settings(4) }));
    assert!(text.ends_with("the run that was saved has the model model, this one lenet; resume with model"), "{text}");

    let text = refused(trainer(TrainSettings { precision: Precision::BF16, ..settings(4) }));
    assert!(text.ends_with("the run that was saved has the precision f32, this one bf16; resume with f32"), "{text}");

    let model = Mlp::new();
    let optimizer = Adam::new(&model, AdamOptions::default());
    let schedule = Cosine { lr: 0.01, period: 20, eta_min: 0.0 };
    let mut other = Trainer::new(model, optimizer, schedule, data(), settings(4));
    let text = other.resume(&checkpoint).unwrap_err().to_string();
    assert!(text.contains("model.safetensors does not fit the model: "), "{text}");
}

#[test]
fn data_without_labels_is_refused() {
    let no_labels: Arc<dyn Dataset> = Arc::new(ArrayDataset::new().with_field("point", [3], vec![0.0_f32; 9]).unwrap());
    let data = DataPair { train: no_labels.clone(), test: no_labels, ..data() };
    let model = model();
    let optimizer = Adam::new(&model, AdamOptions::default());
    let schedule = Cosine { lr: 0.01, period: 20, eta_min: 0.0 };
    let error = Trainer::new(model, optimizer, schedule, data, settings(1)).run(&mut |_| {}).unwrap_err();
    assert!(
        matches!(&error, TrainError::Misfit(text) if text == "the data \"points\" has no field \"label\""),
        "{error}"
    );
}
