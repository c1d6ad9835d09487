//! `meshwork bench`: how fast this machine runs what trainings are made of, and how far that is from what it can do.

pub mod conv;
mod elementwise;
pub mod gemm;
mod layer;
pub mod machine;
pub mod parallel;
pub mod pool;
mod report;
mod timing;
mod train;

use crate::args::{BenchArgs, BenchCommand};
use crate::failure::Failure;
use meshwork::set_num_threads;
pub use report::time;

/// Measures and prints.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let threads = match &args.command {
        BenchCommand::Gemm(args) => args.common.threads,
        BenchCommand::Elementwise(args) => args.common.threads,
        BenchCommand::Conv(args) => args.common.threads,
        BenchCommand::Pool(args) => args.common.threads,
        // These set them for devices of their own.
        BenchCommand::Train(_) | BenchCommand::Parallel(_) => None,
    };
    if let Some(threads) = threads {
        let threads = usize::try_from(threads).unwrap_or(usize::MAX);
        set_num_threads(threads).map_err(|e| Failure::Mistake(format!("--threads: {e}")))?;
    }
    match &args.command {
        BenchCommand::Gemm(args) => gemm::run(args),
        BenchCommand::Elementwise(args) => elementwise::run(args),
        BenchCommand::Conv(args) => conv::run(args),
        BenchCommand::Pool(args) => pool::run(args),
        BenchCommand::Train(args) => train::run(args),
        BenchCommand::Parallel(args) => parallel::run(args),
    }
}
