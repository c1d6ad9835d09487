//! Values and gradients equal PyTorch's: every case of `tests/golden/*.safetensors` at the root of the repository.
//!
//! What is in the files stands in `tests/golden/README.md`. Optimizers and schedules have their own tests.

mod case;
pub mod cases;
mod compare;
mod dispatch;
mod file;
mod training;

use case::Case;
use compare::Tolerance;
use file::File;
use meshwork::Tensor;
use meshwork::tensor::grad_with;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs all cases of a group and reports every one that differs.
fn check_group(group: &str) {
    let file = File::open(group);
    let cases = file.cases();
    assert!(!cases.is_empty(), "{group} has no cases");
    let failures: Vec<String> = cases
        .iter()
        .filter_map(|json| {
            let case = Case::new(&file, json);
            let outcome = catch_unwind(AssertUnwindSafe(|| check(&case)));
            let errors = outcome.unwrap_or_else(|panic| vec![format!("panicked: {}", message(&*panic))]);
            (!errors.is_empty()).then(|| format!("{}: {}", case.name, errors.join("\n    ")))
        })
        .collect();
    assert!(failures.is_empty(), "{} of {} cases differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
}

/// Everything is recorded before anything is read, so that a case is one program.
fn check(case: &Case) -> Vec<String> {
    let Some(outputs) = dispatch::call(case) else {
        return vec![format!("the dispatcher does not know {}", case.op)];
    };
    if outputs.len() != case.outputs.len() {
        return vec![format!("{} outputs instead of {}", outputs.len(), case.outputs.len())];
    }
    let mut found: Vec<(String, Tensor)> = case.outputs.iter().cloned().zip(outputs).collect();
    found.extend(gradients(case, &found));
    let tolerance = Tolerance::of(case);
    found.iter().filter_map(|(name, tensor)| tolerance.difference(name, tensor, &case.stored(name))).collect()
}

/// The gradients by every differentiable input, and the gradients of their sum over the stored directions.
fn gradients(case: &Case, outputs: &[(String, Tensor)]) -> Vec<(String, Tensor)> {
    let ends: Vec<(&Tensor, Tensor)> = outputs
        .iter()
        .filter_map(|(name, output)| Some((output, case.maybe_stored(&format!("grad_{name}"))?)))
        .collect();
    if ends.is_empty() {
        return Vec::new();
    }
    let (outputs, cotangents): (Vec<&Tensor>, Vec<&Tensor>) = ends.iter().map(|(o, c)| (*o, c)).unzip();
    let wrt: Vec<&Tensor> = case.grad_inputs.iter().map(|name| case.input(name)).collect();
    let gradients = grad_with(&outputs, Some(&cotangents), &wrt, case.gradgrad);
    let mut found: Vec<(String, Tensor)> = Vec::new();
    if case.gradgrad {
        let parts = gradients.iter().zip(&case.grad_inputs);
        let parts: Vec<Tensor> = parts.map(|(g, name)| (g * case.stored(&format!("v.{name}"))).sum(..)).collect();
        let parts: Vec<&Tensor> = parts.iter().collect();
        let seconds = grad_with(&parts, None, &wrt, false);
        found.extend(case.grad_inputs.iter().map(|name| format!("gradgrad.{name}")).zip(seconds));
    }
    found.extend(case.grad_inputs.iter().map(|name| format!("grad.{name}")).zip(gradients));
    found
}

macro_rules! groups {
    ($($group:ident),*) => {
        $(#[test]
        fn $group() {
            check_group(stringify!($group));
        })*

        /// A group that is added to the files must be added here.
        #[test]
        fn every_group_has_a_test() {
            let elsewhere = ["optim", "schedule", "training"];
            for group in file::groups() {
                let known = [$(stringify!($group)),*].contains(&group.as_str()) || elsewhere.contains(&group.as_str());
                assert!(known, "no test reads {group}.safetensors");
            }
        }
    };
}

groups!(conv, dtype, elementwise, index, loss, matmul, norm, pool, reduce, shape);
