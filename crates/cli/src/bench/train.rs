//! `meshwork bench train`: whole training steps on one batch of random numbers.

use super::gemm::random;
use super::machine::Machine;
use super::report::time;
use super::timing::{median, thread_time};
use crate::args::TrainBenchArgs;
use crate::failure::Failure;
use crate::progress::say;
use crate::recipe;
use crate::settings::{Settings, parse};
use crate::tracing;
use crate::train::built_in;
use crate::values::name_of;
use meshwork::nn::{Layer, Module};
use meshwork::optim::Optimizer;
use meshwork::tensor::last_program;
use meshwork::train::BuiltIn;
use meshwork::{Device, Tensor, synchronize};
use serde_json::json;
use std::time::{Duration, Instant};

/// Parts of the run; the time of a step is the median over them.
const PARTS: u32 = 6;

/// A model and one batch on which it is trained.
struct Training {
    model: Box<dyn Layer>,
    optimizer: Box<dyn Optimizer>,
    images: Tensor,
    labels: Tensor,
}

impl Training {
    fn new(args: &TrainBenchArgs, batch: usize) -> Result<Training, Failure> {
        let flags = [format!("--model={}", name_of(args.model)), format!("--optimizer={}", name_of(args.optimizer))];
        let settings = Settings::complete(&parse(&flags)?)?;
        let model = built_in(args.model).build();
        model.init(0);
        let optimizer = recipe::optimizer(&settings, &*model);
        let images = random(&[&[batch], &BuiltIn::INPUT[..]].concat())?;
        let classes: Vec<i64> = (0..batch).map(|i| (i * 7 % BuiltIn::CLASSES) as i64).collect();
        Ok(Training { model, optimizer, images, labels: Tensor::from_slice(&classes, &[batch]) })
    }

    fn step(&mut self) -> Tensor {
        let loss = self.model.forward(&self.images).cross_entropy(&self.labels);
        let gradients = self.model.gradients(&loss);
        self.optimizer.step(gradients);
        loss
    }

    /// Time of `steps` steps together, and the time that this thread took to record and hand them over.
    fn steps(&mut self, steps: u32) -> (Duration, Duration) {
        synchronize();
        let (start, recording) = (Instant::now(), thread_time());
        for _ in 0..steps {
            self.step();
        }
        let recorded = thread_time() - recording;
        synchronize();
        (start.elapsed(), recorded)
    }
}

/// Trains for the given number of steps and reports what a step takes.
pub fn run(args: &TrainBenchArgs) -> Result<(), Failure> {
    let machine = Machine::here();
    let batch = usize::try_from(args.batch).unwrap_or(usize::MAX);
    let steps = u32::try_from(args.steps).unwrap_or(u32::MAX);
    let mut training = Training::new(args, batch)?;

    let first = Instant::now();
    let loss = training.step().item();
    let first = first.elapsed();
    if !loss.is_finite() {
        return Err(Failure::Mistake(format!("the loss of the first step is {loss}")));
    }
    training.steps((steps / 10).max(3));
    let device = Device::cpu(0).expect("the first device is always there");
    device.reset_peak_memory();
    let tracing = args.trace.as_deref().map(tracing::start).transpose()?;
    let faults = page_faults();
    let parts: Vec<u32> = (0..PARTS).map(|i| steps / PARTS + u32::from(i < steps % PARTS)).filter(|n| *n > 0).collect();
    let timed: Vec<(Duration, Duration)> = parts
        .iter()
        .map(|&n| {
            let (all, recording) = training.steps(n);
            (all / n, recording / n)
        })
        .collect();
    let faults = page_faults().zip(faults).map(|(after, before)| (after - before) as f64 / f64::from(steps));
    let traced = tracing.and_then(tracing::stop);
    let step = median(timed.iter().map(|t| t.0).collect()).as_secs_f64();
    let recording = median(timed.iter().map(|t| t.1).collect()).as_secs_f64();

    let program = last_program().expect("a step has been handed over");
    let peak = machine.peak();
    let flops = program.flops() as f64 / 1e9;
    let memory = device.memory().peak;
    let (speed, rate) = (flops / step, batch as f64 / step);
    if args.common.json {
        let report = json!({
            "bench": "train",
            "machine": machine.json(),
            "model": name_of(args.model),
            "optimizer": name_of(args.optimizer),
            "batch": batch,
            "steps": steps,
            "images_per_second": rate,
            "step_ms": step * 1e3,
            "first_step_ms": first.as_secs_f64() * 1e3,
            "recording_us": recording * 1e6,
            "peak_bytes": memory,
            "kernels": program.steps.len(),
            "page_faults_per_step": faults,
            "gflop_per_step": flops,
            "gflops": speed,
            "peak_gflops": peak,
            "share_of_peak": speed / peak,
        });
        say(&report.to_string());
        return Ok(());
    }
    let (model, optimizer) = (name_of(args.model), name_of(args.optimizer));
    say(&machine.line());
    say(&format!("{model}, batch {batch}, {optimizer}: {steps} steps"));
    let line = |name: &str, value: String| say(&format!("{name:<22}{value}"));
    line("speed", format!("{rate:.0} images/s"));
    line("step", format!("{}; no less than {} for {flops:.3} GFLOP", time(step), time(flops / peak)));
    line("arithmetic", format!("{speed:.1} GFLOP/s, {:.0} % of {peak:.1}", 100.0 * speed / peak));
    line("first step", format!("{}, with compiling", time(first.as_secs_f64())));
    line("recording a step", time(recording));
    line("kernels of a step", program.steps.len().to_string());
    line("memory", format!("{:.1} MiB at most", memory as f64 / f64::from(1 << 20)));
    if let Some(faults) = faults {
        line("page faults of a step", format!("{faults:.1}"));
    }
    if let Some(traced) = traced {
        say(&traced);
    }
    Ok(())
}

/// Pages that the process has touched for the first time so far, where the system tells.
fn page_faults() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name in brackets come state, parent, …; the eighth is the count of minor faults.
    text.rsplit_once(')')?.1.split_whitespace().nth(7)?.parse().ok()
}
