//! Every operation with operands, and what its split rule says of it.
#![allow(dead_code)]

pub mod cases;
pub mod cut;
pub mod numbered;
