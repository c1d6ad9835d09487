//! `meshwork bench train`: whole training steps on one batch of random numbers.

use super::gemm::random;
use super::machine::Machine;
use super::report::time;
use super::timing::{median, thread_time};
use crate::args::TrainBenchArgs;
use crate::failure::Failure;
use crate::layout::{self, Layout};
use crate::progress::{Unit, say};
use crate::recipe;
use crate::settings::{Settings, parse};
use crate::tracing;
use crate::values::{PrecisionName, name_of};
use meshwork::graph::human_bytes;
use meshwork::nn::{Layer, Module};
use meshwork::optim::{Guard, LossScale, LossScaleOptions, Optimizer};
use meshwork::tensor::{Precision, autocast, last_plan};
use meshwork::train::{BuiltIn, loss};
use meshwork::{DType, Device, Tensor, synchronize};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Parts of the run; the time of a step is the median over them.
const PARTS: u32 = 6;

/// A model and one batch on which it is trained.
struct Training {
    model: Box<dyn Layer>,
    optimizer: Box<dyn Optimizer>,
    precision: Precision,
    loss_scale: Option<LossScale>,
    guard: Option<Guard>,
    inputs: Tensor,
    labels: Tensor,
}

impl Training {
    fn new(args: &TrainBenchArgs, built_in: &BuiltIn, layout: Option<&Layout>) -> Result<Training, Failure> {
        let flags = [format!("--model={}", name_of(args.model)), format!("--optimizer={}", name_of(args.optimizer))];
        let settings = Settings::complete(&parse(&flags)?)?;
        let batch = usize::try_from(args.batch).unwrap_or(usize::MAX);
        let model = built_in.build();
        model.init(0);
        args.layout.set_recompute(&*model, args.model);
        layout.map_or(Ok(()), |layout| layout.spread(&*model))?;
        let optimizer = recipe::optimizer(&settings, &*model);
        let (dtype, sample) = built_in.input();
        let shape = [&[batch], &sample[..]].concat();
        let inputs = match dtype {
            DType::F32 => random(&shape)?,
            _ => classes(&shape, 3, built_in.classes())?,
        };
        let labels = classes(&[&[batch], &built_in.labels()[..]].concat(), 7, built_in.classes())?;
        let (inputs, labels) = match layout {
            Some(Layout { mesh, .. }) => (inputs.batch_on(mesh), labels.batch_on(mesh)),
            None => (inputs, labels),
        };
        inputs.eval();
        labels.eval();
        let guard = args.check_finite.then(|| Guard::new(&*model));
        let precision = args.precision.precision();
        let loss_scale = (precision == Precision::F16).then(|| LossScale::new(LossScaleOptions::default()));
        Ok(Training { model, optimizer, precision, loss_scale, guard, inputs, labels })
    }

    fn step(&mut self) -> Tensor {
        self.guard.iter_mut().for_each(|guard| guard.begin(&*self.optimizer));
        let loss = autocast(self.precision, || loss(&self.model.forward(&self.inputs), &self.labels));
        let gradients = match &mut self.loss_scale {
            Some(scale) => {
                let mut gradients = self.model.gradients(&scale.scaled(&loss));
                if !scale.unscale(&mut gradients) {
                    return loss;
                }
                gradients
            }
            None => self.model.gradients(&loss),
        };
        match &mut self.guard {
            Some(guard) => {
                guard.examine(&loss, &gradients);
                guard.step(&mut *self.optimizer, gradients);
            }
            None => self.optimizer.step(gradients),
        }
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
    args.layout.set_devices(args.common.threads)?;
    let built_in = args.sizes.built_in(args.model, args.vocabulary)?;
    let layout = args.layout.complete(&built_in, args.batch)?;
    let devices = Device::cpus().map_err(Failure::mistake)?;
    let machine = Machine::of_all_devices();
    let batch = usize::try_from(args.batch).unwrap_or(usize::MAX);
    let steps = u32::try_from(args.steps).unwrap_or(u32::MAX);
    let mut training = Training::new(args, &built_in, layout.as_ref())?;

    let first = Instant::now();
    let loss = training.step().item();
    let first = first.elapsed();
    if !loss.is_finite() {
        return Err(Failure::Mistake(format!("the loss of the first step is {loss}")));
    }
    training.steps((steps / 10).max(3));
    devices.iter().for_each(Device::reset_peak_memory);
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
    // One of the steps may have failed: its parameters have, and this loss has its cause.
    training.step().item();
    let step = median(timed.iter().map(|t| t.0).collect()).as_secs_f64();
    let recording = median(timed.iter().map(|t| t.1).collect()).as_secs_f64();

    let plan = last_plan().expect("a step has been handed over");
    let kernels: usize = plan.programs().map(|program| program.steps.len()).sum();
    let moved = plan.moved();
    let peak = machine.peak(args.precision.precision());
    let flops = plan.programs().map(|program| program.flops()).sum::<u64>() as f64 / 1e9;
    let memory: usize = devices.iter().map(|device| device.memory().peak).sum();
    let (speed, rate) = (flops / step, batch as f64 / step);
    if args.common.json {
        let unit = match Unit::of(&built_in) {
            Unit::Images => ("images_per_second", rate),
            Unit::Tokens(length) => ("tokens_per_second", rate * length as f64),
        };
        let mut report = json!({
            "bench": "train",
            "machine": machine.json(),
            "model": name_of(args.model),
            "optimizer": name_of(args.optimizer),
            "precision": name_of(args.precision),
            "batch": batch,
            "steps": steps,
            "step_ms": step * 1e3,
            "first_step_ms": first.as_secs_f64() * 1e3,
            "recording_us": recording * 1e6,
            "peak_bytes": memory,
            "kernels": kernels,
            "devices": devices.iter().map(device_json).collect::<Vec<_>>(),
            "parallel": layout.as_ref().map(Layout::name),
            "moved_bytes_per_step": moved,
            "page_faults_per_step": faults,
            "gflop_per_step": flops,
            "gflops": speed,
            "peak_gflops": peak,
            "share_of_peak": speed / peak,
        });
        report[unit.0] = json!(unit.1);
        say(&report.to_string());
        return Ok(());
    }
    let (model, optimizer) = (name_of(args.model), name_of(args.optimizer));
    say(&machine.line());
    let spread = layout.as_ref().map_or(String::new(), |layout| format!(", {}", layout.name()));
    let precision = match args.precision {
        PrecisionName::F32 => String::new(),
        narrow => format!(", {}", name_of(narrow)),
    };
    say(&format!("{model}, batch {batch}, {optimizer}{precision}{spread}: {steps} steps"));
    let line = |name: &str, value: String| say(&format!("{name:<22}{value}"));
    line("speed", Unit::of(&built_in).speed(rate));
    line("step", format!("{}; no less than {} for {flops:.3} GFLOP", time(step), time(flops / peak)));
    line("arithmetic", format!("{speed:.1} GFLOP/s, {:.0} % of {peak:.1}", 100.0 * speed / peak));
    line("first step", format!("{}, with compiling", time(first.as_secs_f64())));
    line("recording a step", time(recording));
    line("kernels of a step", kernels.to_string());
    line("memory", format!("{:.1} MiB at most", memory as f64 / f64::from(1 << 20)));
    if layout.is_some() {
        line("devices", layout::devices_in_words());
        line("moved between devices", format!("{} a step", human_bytes(moved)));
    }
    if let Some(faults) = faults {
        line("page faults of a step", format!("{faults:.1}"));
    }
    if let Some(traced) = traced {
        say(&traced);
    }
    Ok(())
}

/// Classes, or tokens, that differ from one to the next.
fn classes(shape: &[usize], step: usize, count: usize) -> Result<Tensor, Failure> {
    let numbers = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d)).filter(|n| *n < 1 << 31);
    let numbers = numbers.ok_or_else(|| Failure::mistake("such a batch does not fit into memory"))?;
    let classes: Vec<i64> = (0..numbers).map(|i| (i * step % count) as i64).collect();
    Ok(Tensor::from_slice(&classes, shape))
}

/// A device for programs.
fn device_json(device: &Device) -> Value {
    json!({ "name": device.to_string(), "threads": device.num_threads(), "peak_bytes": device.memory().peak })
}

/// Pages that the process has touched for the first time so far, where the system tells.
fn page_faults() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // After the name in brackets come state, parent, …; the eighth is the count of minor faults.
    text.rsplit_once(')')?.1.split_whitespace().nth(7)?.parse().ok()
}
