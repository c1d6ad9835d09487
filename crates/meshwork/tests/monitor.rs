//! A training is watched from outside: what it publishes while it runs, and what is left of it.

use meshwork::checkpoint::Folder;
use meshwork::data::{ArrayDataset, DataPair, Dataset};
use meshwork::monitor::{About, Monitor, Place, Publisher, Status, StatusError, running};
use meshwork::nn::{Linear, Module};
use meshwork::optim::{Adam, AdamOptions, Constant};
use meshwork::train::{Event, Length, Saving, TrainSettings, Trainer};
use meshwork::{Device, Tensor};
use std::path::Path;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

fn points() -> Arc<dyn Dataset> {
    let values: Vec<f32> = (0..300).map(|i| ((i * 7919 + 13) % 101) as f32 / 50.0 - 1.0).collect();
    let labels: Vec<i64> = values.chunks(3).map(|p| i64::from(p.iter().sum::<f32>() > 0.0)).collect();
    let data = ArrayDataset::new().with_field("point", [3], values).unwrap().with_field("label", [], labels).unwrap();
    Arc::new(data.with_num_classes(2).unwrap())
}

/// Trains ten steps, two epochs; `watch` is called after each.
fn train(folder: Option<&Path>, monitor: &Monitor, watch: &mut dyn FnMut(u64)) {
    let model = Linear::new(3, 2);
    model.init(0);
    let data = DataPair { name: "points".into(), origin: "made up".into(), train: points(), test: points() };
    let settings = TrainSettings {
        batch_size: 20,
        length: Length { epochs: Some(2), steps: None },
        saving: folder.map(|folder| Saving { folder: Folder::new(folder), every: None }),
        ..TrainSettings::default()
    };
    let optimizer = Adam::new(&model, AdamOptions::default());
    let mut trainer = Trainer::new(model, optimizer, Constant { lr: 0.01 }, data, settings);
    let mut observer = |event: Event<'_>| {
        monitor.observe(&event);
        if let Event::Step(step) = event {
            watch(step.step);
        }
    };
    trainer.run(&mut observer).unwrap();
}

fn about(folder: Option<&Path>) -> About {
    let folder = folder.map(Path::to_owned);
    About { model: "linear".into(), data: "points".into(), folder, steps: Some(10), epochs: Some(2), done: 0 }
}

/// One test, since there is one file per process.
#[test]
fn trainings_publish_themselves_if_they_can() {
    a_training_publishes_itself_and_leaves_nothing_behind();
    that_nothing_can_be_published_is_said_once_and_stops_nothing();
}

fn a_training_publishes_itself_and_leaves_nothing_behind() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("runs/linear");
    let monitor = Monitor::new(about(Some(&folder)), vec![Device::cpu(0).unwrap()]);
    let (publisher, warnings) = Publisher::start(&monitor);
    assert!(warnings.is_empty(), "{warnings:?}");

    let in_run = Place::in_run(&folder);
    let own = Place::of_process(std::process::id()).expect("the process publishes itself");
    let before = in_run.read().unwrap().0;
    assert_eq!((before.step, before.epoch, before.loss, before.steps_per_second), (0, 0, None, None));
    assert!(running().iter().any(|status| status.pid == std::process::id()));

    let mut seen: Option<Status> = None;
    train(Some(&folder), &monitor, &mut |step| {
        if step != 7 {
            return;
        }
        // A status of this step comes sooner or later.
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) && seen.as_ref().is_none_or(|status| status.step < step) {
            sleep(Duration::from_millis(20));
            let (status, alive) = in_run.read().unwrap();
            assert!(alive && own.read().unwrap().1);
            seen = Some(status);
        }
    });
    let seen = seen.unwrap();
    assert_eq!((seen.step, seen.steps, seen.epoch, seen.epochs), (7, Some(10), 2, Some(2)));
    assert_eq!((seen.model.as_str(), seen.data.as_str(), seen.pid), ("linear", "points", std::process::id()));
    assert!(seen.loss.unwrap() > 0.0 && seen.test_accuracy.unwrap() > 0.0 && seen.steps_per_second.unwrap() > 0.0);
    assert!(seen.elapsed_ns > before.elapsed_ns && seen.time_ms >= before.time_ms);
    let device = &seen.devices[0];
    assert_eq!((device.name.as_str(), device.threads), ("cpu:0", Device::cpu(0).unwrap().num_threads()));
    assert!(device.memory.planned > 0 && device.memory.peak >= device.memory.used);
    let queue = &device.queues[0];
    assert!(queue.busy_ns > before.devices[0].queues[0].busy_ns && queue.tasks >= 7, "{queue:?}");
    assert!(queue.kernels > queue.tasks, "{queue:?}");

    assert!(publisher.finish().is_empty());
    assert!(matches!(in_run.read(), Err(StatusError::Nothing(_))));
    assert!(folder.join("model.safetensors").exists() && !folder.join("status.json").exists());
}

fn that_nothing_can_be_published_is_said_once_and_stops_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let file = parent.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let monitor = Monitor::new(about(Some(&file)), vec![Device::cpu(0).unwrap()]);
    let (publisher, warnings) = Publisher::start(&monitor);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("the training cannot be watched from outside"), "{warnings:?}");
    let mut steps = 0;
    train(None, &monitor, &mut |_| steps += 1);
    sleep(Duration::from_millis(600));
    assert_eq!(steps, 10);
    assert!(publisher.finish().is_empty());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
}

#[test]
fn what_a_device_runs_can_be_seen() {
    let device = Device::cpu(0).unwrap();
    let n = 500;
    let a = Tensor::from_slice(&vec![0.5_f32; n * n], &[n, n]);
    let start = Instant::now();
    let mut seen = None;
    while seen.is_none() && start.elapsed() < Duration::from_secs(60) {
        let product = a.matmul(&a).matmul(&a).matmul(&a);
        product.eval();
        for _ in 0..200 {
            let load = device.load();
            seen = seen.or(load.queues[0].running.clone().filter(|name| name == "dot -> f32[500, 500]"));
        }
        product.to_vec::<f32>();
    }
    assert!(seen.is_some(), "the product was never seen running");
    assert!(device.load().planned >= 4 * 2 * n * n);
}
