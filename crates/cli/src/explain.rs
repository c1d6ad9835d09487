//! `meshwork explain`: the program of one training step.

use crate::args::ExplainArgs;
use crate::failure::Failure;
use crate::progress::say;
use crate::recipe;
use crate::settings::{Settings, parse};
use crate::train::built_in;
use crate::values::name_of;
use meshwork::nn::{Layer, Module};
use meshwork::tensor::last_program;
use meshwork::train::BuiltIn;
use meshwork::{DType, Tensor};

/// Runs one step on zeros, and prints what was compiled for it.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let flags = [format!("--model={}", name_of(args.model)), format!("--optimizer={}", name_of(args.optimizer))];
    let settings = Settings::complete(&parse(&flags)?)?;
    let model = built_in(args.model).build();
    model.init(0);
    let mut optimizer = recipe::optimizer(&settings, &*model);

    let batch = usize::try_from(args.batch).unwrap_or(usize::MAX);
    let shape = [&[batch], &BuiltIn::INPUT[..]].concat();
    let images = zeros(&shape, DType::F32)?;
    let labels = zeros(&[batch], DType::I64)?;
    let loss = model.forward(&images).cross_entropy(&labels);
    let gradients = model.gradients(&loss);
    optimizer.step(gradients);
    let program = last_program().expect("a step has just been handed over");

    say(&format!(
        "one step of {} with {}, batch {batch}, {} parameters",
        name_of(args.model),
        name_of(args.optimizer),
        model.num_parameters()
    ));
    say(&program.to_string());
    let moved: u64 = program.steps.iter().map(|step| step.bytes()).sum();
    say(&format!(
        "moved {:.2} MB, {:.1} FLOP a byte, {:.2} MFLOP a sample",
        moved as f64 / 1e6,
        program.flops() as f64 / moved as f64,
        program.flops() as f64 / 1e6 / batch as f64
    ));
    Ok(())
}

/// Zeros that are there, so that they are no part of the program.
fn zeros(shape: &[usize], dtype: DType) -> Result<Tensor, Failure> {
    let bytes = shape.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d)).filter(|n| *n < 1 << 36);
    let bytes = bytes.ok_or_else(|| Failure::mistake("--batch: such a batch does not fit into memory"))?;
    Ok(Tensor::from_bytes(&vec![0; bytes], dtype, shape))
}
