//! What operations, layers and optimizers compute, compared with definitions, with PyTorch and with differences.
//!
//! Tests that look at what belongs to the whole process (devices, counters, memory) are programs of their own.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/operations/mod.rs"]
mod operations;

mod attention;
mod golden;
mod gradcheck;
mod hugging_face;
mod layer_wise;
mod layers;
mod modules;
mod optimizers;
mod properties;
mod schedules;
mod split_rules;
mod streamed;
