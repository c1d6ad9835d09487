//! Batches of any size, parameters that are frozen or not used on some steps, other types of numbers.

use crate::models::{branches, deep, frozen, halves, lenet, mlp, precise, small};
use crate::run::{Layout, Recipe, some};
use meshwork::prelude::*;
use meshwork::tensor::Precision;

#[test]
fn batches_of_every_size_down_to_one_sample() {
    for subject in [mlp, small] {
        Recipe { sizes: &[22, 7, 3, 2], ..Recipe::new(subject, 8) }.check(&some());
    }
    // Norms of a batch need two samples; without them one is enough.
    Recipe { sizes: &[19, 1, 6, 1], ..Recipe::new(lenet, 8) }.check(&some());
}

#[test]
fn more_ranks_than_samples() {
    for subject in [mlp, lenet] {
        Recipe { sizes: &[1, 2, 3], ..Recipe::new(subject, 6) }.check(&some());
    }
}

#[test]
fn frozen_parameters_stay_what_they_are() {
    Recipe::new(frozen, 5).check(&some());
}

#[test]
fn a_parameter_that_is_not_used_on_some_steps_is_not_updated_there() {
    Recipe::new(branches, 7).check(&some());
}

#[test]
fn parameters_that_are_gathered_again_and_gradients_that_are_merged_in_buckets() {
    let plans = ["data=2,zero=3", "data=3,zero=3,accumulate=3", "data=2,tensor=2,zero=3", "data=4,zero=1,accumulate=2"];
    let again: Vec<Layout> = plans.map(Layout::of).into();
    Recipe::new(deep, 4).with_precision(Precision::BF16).check(&again);
    Recipe::new(deep, 4).check(&[some(), again].concat());
}

#[test]
fn models_of_f64() {
    Recipe::new(precise, 6).check(&some());
}

#[test]
fn models_with_layers_of_bf16_and_f16() {
    // The squares of small gradients vanish in f16.
    let optimizer =
        |model: &dyn Layer| -> Box<dyn Optimizer> { Box::new(optim::Sgd::new(model, optim::SgdOptions::new(0.1))) };
    Recipe { optimizer, ..Recipe::new(halves, 6) }.check(&some());
}
