//! Recording, running together, caching, history: the laws of lazy tensors.
//!
//! What is counted here is counted over the process, so the tests take turns.

#[path = "../common/mod.rs"]
mod common;

mod caching;
mod custom;
mod errors;
mod history;
mod memory;
mod recording;
mod threads;

use std::sync::{Mutex, MutexGuard};

/// Held by each test while it runs.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(|e| e.into_inner())
}

/// The names of the kernels of the program that ran last.
fn kernels() -> Vec<&'static str> {
    let program = meshwork::tensor::last_program().expect("a program has run");
    program.steps.iter().map(|step| step.op.operation().name()).collect()
}
