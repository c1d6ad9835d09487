//! Losses and gradients that are not finite: the training ends before their update, with everything as it was before.

use meshwork::checkpoint::Folder;
use meshwork::data::{ArrayDataset, DataPair, Dataset, Order};
use meshwork::nn::{BatchNorm1d, Dropout, Layer, Linear, Module};
use meshwork::optim::{
    AdamW, AdamWOptions, Constant, Gradients, Guard, NonFinite, Optimizer, OptimizerState, Sgd, SgdOptions,
};
use meshwork::tensor::compile_count;
use meshwork::train::{Event, Length, Mlp, Saving, TrainError, TrainSettings, Trainer};
use meshwork::{Tensor, manual_seed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A model with buffers and random sites.
#[derive(Debug, Module)]
struct Small {
    fc1: Linear,
    norm: BatchNorm1d,
    dropout: Dropout,
    fc2: Linear,
}

impl Layer for Small {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&self.dropout.forward(&self.norm.forward(&self.fc1.forward(x)).relu()))
    }
}

fn small() -> Small {
    let (fc1, norm, fc2) = (Linear::new(3, 16), BatchNorm1d::new(16), Linear::new(16, 2));
    let model = Small { fc1, norm, dropout: Dropout::new(0.5), fc2 };
    model.init(5);
    model
}

/// What is counted over the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static PROCESS: Mutex<()> = Mutex::new(());
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn points(count: usize, seed: usize) -> Vec<f32> {
    (0..3 * count).map(|i| ((i * 7919 + 13 * seed) % 101) as f32 / 50.0 - 1.0).collect()
}

/// A hand-written training of [`Small`].
struct Training {
    model: Small,
    optimizer: AdamW,
    guard: Option<Guard>,
    max_norm: Option<f64>,
}

/// All bits that the next steps depend on.
type Everything = (Vec<Vec<u8>>, Vec<Vec<u8>>, Vec<(String, u64)>, Vec<f64>, u64);

fn everything(model: &impl Module, state: &OptimizerState) -> Everything {
    let bytes = |tensors: Vec<(String, Tensor)>| tensors.iter().map(|(_, t)| t.to_bytes()).collect();
    (bytes(model.state()), bytes(state.tensors.clone()), state.counts.clone(), state.lrs.clone(), state.steps)
}

impl Training {
    fn new(guarded: bool, max_norm: Option<f64>) -> Training {
        manual_seed(0);
        let model = small();
        let optimizer = AdamW::new(&model, AdamWOptions { lr: 0.01, ..Default::default() });
        let guard = guarded.then(|| Guard::new(&model));
        Training { model, optimizer, guard, max_norm }
    }

    /// Hands a step over on points, one of which is this.
    fn step(&mut self, seed: usize, with: f32) {
        let mut values = points(8, seed);
        values[4] = with;
        let classes: Vec<i64> = (0..8).map(|i| i % 2).collect();
        let (x, y) = (Tensor::from_slice(&values, &[8, 3]), Tensor::from_slice(&classes, &[8]));
        self.guard.iter_mut().for_each(|guard| guard.begin(&self.optimizer));
        self.optimizer.set_lr(0.01 / (1 + seed) as f64);
        let loss = self.model.forward(&x).cross_entropy(&y);
        let mut gradients = self.model.gradients(&loss);
        if let Some(guard) = &mut self.guard {
            guard.examine(&loss, &gradients);
        }
        if let Some(max) = self.max_norm {
            gradients.clip_by_global_norm(max);
        }
        match &mut self.guard {
            Some(guard) => guard.step(&mut self.optimizer, gradients),
            None => self.optimizer.step(gradients),
        }
    }

    fn settle(&mut self) -> Result<(), NonFinite> {
        self.guard.as_mut().unwrap().settle(&mut self.optimizer)
    }

    fn everything(&self) -> Everything {
        everything(&self.model, &self.optimizer.state())
    }
}

#[test]
fn healthy_steps_have_the_bits_that_they_have_without_a_guard() {
    let _only = alone();
    for max_norm in [None, Some(0.5)] {
        let [guarded, bare] = [true, false].map(|guarded| {
            let mut training = Training::new(guarded, max_norm);
            (0..6).for_each(|step| training.step(step, 0.5));
            training.everything()
        });
        assert!(guarded == bare, "{max_norm:?}");
    }
}

#[test]
fn a_step_that_is_not_finite_and_those_behind_it_change_nothing() {
    let _only = alone();
    for (bad, max_norm) in [(f32::NAN, None), (f32::INFINITY, Some(0.5)), (f32::NEG_INFINITY, None)] {
        // What comes of the steps 0 to 3 and 7.
        let expected = {
            let mut healthy = Training::new(true, max_norm);
            [0, 1, 2, 3, 7].into_iter().for_each(|step| healthy.step(step, 0.5));
            healthy.everything()
        };
        let mut training = Training::new(true, max_norm);
        for step in 0..4 {
            training.step(step, 0.5);
            training.settle().unwrap();
        }
        let before = training.everything();
        // Three are handed over before anybody looks.
        training.step(4, bad);
        training.step(5, 0.5);
        training.step(6, bad);
        let found = training.settle().unwrap_err();
        assert_eq!((found.step, found.of), (5, 6));
        assert!(!found.loss.is_finite() && !found.parameters.is_empty(), "{found}");
        assert_eq!(found.lr, 0.01 / 5.0);
        assert!(training.everything() == before, "with {bad}");
        assert_eq!(training.settle(), Ok(()), "the steps behind it are forgotten");

        // It goes on as if nothing had been, masks of dropout included.
        training.step(7, 0.5);
        training.settle().unwrap();
        assert!(training.everything() == expected, "after {bad}");
    }
}

#[test]
fn the_parameters_with_bad_gradients_are_named_even_where_clipping_spreads_them() {
    let _only = alone();
    #[derive(Debug, Module)]
    struct Two {
        good: Linear,
        bad: Linear,
    }
    for clipped in [false, true] {
        let model = Two { good: Linear::new(2, 3), bad: Linear::new(2, 3) };
        model.init(1);
        let mut optimizer = Sgd::new(&model, SgdOptions::new(0.1));
        let mut guard = Guard::new(&model);
        let x = Tensor::from_slice(&[1f32, 2.0], &[1, 2]);
        // The root of 0 is 0, and its slope infinite.
        let loss = model.good.forward(&x).mean(..) + (model.bad.weight.value() * 0.0).sqrt().sum(..);
        let mut gradients = model.gradients(&loss);
        guard.examine(&loss, &gradients);
        if clipped {
            gradients.clip_by_global_norm(1.0);
        }
        guard.step(&mut optimizer, gradients);
        let found = guard.settle(&mut optimizer).unwrap_err();
        assert!(found.loss.is_finite());
        assert_eq!((found.parameters, found.of), (vec!["bad.weight".to_string()], 3));
    }
}

#[test]
fn gradients_whose_squares_overflow_count_as_not_finite() {
    let _only = alone();
    let model = Linear::new(2, 1);
    model.init(0);
    let mut optimizer = Sgd::new(&model, SgdOptions::new(0.1));
    let mut guard = Guard::new(&model);
    let gradient = |value: f32| Tensor::from_slice(&[value, 1.0], &[1, 2]);
    let loss = Tensor::from_slice(&[1f32], &[]);
    for (value, is_bad) in [(1e18, false), (1e25, true)] {
        let gradients: Gradients = [(model.weight.clone(), gradient(value))].into_iter().collect();
        guard.examine(&loss, &gradients);
        guard.step(&mut optimizer, gradients);
        assert_eq!(guard.settle(&mut optimizer).is_err(), is_bad, "{value}");
    }
}

#[test]
fn a_guarded_loop_compiles_in_its_first_step_and_never_again() {
    let _only = alone();
    let mut training = Training::new(true, Some(1.0));
    training.step(0, 0.5);
    let first = compile_count();
    for step in 1..5 {
        training.step(step, 0.5);
        training.settle().unwrap();
    }
    assert_eq!(compile_count(), first);
}

#[test]
fn the_message_says_step_loss_parameters_and_what_to_do() {
    let _only = alone();
    let names = |count: usize| (1..=count).map(|i| format!("fc{i}.weight")).collect();
    let found = |loss, count| NonFinite { step: 7, lr: 0.5, loss, parameters: names(count), of: 9 }.to_string();
    let end = "; weights and optimizer are as before the step. Try a smaller learning rate, warm-up or a smaller largest \
               gradient norm, or look for such numbers in the data";
    assert_eq!(found(f64::NAN, 0), format!("step 7, learning rate 0.5: the loss is NaN{end}"));
    assert_eq!(
        found(2.5, 1),
        format!(
            "step 7, learning rate 0.5: the loss is 2.5, but 1 of 9 gradients are not finite, or too large to be squared: \
             fc1.weight{end}"
        )
    );
    assert!(found(f64::INFINITY, 6).contains("the loss is inf, and 6 of 9 gradients are not finite"));
    assert!(found(f64::INFINITY, 6).contains("fc3.weight, fc4.weight and 2 more;"));
}

#[test]
#[should_panic(expected = "the loss and gradients of a step are examined before it is done")]
fn a_step_that_was_not_examined_is_refused() {
    let _only = alone();
    let model = small();
    let mut optimizer = Sgd::new(&model, SgdOptions::new(0.1));
    Guard::new(&model).step(&mut optimizer, Gradients::default());
}

#[test]
#[should_panic(expected = "a loss is one number, not [2]")]
fn a_loss_of_several_numbers_is_refused() {
    let _only = alone();
    Guard::new(&small()).examine(&Tensor::from_slice(&[1f32, 2.0], &[2]), &Gradients::default());
}

#[test]
#[should_panic(expected = "the counts of 4 parameters are not those of 6")]
fn counts_of_another_optimizer_are_refused() {
    let _only = alone();
    let other = Mlp::new();
    let counts = Sgd::new(&other, SgdOptions::new(0.1)).counts();
    Sgd::new(&small(), SgdOptions::new(0.1)).set_counts(counts);
}

/// 48 points, one of which is this, in order.
fn data(sample: usize, with: f32) -> DataPair {
    let dataset = |with: f32| -> Arc<dyn Dataset> {
        let mut values = points(48, 3);
        let labels: Vec<i64> = values.chunks(3).map(|p| i64::from(p.iter().sum::<f32>() > 0.0)).collect();
        values[3 * sample] = with;
        let data = ArrayDataset::new().with_field("point", [3], values).unwrap();
        Arc::new(data.with_field("label", [], labels).unwrap().with_num_classes(2).unwrap())
    };
    DataPair { name: "points".into(), origin: "made up".into(), train: dataset(with), test: dataset(0.5) }
}

fn trainer(data: DataPair, steps: u64, settings: TrainSettings) -> Trainer<Small> {
    let model = small();
    let optimizer = AdamW::new(&model, AdamWOptions::default());
    let length = Length { epochs: None, steps: Some(steps) };
    let settings = TrainSettings { batch_size: 8, order: Order::Sequential, length, ..settings };
    Trainer::new(model, optimizer, Constant { lr: 0.01 }, data, settings)
}

fn weights(trainer: &Trainer<Small>) -> Vec<Vec<u8>> {
    trainer.model().state().into_iter().map(|(_, t)| t.to_bytes()).collect()
}

#[test]
fn a_trainer_ends_before_the_update_and_its_checkpoint_goes_on() {
    let _only = alone();
    // Samples of the first step, the fourth, and the last one of an epoch.
    for (sample, good) in [(2, 0), (27, 3), (47, 5)] {
        let folder = tempfile::tempdir().unwrap();
        let folder = Folder::new(folder.path().join("run"));
        let saving = Some(Saving { folder: folder.clone(), every: None });
        let mut stopped = trainer(data(sample, f32::NAN), 14, TrainSettings { saving, ..Default::default() });
        let mut told = Vec::new();
        let error = stopped
            .run(&mut |event| match event {
                Event::Step(step) => told.push(step.step),
                Event::Saved { step, .. } => assert_eq!(step, good),
                _ => {}
            })
            .unwrap_err();
        let TrainError::NonFinite(found) = &error else { panic!("{error}") };
        assert_eq!((found.step, found.of), (good + 1, 6));
        assert!(
            found.loss.is_nan() && error.to_string().starts_with(&format!("step {}, learning rate 0.01", good + 1))
        );
        assert_eq!(told, (1..=good).collect::<Vec<_>>());
        assert_eq!((stopped.step(), stopped.epoch()), (good, 0));

        let mut before = trainer(data(sample, 0.5), good, TrainSettings::default());
        if good > 0 {
            before.run(&mut |_| {}).unwrap();
        }
        assert!(weights(&stopped) == weights(&before), "after step {good}");

        // With good data the saved run comes to where it would have come without the stop.
        let mut whole = trainer(data(sample, 0.5), 14, TrainSettings::default());
        whole.run(&mut |_| {}).unwrap();
        let mut resumed = trainer(data(sample, 0.5), 14, TrainSettings::default());
        resumed.resume(&folder.load().unwrap()).unwrap();
        assert_eq!(resumed.step(), good);
        resumed.run(&mut |_| {}).unwrap();
        assert!(weights(&resumed) == weights(&whole), "resumed after step {good}");
    }
}

#[test]
fn a_trainer_that_does_not_check_goes_on() {
    let _only = alone();
    let mut trainer = trainer(data(9, f32::NAN), 5, TrainSettings { check_finite: false, ..Default::default() });
    let mut losses = Vec::new();
    trainer
        .run(&mut |event| {
            if let Event::Step(step) = event {
                losses.push(step.loss);
            }
        })
        .unwrap();
    assert!(losses[0].is_finite() && losses[1..].iter().all(|loss| loss.is_nan()), "{losses:?}");
}
