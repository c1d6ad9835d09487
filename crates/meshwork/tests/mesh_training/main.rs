//! Training on a mesh gives the weights of training on one device, bit for bit.

mod accumulation;
mod ema;
mod finite;
mod irregular;
mod matrix;
mod models;
mod optimizers;
mod random;
mod recompute;
mod run;
mod states;
mod unusual;
