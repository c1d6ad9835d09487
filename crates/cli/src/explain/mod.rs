//! `meshwork explain`: the program of one training step, and what moves between devices for it.

mod exchanges;
mod table;

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::layout::{Layout, devices_in_words};
use crate::progress::say;
use crate::recipe;
use crate::settings::{Settings, parse};
use crate::train::warn;
use crate::values::name_of;
use meshwork::graph::human_bytes;
use meshwork::graph::plan::{Plan, Task};
use meshwork::graph::program::Program;
use meshwork::mesh::{Footprint, Placement, placed_parameters};
use meshwork::nn::{Layer, Module};
use meshwork::tensor::{autocast, last_plan};
use meshwork::train::loss;
use meshwork::{DType, Device, Tensor, synchronize};
use std::sync::Arc;
use table::Table;

/// Runs one step on zeros, and prints what was compiled for it.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let flags = [format!("--model={}", name_of(args.model)), format!("--optimizer={}", name_of(args.optimizer))];
    let settings = Settings::complete(&parse(&flags)?)?;
    let built_in = args.sizes.built_in(args.model, args.vocabulary)?;
    args.layout.set_devices(None)?;
    let layout = args.layout.complete(&built_in, args.batch)?;
    let batch = usize::try_from(args.batch).unwrap_or(usize::MAX);
    let (dtype, sample) = built_in.input();
    let inputs = zeros(&[&[batch], &sample[..]].concat(), dtype)?;
    let labels = zeros(&[&[batch], &built_in.labels()[..]].concat(), DType::I64)?;

    let model = built_in.build();
    model.init(0);
    args.layout.set_recompute(&*model, args.model);
    if let Some(layout) = &layout {
        layout.spread(&*model)?;
        warn(layout.without_effect(&*model, args.batch, built_in.transformer().is_some()));
    }
    let mut optimizer = recipe::optimizer(&settings, &*model);
    let footprints = layout.as_ref().map(|layout| layout.mesh.footprints(&*model, &*optimizer));
    let (inputs, labels) = match &layout {
        Some(Layout { mesh, .. }) => (inputs.batch_on(mesh), labels.batch_on(mesh)),
        None => (inputs, labels),
    };
    let devices = Device::cpus().map_err(Failure::mistake)?;
    devices.iter().for_each(Device::reset_peak_memory);
    let loss = autocast(args.precision.precision(), || loss(&model.forward(&inputs), &labels));
    let gradients = model.gradients(&loss);
    optimizer.step(gradients);
    let plan = last_plan().expect("a step has just been handed over");

    say(&format!(
        "one step of {} with {}, batch {batch}, {} parameters",
        name_of(args.model),
        name_of(args.optimizer),
        model.num_parameters()
    ));
    match layout.zip(footprints) {
        Some((layout, footprints)) => {
            synchronize();
            placements(&layout, &*model);
            say("");
            let parameters = placed_parameters(&*model);
            exchanges::lines(&plan, &layout.mesh, &parameters).iter().for_each(|line| say(line));
            say("");
            programs_of(&plan, &devices[0]);
            memory(&footprints);
        }
        None => plan.programs().for_each(|program| say(&program.to_string())),
    }
    let programs = || plan.programs().map(Arc::as_ref);
    let flops: u64 = programs().map(Program::flops).sum();
    let moved: u64 = programs().flat_map(|program| &program.steps).map(|step| step.bytes()).sum();
    say(&format!(
        "moved {:.2} MB, {:.1} FLOP a byte, {:.2} MFLOP a sample",
        moved as f64 / 1e6,
        flops as f64 / moved as f64,
        flops as f64 / 1e6 / batch as f64
    ));
    Ok(())
}

/// The mesh, and how each parameter lies on it between steps.
fn placements(layout: &Layout, model: &dyn Layer) {
    let axes = layout.mesh.axes();
    say(&format!("mesh {} on {}", layout.name(), devices_in_words()));
    say("");
    let mut head = vec!["parameter".to_string(), "shape".to_string()];
    head.extend(axes.iter().map(|(axis, size)| format!("{axis} ({size})")));
    head.push("its gradient and optimizer state".to_string());
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for parameter in placed_parameters(model) {
        let apart = |(i, (axis, _)): (usize, &(String, usize))| {
            (parameter.state[i] != parameter.value[i]).then(|| format!("{axis}: {}", parameter.state[i]))
        };
        let apart: Vec<String> = axes.iter().enumerate().filter_map(apart).collect();
        let state = if apart.is_empty() { "as it".to_string() } else { apart.join(", ") };
        let mut row = vec![parameter.name.clone(), format!("{}{:?}", parameter.dtype, parameter.shape)];
        row.extend(parameter.value.iter().map(Placement::to_string));
        row.push(state);
        table.row(row);
    }
    table.lines().iter().for_each(|line| say(line));
}

/// What one device runs.
fn programs_of(plan: &Plan, device: &Device) {
    let copies = plan.tasks.iter().filter(|task| matches!(task, Task::Copy { .. })).count();
    let own: Vec<&Arc<Program>> = plan
        .tasks
        .iter()
        .filter_map(|task| match task {
            Task::Run { device: on, program, .. } if *on == device.id().0 => Some(program),
            _ => None,
        })
        .collect();
    say(&format!(
        "{} programs and {copies} copies between devices; {} of the programs run on {device}, in this order:",
        plan.programs().count(),
        own.len()
    ));
    own.iter().for_each(|program| say(&program.to_string()));
}

/// What each device has, and the most that was in use during the step.
fn memory(footprints: &[Footprint]) {
    say("");
    let mut table =
        Table::new(&["memory", "parameters", "gradients", "optimizer state", "together", "at most in the step"]);
    for footprint in footprints {
        let Footprint { device, parameters, gradients, state } = footprint;
        let bytes = [*parameters, *gradients, *state, footprint.total(), device.memory().peak];
        table.row([device.to_string()].into_iter().chain(bytes.map(human_bytes)));
    }
    table.lines().iter().for_each(|line| say(line));
}

/// Zeros that are there, so that they are no part of the program.
fn zeros(shape: &[usize], dtype: DType) -> Result<Tensor, Failure> {
    let bytes = shape.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d)).filter(|n| *n < 1 << 36);
    let bytes = bytes.ok_or_else(|| Failure::mistake("--batch: such a batch does not fit into memory"))?;
    Ok(Tensor::from_bytes(&vec![0; bytes], dtype, shape))
}
