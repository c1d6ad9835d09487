//! What several test programs share.
#![allow(dead_code)]

pub mod convnet;
pub mod numbers;
