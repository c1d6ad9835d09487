//! What a training step costs besides its arithmetic: an MLP so small that its kernels take no time.
//!
//! `cargo run --release -p meshwork --example step_overhead`: microseconds of the recording thread by phase, those of the
//! queue's thread, and page faults, per step.

use meshwork::nn::Linear;
use meshwork::prelude::*;
use meshwork::tensor::{compile_count, last_program};
use std::fs;
use std::time::{Duration, Instant};

#[derive(Module)]
struct Mlp {
    fc1: Linear,
    fc2: Linear,
}

impl Mlp {
    fn forward(&self, x: &Tensor) -> Tensor {
        self.fc2.forward(&self.fc1.forward(&x.flatten(1)).relu())
    }
}

const PHASES: [&str; 6] = ["batch", "forward", "loss", "gradients", "step", "drop"];
const STEPS: usize = 50;
const ROUNDS: usize = 200;

fn main() {
    meshwork::set_num_threads(1).expect("one thread");
    let model = Mlp { fc1: Linear::new(4, 4), fc2: Linear::new(4, 2) };
    model.init(0);
    let mut optimizer = optim::Sgd::new(&model, optim::SgdOptions::new(0.1));
    let (images, labels) = ([0.5f32; 8], [0i64, 1]);
    let mut best = [Duration::MAX; PHASES.len()];
    let mut waiting = Duration::ZERO;
    let (mut compiled, mut before) = (0, Usage::now());
    for round in 0..ROUNDS + 2 {
        if round == 2 {
            (compiled, before, waiting) = (compile_count(), Usage::now(), Duration::ZERO);
        }
        let mut spent = [Duration::ZERO; PHASES.len()];
        for _ in 0..STEPS {
            let mut clock = Instant::now();
            let mut phase = 0;
            let mut lap = || {
                let now = Instant::now();
                spent[phase] += now - clock;
                (clock, phase) = (now, phase + 1);
            };
            let x = Tensor::from_slice(&images, &[2, 1, 2, 2]);
            let y = Tensor::from_slice(&labels, &[2]);
            lap();
            let logits = model.forward(&x);
            lap();
            let loss = logits.cross_entropy(&y);
            lap();
            let gradients = model.gradients(&loss);
            lap();
            optimizer.step(gradients);
            lap();
            drop((x, y, logits, loss));
            lap();
        }
        best.iter_mut().zip(spent).for_each(|(best, spent)| *best = spent.min(*best));
        let start = Instant::now();
        meshwork::synchronize();
        waiting += start.elapsed();
    }
    let after = Usage::now();
    assert_eq!(compile_count(), compiled, "a step compiled");

    let steps = (ROUNDS * STEPS) as f64;
    let micros = |duration: Duration| duration.as_secs_f64() * 1e6 / STEPS as f64;
    for (name, best) in PHASES.iter().zip(best) {
        println!("{name:>12} {:7.2} us", micros(best));
    }
    println!("{:>12} {:7.2} us (best of {ROUNDS} rounds)", "all", best.iter().copied().map(micros).sum::<f64>());
    println!(
        "{:>12} {:7.2} us of this thread's processor time, mean",
        "record",
        (after.own - before.own) / steps / 1e3
    );
    let kernels = last_program().expect("a program").steps.len();
    let queue = (after.queue - before.queue) / steps / 1e3;
    println!("{:>12} {queue:7.2} us for {kernels} kernels: {:.2} us each", "queue", queue / kernels as f64);
    println!("{:>12} {:7.2} us", "waiting", waiting.as_secs_f64() * 1e6 / steps);
    println!("{:>12} {:7.2} page faults", "memory", (after.faults - before.faults) / steps);
}

/// Processor time in nanoseconds and page faults up to now.
struct Usage {
    own: f64,
    queue: f64,
    faults: f64,
}

impl Usage {
    fn now() -> Usage {
        let time = |folder: &str| -> f64 {
            let text = fs::read_to_string(format!("{folder}/schedstat")).expect("Linux tells processor times");
            text.split(' ').next().and_then(|t| t.parse().ok()).expect("a number of nanoseconds")
        };
        let tasks = fs::read_dir("/proc/self/task").expect("Linux lists threads").flatten();
        let mut tasks = tasks.map(|task| task.path().display().to_string());
        let is_queue =
            |task: &String| fs::read_to_string(format!("{task}/comm")).is_ok_and(|c| c.starts_with("meshwork-cpu"));
        let queue = tasks.find(is_queue).map_or(0.0, |task| time(&task));
        let stat = fs::read_to_string("/proc/self/stat").expect("Linux tells page faults");
        let faults = stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(7)).expect("the tenth field");
        Usage { own: time("/proc/thread-self"), queue, faults: faults.parse().expect("a number of faults") }
    }
}
