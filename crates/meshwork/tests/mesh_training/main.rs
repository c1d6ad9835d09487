//! Training on a mesh gives the weights of training on one device, bit for bit.

mod accumulation;
mod irregular;
mod matrix;
mod models;
mod optimizers;
mod random;
mod run;
mod states;
mod unusual;
