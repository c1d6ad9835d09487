//! The program as its users run it.

mod bench;
mod common;
mod hugging_face;
mod language;
mod large_batch;
mod layouts;
mod metrics;
mod mistakes;
mod report;
mod timeline;
#[cfg(unix)]
mod top;
mod training;
