//! The program `meshwork`: train, resume and look inside.

mod args;
mod bench;
mod config;
mod devices;
mod explain;
mod export;
mod failure;
mod generate;
mod interrupt;
mod language;
mod language_model;
mod large_batch;
mod layout;
mod lines;
mod log;
mod metrics;
mod mistakes;
mod progress;
mod recipe;
mod report;
mod samples;
mod settings;
mod timeline;
mod top;
mod tracing;
mod train;
mod values;
mod words;

use args::{Cli, Command};
use clap::{CommandFactory, FromArgMatches};
use failure::Failure;
use meshwork::Level;
use std::process::ExitCode;

/// Exit code of a run that Ctrl-C ended: 128 + SIGINT, as shells have it.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    failure::one_line_panics();
    let argv: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    match failure::catch(|| run(&argv)) {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}

fn run(argv: &[String]) -> Result<ExitCode, Failure> {
    let matches = match Cli::command().try_get_matches_from(argv) {
        Ok(matches) => matches,
        Err(e) if !e.use_stderr() => {
            let _ = e.print();
            return Ok(ExitCode::SUCCESS);
        }
        Err(e) => return Err(Failure::Mistake(mistakes::in_words(&e, argv))),
    };
    Level::requested().map_err(Failure::Mistake)?;
    meshwork::cpu_groups().map_err(Failure::mistake)?;
    let cli = Cli::from_arg_matches(&matches).map_err(|e| Failure::Mistake(mistakes::in_words(&e, argv)))?;
    match cli.command {
        Command::Train(args) => train::run(args, &argv[2..]),
        Command::Generate(args) => generate::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Export(args) => export::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Explain(args) => explain::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Bench(args) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Report(args) => report::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Trace(args) => timeline::run(&args).map(|()| ExitCode::SUCCESS),
        Command::Top(args) => top::run(&args),
        Command::Devices(args) => devices::run(args.devices.as_ref()).map(|()| ExitCode::SUCCESS),
    }
}
