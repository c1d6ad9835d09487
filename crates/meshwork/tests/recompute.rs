//! Activation checkpointing: the same bits, less memory.

use meshwork::data::{ArrayDataset, DataPair, Dataset};
use meshwork::nn::{BatchNorm1d, Dropout, Linear, Module, Transformer, TransformerConfig};
use meshwork::optim::Constant;
use meshwork::optim::{AdamW, AdamWOptions, Optimizer};
use meshwork::tensor::{checkpoint, grad, grad_with, last_program, manual_seed, randn};
use meshwork::train::{Event, Fit, Length, TrainError, TrainSettings, Trainer, fit_memory, loss};
use meshwork::{Device, Tensor, synchronize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The devices' memory is that of the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static PROCESS: Mutex<()> = Mutex::new(());
    PROCESS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Linear layers with running statistics and masks.
#[derive(Debug, Module)]
struct Part {
    fc: Linear,
    norm: BatchNorm1d,
    dropout: Dropout,
}

impl Part {
    fn new(from: usize, to: usize) -> Part {
        Part { fc: Linear::new(from, to), norm: BatchNorm1d::new(to), dropout: Dropout::new(0.4) }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        self.dropout.forward(&self.norm.forward(&self.fc.forward(x)).gelu())
    }
}

#[derive(Debug, Module)]
struct Net {
    parts: Vec<Part>,
    out: Linear,
}

/// How the parts of a net are computed again.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Kept,
    Each,
    Together,
    Nested,
}

impl Net {
    fn new() -> Net {
        let parts = vec![Part::new(6, 40), Part::new(40, 40), Part::new(40, 24), Part::new(24, 24)];
        Net { parts, out: Linear::new(24, 5) }
    }

    fn forward(&self, x: &Tensor, way: Way) -> Tensor {
        let (front, back) = self.parts.split_at(2);
        let through = |parts: &[Part], x: &Tensor, each: bool| {
            parts.iter().fold(x.clone(), |x, part| match each {
                true => checkpoint(|| part.forward(&x)),
                false => part.forward(&x),
            })
        };
        let x = match way {
            Way::Kept => through(&self.parts, x, false),
            Way::Each => through(&self.parts, x, true),
            Way::Together => checkpoint(|| through(&self.parts, x, false)),
            Way::Nested => {
                let x = checkpoint(|| through(front, x, true));
                checkpoint(|| checkpoint(|| through(back, &x, true)))
            }
        };
        self.out.forward(&x)
    }
}

fn bits(tensors: &[(String, Tensor)]) -> Vec<Vec<u8>> {
    tensors.iter().map(|(_, value)| value.to_bytes()).collect()
}

#[test]
fn a_training_has_the_same_bits_however_it_is_checkpointed() {
    let _only = alone();
    let train = |way: Way| {
        manual_seed(1);
        let net = Net::new();
        net.init(2);
        let mut optimizer = AdamW::new(&net, AdamWOptions { lr: 0.01, ..Default::default() });
        let x = randn(&[32, 6]);
        let classes = Tensor::from_slice(&(0..32).map(|i| i % 5).collect::<Vec<i64>>(), &[32]);
        let mut losses = Vec::new();
        for _ in 0..4 {
            let loss = net.forward(&x, way).cross_entropy(&classes);
            optimizer.step(net.gradients(&loss));
            losses.push(loss.to_bytes());
        }
        (losses, bits(&net.state()), bits(&optimizer.state().tensors))
    };
    let expected = train(Way::Kept);
    for way in [Way::Each, Way::Together, Way::Nested] {
        assert!(train(way) == expected, "{way:?}");
    }
}

#[test]
fn what_is_checkpointed_runs_twice_and_the_rest_once() {
    let _only = alone();
    let multiplications = |way: Way| {
        let net = Net::new();
        net.init(2);
        let mut optimizer = AdamW::new(&net, AdamWOptions::default());
        let x = randn(&[32, 6]);
        optimizer.step(net.gradients(&net.forward(&x, way).square().mean(..)));
        let program = last_program().expect("a step");
        let multiplies = |name: &str| ["dot", "epilogue"].contains(&name);
        program.steps.iter().filter(|step| multiplies(step.op.operation().name())).count()
    };
    // Forward and two gradients each, without the first input's; the last product of a checkpoint is needed by its norm.
    assert_eq!(multiplications(Way::Kept), 5 * 3 - 1);
    assert_eq!(multiplications(Way::Each), 5 * 3 - 1 + 4);
    assert_eq!(multiplications(Way::Together), 5 * 3 - 1 + 4);
}

#[test]
fn gradients_of_gradients_go_through_checkpoints() {
    let _only = alone();
    let x = Tensor::from_slice(&[0.3f32, -0.7, 1.1], &[3]).variable();
    let w = Tensor::from_slice(&[0.5f32, 2.0, -1.0], &[3]).variable();
    let twice = |checkpointed: bool| {
        let body = || ((&x * &w).tanh() * &x).exp();
        let y = if checkpointed { checkpoint(body) } else { body() }.sum(..);
        let first = grad_with(&[&y], None, &[&x, &w], true);
        let second = grad(&(first[0].square().sum(..) + first[1].sum(..)), &[&x, &w]);
        [first, second].concat().iter().map(Tensor::to_bytes).collect::<Vec<_>>()
    };
    assert!(twice(true) == twice(false));
}

#[test]
fn values_that_are_read_before_the_gradient_stay_right() {
    let _only = alone();
    let x = Tensor::from_slice(&[0.3f32, -0.7, 1.1], &[3]).variable();
    let gradient = |read: bool| {
        let inner = checkpoint(|| (&x * 2.0).tanh().dropout(0.5, 7).exp());
        let y = inner.sum(..);
        if read {
            y.item();
        }
        grad(&y, &[&x])[0].to_bytes()
    };
    assert!(gradient(true) == gradient(false));
}

#[test]
fn constants_and_detached_values_inside_a_checkpoint_have_no_gradient() {
    let _only = alone();
    let x = Tensor::from_slice(&[0.3f32, -0.7], &[2]).variable();
    let of = |checkpointed: bool| {
        let body = || (&x * (&x * 3.0).sin().detach()).exp() * &x;
        let y = if checkpointed { checkpoint(body) } else { body() };
        grad(&y.sum(..), &[&x])[0].to_bytes()
    };
    assert!(of(true) == of(false));
}

/// The planned peak of a step of a model of six blocks, of which so many are computed again, and the weights after two steps.
fn peak(blocks: usize, dropout: f64) -> (usize, Vec<Vec<u8>>) {
    manual_seed(0);
    let config = TransformerConfig { dropout, ..TransformerConfig::gpt2(31, 64, 6, 48, 4) };
    let model = Transformer::new(config);
    model.init(1);
    model.set_recompute(blocks);
    assert_eq!(model.recompute(), blocks);
    let mut optimizer = AdamW::new(&model, AdamWOptions::default());
    let tokens: Vec<i64> = (0..8 * 64).map(|i| i * 7 % 31).collect();
    let tokens = Tensor::from_slice(&tokens, &[8, 64]);
    for _ in 0..2 {
        let loss = loss(&model.forward(&tokens), &tokens);
        optimizer.step(model.gradients(&loss));
    }
    synchronize();
    (last_program().expect("a step").memory.arena, bits(&model.state()))
}

#[test]
fn each_block_that_is_computed_again_takes_its_activations_off_the_planned_peak() {
    let _only = alone();
    // Of a token, a block keeps for its gradients at least: both normalised values, queries, keys and values, the attention's
    // result and the sum behind it, each as wide as the model, and two values of four times that in the feed-forward layer.
    let of_a_block = 8 * 64 * 4 * (7 * 48 + 2 * 4 * 48);
    for dropout in [0.0, 0.2] {
        let kept = peak(0, dropout);
        let mut before = kept.0;
        let mut fallen = Vec::new();
        for blocks in 1..=5 {
            let (peak, weights) = peak(blocks, dropout);
            assert!(weights == kept.1, "{blocks} blocks, dropout {dropout}");
            assert!(peak + of_a_block <= before, "{blocks} blocks: {peak} after {before}");
            fallen.push(before - peak);
            before = peak;
        }
        // Each block takes away the same, until there is nothing left but one block and what lies between them.
        assert!(fallen.iter().all(|bytes| bytes.abs_diff(fallen[0]) <= fallen[0] / 40), "{fallen:?}");
        assert!(before <= kept.0 * 3 / 10, "{before} of {}", kept.0);
        assert!(peak(6, dropout).1 == kept.1);
    }
}

/// A training of a small GPT for one step.
fn trainer() -> Trainer<Transformer> {
    trainer_with(8, 8)
}

/// The same with so many samples to be tested, so many at a time.
fn trainer_with(test_samples: usize, test_batch_size: usize) -> Trainer<Transformer> {
    let tokens = |samples: usize| -> Arc<dyn Dataset> {
        let tokens: Vec<i64> = (0..samples as i64 * 64).map(|i| i * 7 % 31).collect();
        let data = ArrayDataset::new().with_field("tokens", [64], tokens.clone()).unwrap();
        Arc::new(data.with_field("label", [64], tokens).unwrap())
    };
    let (train, test) = (tokens(8), tokens(test_samples));
    let data = DataPair { name: "tokens".into(), origin: "made up".into(), train, test };
    let model = Transformer::new(TransformerConfig::gpt2(31, 64, 6, 48, 4));
    model.init(1);
    let optimizer = AdamW::new(&model, AdamWOptions::default());
    let length = Length { epochs: None, steps: Some(1) };
    let settings = TrainSettings {
        batch_size: 8,
        test_batch_size: Some(test_batch_size),
        length,
        max_norm: Some(1.0),
        ..TrainSettings::default()
    };
    Trainer::new(model, optimizer, Constant { lr: 1e-3 }, data, settings)
}

#[test]
fn a_memory_limit_is_met_with_as_few_blocks_as_possible() {
    let _only = alone();
    let fit = |limit: usize| fit_memory(limit, || Ok(trainer()));
    let all = fit(usize::MAX).unwrap();
    assert_eq!((all.recompute, all.of, all.peak), (0, 6, all.peak_without));
    let one = fit(all.peak - 1).unwrap();
    assert_eq!((one.recompute, one.peak_without), (1, all.peak));
    let two = fit(one.peak - 1).unwrap();
    assert!(two.recompute == 2 && two.peak < one.peak);
    let error = fit(1000).unwrap_err();
    let TrainError::Memory { least, recompute, of: 6, .. } = error else { panic!("{error}") };
    assert_eq!(fit(least).unwrap().recompute, recompute);
    assert!(fit(least - 1).is_err());

    // What was planned is what the device has in use then.
    let device = Device::cpu(0).unwrap();
    for Fit { recompute, peak, .. } in [all, two] {
        let mut trainer = trainer();
        trainer.model().set_recompute(recompute);
        synchronize();
        let others = device.memory().allocated - resident(&trainer);
        device.reset_peak_memory();
        trainer.run(&mut |_| {}).unwrap();
        let used = device.memory().peak - others;
        assert!(used.abs_diff(peak) <= peak / 100, "{recompute} blocks: {used} used, {peak} planned");
    }
}

/// Bytes of weights and moments.
fn resident(trainer: &Trainer<Transformer>) -> usize {
    3 * 4 * trainer.model().num_parameters()
}

#[test]
fn testing_keeps_the_memory_limit() {
    const SAMPLES: usize = 200;
    let _only = alone();
    let device = Device::cpu(0).unwrap();
    let fit = |limit: usize| fit_memory(limit, || Ok(trainer_with(SAMPLES, SAMPLES)));
    let whole = fit(usize::MAX).unwrap();
    assert!(whole.test_batch_size == SAMPLES && whole.test_peak > whole.peak);
    let used = |test_batch_size: usize| {
        let mut trainer = trainer_with(SAMPLES, test_batch_size);
        synchronize();
        let others = device.memory().allocated - resident(&trainer);
        trainer
            .run(&mut |event| {
                if let Event::Step(_) = event {
                    synchronize();
                    device.reset_peak_memory();
                }
            })
            .unwrap();
        device.memory().peak - others
    };
    for limit in [whole.peak, whole.test_peak - 1] {
        let fit = fit(limit).unwrap();
        assert_eq!((fit.recompute, fit.peak), (0, whole.peak), "what is computed again helps steps alone");
        assert!(fit.test_batch_size < SAMPLES && fit.test_peak <= limit, "{fit:?} of {limit}");
        let used = used(fit.test_batch_size);
        assert!(used <= fit.test_peak && used * 10 >= fit.test_peak * 9, "{used} used, {fit:?}");
    }
    assert!(used(SAMPLES) > whole.peak);
}

#[test]
fn what_a_limit_leads_to_is_said() {
    let fit = Fit { recompute: 0, of: 6, peak: 3 << 20, peak_without: 3 << 20, test_batch_size: 5, test_peak: 1 << 20 };
    assert_eq!(
        fit.to_string(),
        "a step takes 3.00 MiB of a device: all activations are kept; testing takes 1.00 MiB in batches of 5"
    );
    let fit = Fit { recompute: 2, peak: 2 << 20, ..fit };
    assert_eq!(
        fit.to_string(),
        "a step takes 2.00 MiB of a device: 2 of 6 blocks are computed again for their gradients (3.00 MiB if all activations \
         were kept); testing takes 1.00 MiB in batches of 5"
    );
    let error = TrainError::Memory { limit: 1 << 20, least: 2 << 20, recompute: 6, of: 6 }.to_string();
    assert_eq!(
        error,
        "a step does not fit into 1.00 MiB: it takes 2.00 MiB at least, with 6 of 6 blocks computed again; try a smaller batch, \
         more devices or microbatches (accumulate)"
    );
    let error = TrainError::TestMemory { limit: 1 << 20, least: 2 << 20 }.to_string();
    assert_eq!(error, "testing does not fit into 1.00 MiB: one sample at a time takes 2.00 MiB; try more devices");
}
