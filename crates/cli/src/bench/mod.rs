//! `meshwork bench`: how fast this machine runs what trainings are made of, and how far that is from what it can do.

mod conv;
mod elementwise;
pub mod gemm;
mod machine;
mod report;
mod timing;
mod train;

use crate::args::{BenchArgs, BenchCommand};
use crate::failure::Failure;
use meshwork::set_num_threads;
pub use report::time;

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let common = match &args.command {
        BenchCommand::Gemm(args) => &args.common,
        BenchCommand::Elementwise(args) => &args.common,
        BenchCommand::Conv(args) => &args.common,
        BenchCommand::Train(args) => &args.common,
    };
    if let Some(threads) = common.threads {
        let threads = usize::try_from(threads).unwrap_or(usize::MAX);
        set_num_threads(threads).map_err(|e| Failure::Mistake(format!("--threads: {e}")))?;
    }
    match &args.command {
        BenchCommand::Gemm(args) => gemm::run(args),
        BenchCommand::Elementwise(args) => elementwise::run(args),
        BenchCommand::Conv(args) => conv::run(args),
        BenchCommand::Train(args) => train::run(args),
    }
}
